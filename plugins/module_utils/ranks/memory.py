# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute the memory that a process may still use: free memory, and the limits of its control groups."""

from __future__ import annotations

import contextlib
import os

UNLIMITED = 1 << 62
"""Version 1 of the control groups says a number near 2^63 where there is no limit."""


def available_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Return the bytes that this host and every control group above this process leave."""
    left = [_free_memory(os.path.join(proc, "meminfo"))]
    for line in _read(os.path.join(proc, "self", "cgroup")).splitlines():
        _number, controllers, path = line.split(":", 2)
        if not controllers:
            left += _group_limits(groups, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top = os.path.join(groups, "memory")
            left += _group_limits(top, path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return max(0, min(left))


def _free_memory(meminfo: str) -> int:
    for line in _read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return UNLIMITED


def _group_limits(top: str, path: str, limit: str, usage: str) -> list[int]:
    """List what each group from ``path`` up to ``top`` leaves; file caches count as free."""
    found = []
    directory = os.path.normpath(top + "/" + path)
    while directory.startswith(top):
        with contextlib.suppress(OSError, ValueError):
            most, used = (int(_read(os.path.join(directory, name))) for name in (limit, usage))
            cached = [
                int(line.split()[1]) for line in _read(os.path.join(directory, "memory.stat")).splitlines()
                if line.split()[0] in ("inactive_file", "total_inactive_file")
            ]
            if most < UNLIMITED:
                found.append(most - used + max(cached, default=0))
        directory = os.path.dirname(directory)
    return found


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as stream:
        return stream.read()
    return ""

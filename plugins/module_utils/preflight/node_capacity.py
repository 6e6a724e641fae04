# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect what a process may use of the machine that it runs on, and what kind of machine that is.

It travels as part of :mod:`.node_facts`: Python 3.8 or later, and nothing of this collection.
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterator

NO_LIMIT = 1 << 60
"""Version 1 of cgroups writes about 2**63 bytes where there is no limit."""


def read(path: str) -> str:
    """Return the text of a file of the kernel, empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def machine() -> dict[str, Any]:
    """Tell what a program finds on any node, and what may differ between login and compute nodes.

    Returns:
        ``host``, ``system`` (PRETTY_NAME of os-release(5)), ``kernel``, ``architecture``, ``glibc``, ``processor`` (its
        name), ``flags`` (sorted instruction sets), ``uid``.
    """
    cpu = read("/proc/cpuinfo")
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", cpu, re.MULTILINE)
    name = re.search(r"^model name\s*:\s*(.*)$", cpu, re.MULTILINE)
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release"), re.MULTILINE)
    return {
        "host": os.uname().nodename, "system": pretty.group(1) if pretty else "", "kernel": os.uname().release,
        "architecture": os.uname().machine, "glibc": (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2],
        "processor": name.group(1).strip() if name else "",
        "flags": sorted(flags.group(1).split()) if flags else [], "uid": os.geteuid(),
    }


def groups_of(text: str) -> dict[str, str]:
    """Parse ``/proc/self/cgroup`` to controller -> path.

    That of version 2 is under the empty name (cgroups(7)).
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        _number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def group_limits(own: str, top: str = "/sys/fs/cgroup") -> dict[str, float | None]:
    """Tell how much of the machine the process's control groups leave it.

    Args:
        own: text of ``/proc/self/cgroup``.
        top: where the hierarchies are mounted.

    Returns:
        ``cores`` (processors' worth of time) and ``memory`` (bytes), each None without limit.
    """
    groups = groups_of(own)
    cores: list[float] = []
    memory: list[float] = []
    for path in _upwards(groups.get("", "/")):
        quota = read(os.path.join(top, path, "cpu.max")).split()
        if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
            cores.append(int(quota[0]) / int(quota[1]))
        memory += _bytes(read(os.path.join(top, path, "memory.max")))
    for path in _upwards(groups.get("memory", "")):
        memory += _bytes(read(os.path.join(top, "memory", path, "memory.limit_in_bytes")))
    for path in _upwards(groups.get("cpu", "")):
        numbers = [read(os.path.join(top, "cpu", path, "cpu.cfs_%s_us" % name)).strip() for name in ("quota", "period")]
        if all(number.isdigit() and int(number) for number in numbers):
            cores.append(int(numbers[0]) / int(numbers[1]))
    return {"cores": min(cores, default=None), "memory": min(memory, default=None)}


def _upwards(path: str) -> Iterator[str]:
    """Yield a group's path relative to its hierarchy, and those of the groups above it.

    Their limits bind as well.
    """
    path = path.strip("/")
    while path:
        yield path
        path = os.path.dirname(path)
    yield path


def _bytes(text: str) -> list[float]:
    text = text.strip()
    return [float(text)] if text.isdigit() and int(text) < NO_LIMIT else []


def capacity() -> dict[str, Any]:
    """Measure what this process may use of the machine.

    ``cores``: processors; ``memory``: bytes; and what the machine has.
    """
    limits = group_limits(read("/proc/self/cgroup"))
    total = re.search(r"^MemTotal:\s+(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    installed = int(total.group(1)) * 1024 if total else None
    allowed = len(os.sched_getaffinity(0))
    sizes = [size for size in (installed, limits["memory"]) if size is not None]
    return {
        "cores": min(allowed, limits["cores"] if limits["cores"] is not None else allowed),
        "machine_cores": os.cpu_count(), "memory": int(min(sizes)) if sizes else None, "machine_memory": installed,
    }

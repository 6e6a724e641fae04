# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure how long a file system takes for small files, as imports and small data sets use it.

Runs on compute nodes with the system's own Python, 3.6 or later, without this collection around it.
"""

import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, List

from .run_programs import CLEANERS, list_names, read_text

PREFIX = ".torchstack-health."
"""Beginning of the name of a probe's own directory."""

OLD_SECONDS = 3600.0
"""A probe's directory that is older than this was left by one that was killed."""

FILES = 100
"""Enough for a median; a p99 of a hundred is the slowest but one."""

SIZE = 4096
"""Bytes of one file: of the order of a module of Python."""

OPERATIONS = ("create", "stat", "rename", "read", "unlink")


def probe_directory(directory: str, files: int = FILES, seconds: float = 10.0) -> Dict[str, Any]:
    """Create, stat, rename, read and remove small files, in a directory that is removed again.

    What was just written is read from this node's cache; the time of `read` is that of opening a file, which a shared
    file system has to grant.

    Args:
        seconds: for creating them; on a slow file system there are fewer files, rather than a longer probe.

    Returns:
        ``directory``, ``kind`` (of the file system), ``files``, ``operations`` (name -> ``median``, ``p99`` and
        ``max``, in milliseconds), ``problem`` (why it could not be tried; empty where it could).
    """
    facts = {"directory": directory, "kind": file_system_type(directory), "files": 0, "operations": {},
             "problem": ""}  # type: Dict[str, Any]
    try:
        _remove_old(directory)
        with tempfile.TemporaryDirectory(prefix=directory_prefix(), dir=directory) as own:
            CLEANERS.append(lambda: shutil.rmtree(own, ignore_errors=True))
            facts.update(_time_operations(own, files, seconds))
    except OSError as error:
        facts["problem"] = error.strerror or str(error)
    return facts


def directory_prefix() -> str:
    """Make the prefix of this node's directories: all nodes probe a shared file system at once."""
    return "%s%s." % (PREFIX, os.uname().nodename)


def _remove_old(directory: str) -> None:
    """Remove what killed probes of this account on this node have left."""
    begin = directory_prefix()
    for name in list_names(directory):
        if name.startswith(begin):
            path = os.path.join(directory, name)
            try:
                about = os.lstat(path)
            except OSError:
                continue
            if about.st_uid == os.geteuid() and time.time() - about.st_mtime > OLD_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _time_operations(own: str, files: int, seconds: float) -> Dict[str, Any]:
    content, until = b"x" * SIZE, time.time() + seconds
    names = []  # type: List[str]
    took = {name: [] for name in OPERATIONS}  # type: Dict[str, List[float]]

    def timed(operation: str, work: Callable[..., Any], *arguments: Any) -> None:
        begin = time.perf_counter()
        work(*arguments)
        took[operation].append((time.perf_counter() - begin) * 1000)

    for number in range(files):
        path = os.path.join(own, "file%d" % number)
        timed("create", _create, path, content)
        names.append(path)
        if time.time() > until:
            break
    for path in names:
        timed("stat", os.stat, path)
    for path in names:
        timed("rename", os.rename, path, path + ".renamed")
    for path in names:
        timed("read", _read, path + ".renamed")
    for path in names:
        timed("unlink", os.unlink, path + ".renamed")
    return {"files": len(names), "operations": {name: summarise(values) for name, values in took.items()}}


def _create(path: str, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)


def _read(path: str) -> None:
    with open(path, "rb") as stream:
        stream.read()


def summarise(values: List[float]) -> Dict[str, float]:
    """Compute ``median``, ``p99`` and ``max`` of times."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    late = ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
    return {"median": round(median, 4), "p99": round(late, 4), "max": round(ordered[-1], 4)}


def file_system_type(directory: str, mounts: str = "/proc/self/mounts") -> str:
    """Find the file system of a directory, as proc(5) names it; empty where that is not known."""
    path = os.path.realpath(directory)
    best, found = "", ""
    for line in (read_text(mounts, 1 << 30) or "").splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            # Of two mounts on the same directory the later one is visible.
            if inside and len(point) >= len(best):
                best, found = point, fields[2]
    return found

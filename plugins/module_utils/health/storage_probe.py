# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long a file system takes for small files: what an import of many modules, or a data set of small files, meets.

Runs on compute nodes with the system's own Python, 3.6 or later, without this collection around it.
"""

import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, List

from .run_programs import CLEANERS, listed

PREFIX = ".torchstack-health."
"""What the name of a look's own directory begins with."""

OLD_SECONDS = 3600.0
"""A directory of a look that is older than this was left by one that was killed."""

FILES = 100
"""Enough for a median; a p99 of a hundred is the slowest but one."""

SIZE = 4096
"""Bytes of one file: of the order of a module of Python."""

OPERATIONS = ("create", "stat", "rename", "read", "unlink")


def churn(directory: str, files: int = FILES, seconds: float = 10.0) -> Dict[str, Any]:
    """Create, look at, rename, read and remove small files, in a directory of its own that is removed again.

    What was just written is read from this node's cache; the time of `read` is that of opening a file, which a shared
    file system has to grant.

    Args:
        directory: where.
        files: how many.
        seconds: for creating them; on a slow file system there are fewer files, rather than a longer look.

    Returns:
        ``directory``, ``kind`` (of the file system), ``files``, ``operations`` (name -> ``median``, ``p99`` and
        ``max``, in milliseconds), ``problem`` (why it could not be tried; empty where it could).
    """
    facts = {"directory": directory, "kind": kind(directory), "files": 0}  # type: Dict[str, Any]
    facts.update(operations={}, problem="")
    try:
        _sweep(directory)
        with tempfile.TemporaryDirectory(prefix=prefix(), dir=directory) as own:
            CLEANERS.append(lambda: shutil.rmtree(own, ignore_errors=True))
            facts.update(_timed(own, files, seconds))
    except OSError as error:
        facts["problem"] = error.strerror or str(error)
    return facts


def prefix() -> str:
    """What the names of this node's own directories begin with: all nodes look at a shared file system at once."""
    return "%s%s." % (PREFIX, os.uname().nodename)


def _sweep(directory: str) -> None:
    """Remove what killed looks of this account on this node have left."""
    begin = prefix()
    for name in listed(directory):
        if name.startswith(begin):
            path = os.path.join(directory, name)
            try:
                about = os.lstat(path)
            except OSError:
                continue
            if about.st_uid == os.geteuid() and time.time() - about.st_mtime > OLD_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _timed(own: str, files: int, seconds: float) -> Dict[str, Any]:
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
    return {"files": len(names), "operations": {name: summary(values) for name, values in took.items()}}


def _create(path: str, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)


def _read(path: str) -> None:
    with open(path, "rb") as stream:
        stream.read()


def summary(values: List[float]) -> Dict[str, float]:
    """``median``, ``p99`` and ``max`` of times."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    late = ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
    return {"median": round(median, 4), "p99": round(late, 4), "max": round(ordered[-1], 4)}


def kind(directory: str, mounts: str = "/proc/self/mounts") -> str:
    """The file system of a directory, as proc(5) names it; empty where that is not known."""
    path = os.path.realpath(directory)
    best, found = "", ""
    try:
        with open(mounts, "rb") as stream:
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            # Of two on the same directory the later one is seen.
            if inside and len(point) >= len(best):
                best, found = point, fields[2]
    return found

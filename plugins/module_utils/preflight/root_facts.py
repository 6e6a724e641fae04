# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Examine the directory below which releases are installed, and try what it can take."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import time
from typing import Any, Callable

from ..core.account import account_name

#: Seconds that a reservation and a latency measurement may take each.
BUDGET = 0.4
#: Seconds that counting what a release has already may take.
HELD_SECONDS = 5.0
#: Bytes of one unit of st_blocks, whatever the file system's own blocks are (stat(2)).
BLOCK = 512
#: Bytes written where the file system cannot reserve: enough to meet a quota that is used up already.
WRITTEN = 1 << 20

_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def nearest_existing(path: str) -> str:
    """Return the path itself, or the nearest directory above it that exists (a broken link exists)."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def mount_of(path: str, mountinfo: str) -> dict[str, str]:
    """Return ``point`` and ``type`` of the mount that a path without links lies on, by /proc/self/mountinfo (proc(5)).
    """
    found = {"point": "", "type": ""}
    for line in mountinfo.splitlines():
        fields, _dash, tail = line.partition(" - ")
        columns = fields.split(" ")
        if len(columns) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), columns[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one point the later one hides the earlier one.
        if inside and len(point) >= len(found["point"]):
            found = {"point": point, "type": tail.split(" ")[0]}
    return found


def _records(path: str) -> dict[str, Any]:
    """Return the nearest ``.torchstack`` in the directory or above it, and who owns it."""
    while True:
        candidate = os.path.join(path, ".torchstack")
        with contextlib.suppress(OSError):
            uid = os.lstat(candidate).st_uid
            return {"path": candidate, "uid": uid, "owner": account_name(uid)}
        if path == os.path.dirname(path):
            return {}
        path = os.path.dirname(path)


def examine(root: str) -> dict[str, Any]:
    """Return facts about the root that can be had without writing anything.

    Returns:
        ``path``, ``exists``, ``nearest`` (itself or the nearest directory above that exists), ``directory`` (whether
        that is one), ``uid``, ``owner`` and ``mode`` of ``nearest``, ``records`` (see above), ``writable`` (what
        access(2) says for the effective account), ``mount``, ``read_only``, ``noexec``, ``free_bytes``, ``free_inodes``
        (None where the file system does not count them).
    """
    nearest = nearest_existing(root)
    facts: dict[str, Any] = {
        "path": root, "exists": nearest == root, "nearest": nearest, "directory": os.path.isdir(nearest),
        "records": _records(root),
    }
    if not facts["directory"]:
        return facts
    status = os.stat(nearest)
    facts.update(
        uid=status.st_uid, owner=account_name(status.st_uid), mode="%04o" % stat.S_IMODE(status.st_mode),
        writable=os.access(nearest, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids))
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        facts["mount"] = mount_of(os.path.realpath(nearest), stream.read())
    volume = os.statvfs(nearest)
    facts.update(
        read_only=bool(volume.f_flag & os.ST_RDONLY), noexec=bool(volume.f_flag & os.ST_NOEXEC),
        free_bytes=volume.f_bavail * volume.f_frsize, free_inodes=volume.f_favail if volume.f_files else None)
    return facts


def held(directory: str, budget: float = HELD_SECONDS) -> dict[str, Any]:
    """Measure what a release's directory already takes of its file system; a file with several names counts once.

    Returns:
        ``bytes``, ``inodes``, and ``complete``: whether all was counted in time; it is too little then, never too much.
    """
    seen: set[tuple[int, int]] = set()
    amount = {"bytes": 0, "inodes": 0, "complete": True}
    waiting = [directory]
    deadline = time.monotonic() + budget
    while waiting:
        if time.monotonic() > deadline:
            amount["complete"] = False
            break
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    seen.add((status.st_dev, status.st_ino))
                amount["bytes"] += status.st_blocks * BLOCK
                amount["inodes"] += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return amount


def still_needed(required: int, there: int) -> int:
    """Tell what a release still needs of all that it needs, which is a tenth at least.

    A step that runs again writes beside what it has written before, and what is there may be more than is of use.
    """
    return max(required - there, -(-required // 10))


def fallocate(descriptor: int, offset: int, length: int) -> None:
    """Reserve space by fallocate(2); posix_fallocate(3) would write every block where it cannot reserve."""
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (ImportError, OSError, AttributeError):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    while call(descriptor, 0, offset, length):
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def reserve(
    directory: str, wanted: int, allocate: Callable[[int, int, int], None] = fallocate, budget: float = BUDGET
) -> dict[str, Any]:
    """Reserve space for a moment: a quota is seen by nothing less.

    The file has no name by then, so that the space comes back even when this process is killed.

    Returns:
        ``wanted``, ``reserved`` (bytes), ``error`` (name of the error, or empty), ``supported`` (whether the file
        system can reserve at all).
    """
    result: dict[str, Any] = {"wanted": wanted, "reserved": 0, "error": "", "supported": True}
    piece = max(1 << 30, wanted // 64)
    deadline = time.monotonic() + budget
    try:
        with tempfile.TemporaryFile(dir=directory) as stream:
            try:
                while result["reserved"] < wanted and time.monotonic() < deadline:
                    length = min(piece, wanted - result["reserved"])
                    allocate(stream.fileno(), result["reserved"], length)
                    result["reserved"] += length
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                result["supported"] = False
                stream.write(b"\1" * WRITTEN)
                stream.flush()
                os.fsync(stream.fileno())
    except OSError as error:
        result["error"] = errno.errorcode.get(error.errno or 0, str(error))
    return result


def latency(directory: str, files: int, budget: float = BUDGET) -> dict[str, Any]:
    """Tell how long the file system takes to create, look at and remove a small file.

    Returns:
        ``files`` (how many were done), ``median_ms`` and ``worst_ms`` of one file's three operations.
    """
    times = []
    deadline = time.monotonic() + budget
    for number in range(files):
        name = os.path.join(directory, "latency-%d" % number)
        begin = time.monotonic()
        with open(name, "wb") as stream:
            stream.write(b"x")
        os.stat(name)
        os.unlink(name)
        end = time.monotonic()
        times.append(round(1000.0 * (end - begin), 3))
        if end > deadline:
            break
    middle, worst = (sorted(times)[len(times) // 2], max(times)) if times else (0.0, 0.0)
    return {"files": len(times), "median_ms": middle, "worst_ms": worst}


def probe(directory: str, wanted: int, files: int) -> dict[str, Any]:
    """Try to write below a directory, and remove everything again.

    Returns:
        ``error`` (name of the error that forbade to write, or empty), ``reservation`` and ``latency`` where asked for.
    """
    result: dict[str, Any] = {"error": ""}
    place = ""
    try:
        place = tempfile.mkdtemp(prefix=".torchstack-probe-", dir=directory)
        with open(os.path.join(place, "file"), "wb") as stream:
            stream.write(b"x")
        if wanted:
            result["reservation"] = reserve(place, wanted)
        if files:
            result["latency"] = latency(place, files)
    except OSError as error:
        result["error"] = errno.errorcode.get(error.errno or 0, str(error))
    finally:
        if place:
            shutil.rmtree(place, ignore_errors=True)
    return result

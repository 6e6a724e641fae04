# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find out whether any process of this host has a file open or mapped, by asking for a write lease.

fcntl(2): a write lease may be placed on a file only if no other process has it open; a mapping and a running program
keep it open. Whoever owns the file may ask. The kernel then grants nothing that /proc would have to show. A lease is
given back at once; a process that opens the file in that moment waits for it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import time
from typing import Callable, Iterator

FREE, HELD, UNSUPPORTED, NOT_OURS, GONE = "free", "held", "unsupported", "not_ours", "gone"

RETRY_DELAYS = (0.05, 0.2, 0.5)
"""Seconds before each further look at a file that was held: whoever only reads it, such as a backup, is done soon."""

_OF_A_SERVER = re.compile(r"nfs4?|cifs|smb3?|9p")
"""File systems that grant a lease by what their server has delegated: without a delegation they answer EAGAIN for a
file that nobody has open (nfs4_setlease and cifs_setlease of Linux)."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK)


@contextlib.contextmanager
def ignored_lease_breaks() -> Iterator[None]:
    """Ignore the signal by which the kernel asks for a lease back, while leases are asked for."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGIO, before)


def file_system_type(text: str, device: int) -> str:
    """Return the type of the file system with this device number in /proc/self/mountinfo (proc(5)); else empty."""
    number = "%d:%d" % (os.major(device), os.minor(device))
    for line in text.splitlines():
        mount, _dash, source = line.partition(" - ")
        if mount.split(" ")[2:3] == [number]:
            return source.split(" ")[0]
    return ""


def leases_are_local(path: str) -> bool:
    """Tell whether a lease on the file system of ``path`` says who has a file open on this host."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            return _OF_A_SERVER.fullmatch(file_system_type(stream.read(), os.lstat(path).st_dev)) is None
    except OSError:
        return True


def query_lease(directory: int | None, name: str) -> str:
    """Tell whether a file is open on this host, by its path or in a directory; inside of :func:`ignored_lease_breaks`.

    ``UNSUPPORTED``: the file system has no leases that mean this; ``NOT_OURS``: another owner, or not to be read.
    """
    try:
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return GONE
    except OSError as error:
        # A program that is being written would be ETXTBSY; a file that somebody has a lease on, EWOULDBLOCK.
        return HELD if error.errno in (errno.EWOULDBLOCK, errno.ETXTBSY) else NOT_OURS
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return HELD
        return UNSUPPORTED if error.errno in _UNSUPPORTED else NOT_OURS
    finally:
        os.close(descriptor)
    return FREE


def still_held(paths: list[str], sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Return those of some files that were held which stay held for a moment."""
    for pause in RETRY_DELAYS:
        if not paths:
            break
        sleep(pause)
        with ignored_lease_breaks():
            paths = [path for path in paths if query_lease(None, path) == HELD]
    return paths

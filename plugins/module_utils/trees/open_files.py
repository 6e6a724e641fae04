# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether any process of this host has a file open or mapped, also one of another account: by asking for a write lease.

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

AGAIN = (0.05, 0.2, 0.5)
"""Seconds before each further look at a file that was held: whoever only reads it, such as a backup, is done soon."""

_OF_A_SERVER = re.compile(r"nfs4?|cifs|smb3?|9p")
"""File systems that grant a lease by what their server has delegated: without a delegation they answer EAGAIN for a
file that nobody has open (nfs4_setlease and cifs_setlease of Linux)."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore the signal by which the kernel asks for a lease back, while leases are asked for."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGIO, before)


def type_of(text: str, device: int) -> str:
    """The type of the file system with this device number; empty where none is mounted that tells.

    Args:
        text: of /proc/self/mountinfo (proc(5)).
        device: st_dev of a file.
    """
    number = "%d:%d" % (os.major(device), os.minor(device))
    for line in text.splitlines():
        mount, _dash, source = line.partition(" - ")
        if mount.split(" ")[2:3] == [number]:
            return source.split(" ")[0]
    return ""


def means_this_host(path: str) -> bool:
    """Whether a lease on a file system says who has a file open on this host.

    Args:
        path: something that lies on it; where there is nothing, nobody asks.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            return _OF_A_SERVER.fullmatch(type_of(stream.read(), os.lstat(path).st_dev)) is None
    except OSError:
        return True


def ask(directory: int | None, name: str) -> str:
    """Whether a regular file is open anywhere on this host; call it inside of :func:`undisturbed`.

    Args:
        directory: descriptor of the directory that holds it; None where ``name`` is a path.
        name: the file.

    Returns:
        ``FREE``, ``HELD``, ``UNSUPPORTED`` (the file system has no leases, or none that mean this), ``NOT_OURS`` (it
        belongs to another account, or may not be read) or ``GONE``.
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
    """Those of some files that stay held for a moment.

    Args:
        paths: files that were held.
        sleep: waits for some seconds.
    """
    for pause in AGAIN:
        if not paths:
            break
        sleep(pause)
        with undisturbed():
            paths = [path for path in paths if ask(None, path) == HELD]
    return paths

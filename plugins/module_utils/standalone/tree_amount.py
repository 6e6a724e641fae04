# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure what trees hold, whatever lies in them: names, inodes, bytes, and what a removal would stop at.

This file needs nothing but Python 3.8: its text is part of the program of the step that removes a release.
"""

from __future__ import annotations

import os
import resource
import stat
import sys
from typing import Callable

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

BLOCK = 512
"""Bytes of one unit of st_blocks, whatever the file system's own blocks are (stat(2))."""


DEEPEST = 1000
"""Directories within one another that are followed: each takes a descriptor, and frames of the interpreter."""


def reach_deep() -> None:
    """Let this process follow so many directories within one another."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5 * DEEPEST))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * DEEPEST if hard == resource.RLIM_INFINITY else min(2 * DEEPEST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Amount:
    """What a tree holds.

    ``names`` are directory entries, the tree's own included. ``inodes`` and ``bytes`` (of the blocks in use) come back
    when all of them are gone; of a file that has further names elsewhere nothing does, and it counts as ``shared``.
    """

    def __init__(self) -> None:
        self.names = self.inodes = self.bytes = self.shared = 0
        self.mounts: list[str] = []
        self.foreign: list[str] = []
        self.unreadable: list[str] = []
        self.deep: list[str] = []
        self._links: dict[tuple[int, int], int] = {}

    def add(self, found: os.stat_result) -> None:
        """Count one name."""
        self.names += 1
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
            self._inode(found)
            return
        key = (found.st_dev, found.st_ino)
        left = self._links.get(key, found.st_nlink) - 1
        self._links[key] = left
        self.shared += (left == found.st_nlink - 1) - (left == 0)
        if left == 0:
            self._inode(found)

    def _inode(self, found: os.stat_result) -> None:
        self.inodes += 1
        self.bytes += found.st_blocks * BLOCK

    def as_dict(self) -> dict[str, int]:
        """Plain data, without what is in the way."""
        return {"names": self.names, "inodes": self.inodes, "bytes": self.bytes, "shared": self.shared}


def mount_points(text: str, path: str) -> list[str]:
    """The mount points at or below a path.

    Args:
        text: of /proc/self/mountinfo (proc(5)); a space, tab, line feed or backslash is ``\\`` and three octal digits.
        path: absolute, without links.
    """
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            pieces = fields[4].split("\\")
            point = pieces[0] + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in pieces[1:])
            if point == path or point.startswith(path.rstrip("/") + "/"):
                found.append(point)
    return found


def own_mounts(path: str) -> list[str]:
    """The mount points at or below a path, as this process sees them."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            return mount_points(stream.read(), os.path.realpath(path))
    except OSError:
        return []


def measure(
    path: str, amount: Amount | None = None, file: Callable[[int, str, str, os.stat_result], None] | None = None
) -> Amount:
    """What a tree holds; an empty amount where there is none.

    Args:
        path: the tree.
        amount: what to add it to.
        file: called for each regular file, with the descriptor of its directory, its name, its path relative to the
            tree, and its status.

    Returns:
        The amount. ``mounts``, ``foreign`` (directories of another account), ``unreadable`` and ``deep`` (more than
        :data:`DEEPEST` directories within one another) are paths that a removal would stop at.
    """
    reach_deep()
    amount = amount or Amount()
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return amount
    amount.add(found)
    amount.mounts += own_mounts(path)
    if stat.S_ISDIR(found.st_mode):
        try:
            descriptor = os.open(path, OPEN)
        except PermissionError:
            amount.unreadable.append(path)
            return amount
        try:
            _measure(descriptor, path, "", found.st_dev, amount, file)
        finally:
            os.close(descriptor)
    return amount


def _measure(
    descriptor: int, top: str, relative: str, device: int, amount: Amount,
    file: Callable[[int, str, str, os.stat_result], None] | None,
) -> None:
    directories = []
    for name, _is_directory in listed(descriptor):
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            continue
        amount.add(found)
        below = relative + name
        if stat.S_ISDIR(found.st_mode):
            directories.append(name)
            if found.st_uid != os.geteuid() and os.geteuid():
                amount.foreign.append(os.path.join(top, below))
            if found.st_dev != device:
                amount.mounts.append(os.path.join(top, below))
                directories.pop()
        elif file is not None and stat.S_ISREG(found.st_mode):
            file(descriptor, name, below, found)
    for name in directories:
        try:
            inner = os.open(name, OPEN, dir_fd=descriptor)
        except FileNotFoundError:
            continue
        except PermissionError:
            amount.unreadable.append(os.path.join(top, relative + name))
            continue
        try:
            if relative.count("/") + 1 >= DEEPEST:
                amount.deep.append(os.path.join(top, relative + name))
            else:
                _measure(inner, top, relative + name + "/", device, amount, file)
        finally:
            os.close(inner)


def listed(descriptor: int) -> list[tuple[str, bool]]:
    """Names and whether each is a directory; all of them first, since removing meanwhile makes some listings skip."""
    with os.scandir(descriptor) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

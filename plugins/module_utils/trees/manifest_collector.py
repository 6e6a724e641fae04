# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect the entries of a tree that were read, in order and in few pieces."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Mapping, NamedTuple

from .manifest_entry import (
    DIRECTORY,
    FILE,
    SYMLINK,
    Entry,
    Run,
    decode_entry,
    encode_entry,
    encode_file,
    encode_unread_file,
)

NEVER = 1 << 63
"""A time after which nothing happens, in nanoseconds."""

UNSTABLE, UNREADABLE = "unstable", "unreadable"

_KINDS = {
    stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: SYMLINK, stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
}

_CHANGED_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EINVAL, errno.ENXIO, errno.ENODEV)


class Found(NamedTuple):
    """Describe one name that is reported, with what is known of it."""

    path: bytes
    line: bytes = b""
    """The entry as a record writes it, empty where it is not known."""
    foreign: bool = False
    """Whether its owner is not the tree's."""
    trouble: str = ""
    """``unstable``: it changed meanwhile; ``unreadable``: the system did not let it be read; empty if neither."""
    reason: str = ""

    @property
    def entry(self) -> Entry | None:
        """Return the entry that the line stands for."""
        return decode_entry(self.line) if self.line else None


class EntryCollector:
    """Collect what was found, in order, in as few pieces as possible, and what another account than ``owner`` owns.

    Inodes that were changed after ``since``, in nanoseconds, count as touched; 0 for none.
    """

    def __init__(self, owner: int, since: int = 0) -> None:
        self.owner = owner
        self.since = since or NEVER
        self._items: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        self._lines: list[str] = []
        self._touched: list[bytes] = []
        self._directories = self._symlinks = self._others = self._total = self._hardlinked = 0

    def file(
        self, path: bytes, seen: os.stat_result, sha256: str, attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Add a file that was read."""
        if seen.st_uid != self.owner:
            self.entry(path, seen, sha256, attributes=attributes)
            return
        self._lines.append(encode_file(path, seen.st_mode & 0o7777, seen.st_size, sha256, attributes))
        self._total += seen.st_size
        if seen.st_nlink > 1:
            self._hardlinked += 1
        if seen.st_ctime_ns > self.since:
            self._touched.append(path)

    def unread_files(self, files: list[tuple[bytes, int, int]]) -> None:
        """Add files that were not read and have nothing to report: path, permission bits and size."""
        self._lines += [encode_unread_file(*file) for file in files]
        self._total += sum([file[2] for file in files])

    def entry(
        self, path: bytes, seen: os.stat_result, sha256: str | None = None, target: bytes | None = None,
        trouble: Found | None = None, attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Add an entry of any type, with its trouble where it has any."""
        kind = _KINDS[stat.S_IFMT(seen.st_mode)]
        mode = None if kind == SYMLINK else stat.S_IMODE(seen.st_mode)
        line = encode_entry(Entry(path, kind, mode, seen.st_size if kind == FILE else None, sha256, target, attributes))
        if kind == FILE and seen.st_nlink > 1:
            self._hardlinked += 1
        if seen.st_ctime_ns > self.since:
            self._touched.append(path)
        if trouble is not None:
            self.put(trouble._replace(line=line))
        elif seen.st_uid != self.owner:
            self.put(Found(path, line, True))
        else:
            self._lines.append(line.decode("ascii"))
            if kind == FILE:
                self._total += seen.st_size
            elif kind == DIRECTORY:
                self._directories += 1
            elif kind == SYMLINK:
                self._symlinks += 1
            else:
                self._others += 1

    def put(self, item: object) -> None:
        """Add something that cannot be joined with others."""
        self._close()
        self._items.append(item)

    def _close(self) -> None:
        if self._lines or self._hardlinked or self._touched:
            lines = "\n".join(self._lines).encode("ascii") + b"\n" if self._lines else b""
            files = len(self._lines) - self._directories - self._symlinks - self._others
            others, touched = self._others, tuple(self._touched)
            self._items.append(Run(
                lines, files, self._directories, self._symlinks, others, self._total, self._hardlinked, touched
            ))
            self._begin()

    def finish(self) -> list[Any]:
        """Return all pieces: :class:`Run`, :class:`Found`, and what else was put in."""
        self._close()
        return self._items


def describe_error(path: bytes, error: OSError) -> Found:
    """Describe an entry by the error that it gave."""
    trouble = UNSTABLE if error.errno in _CHANGED_ERRORS else UNREADABLE
    return Found(path, trouble=trouble, reason=error.strerror or str(error))

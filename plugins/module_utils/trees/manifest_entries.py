# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Entries of an open directory are looked at, and its files read, without following a link.

A file counts as read only if it is the same before and after: same file, same size, same times of content and inode.
Only what the directory calls a regular file is opened; should something else have its name by then, a named pipe for
instance, opening it does not wait, and nothing is read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from typing import Any, Callable, NamedTuple

from .dir_handles import Directory, patiently
from .manifest_file import (
    DIRECTORY,
    FILE,
    SYMLINK,
    TOP,
    Entry,
    Run,
    decode_entry,
    encode_entry,
    encode_file,
    encode_glance,
)

LARGE = 1 << 20
"""Bytes from which on somebody else had better read a file: some 600 microseconds of digesting."""

BLOCK = 1 << 17
"""Bytes that are read at a time; they stay in a processor's cache until they are digested. Four times as many cost a
process that has just begun half as much time again, most of it the system's."""

TICK = 0.02
"""Seconds in which two changes of a file may bear the same time: kernels stamp by their clock tick, 10 ms at most."""

NEVER = 1 << 63
"""A time after which nothing happens, in nanoseconds."""

UNSTABLE, UNREADABLE = "unstable", "unreadable"

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: SYMLINK, stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
}
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EINVAL, errno.ENXIO, errno.ENODEV)


class Found(NamedTuple):
    """One name of which something is to be said."""

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
        """What the line says."""
        return decode_entry(self.line) if self.line else None


class Part(NamedTuple):
    """Entries of one directory that are to be looked at."""

    directory: Directory
    prefix: bytes
    """The path of the directory with a slash, empty for the tree."""
    names: list[bytes]
    others: frozenset[bytes]
    """Which of the names are no regular files."""
    before: tuple[int, ...] | None = None
    """Where this is the last of a directory: its :func:`times` before it was listed."""


class _ChangedError(Exception):
    """An entry is not what it was a moment ago."""


class Gathering:
    """What was found, in order, in as few pieces as possible.

    Args:
        owner: user id of the tree's owner.
        since: the time, in nanoseconds, after which an inode that was changed counts as touched; 0 for none.
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

    def file(self, path: bytes, seen: os.stat_result, sha256: str) -> None:
        """Add a file that was read."""
        if seen.st_uid != self.owner:
            self.entry(path, seen, sha256)
            return
        self._lines.append(encode_file(path, seen.st_mode & 0o7777, seen.st_size, sha256))
        self._total += seen.st_size
        if seen.st_nlink > 1:
            self._hardlinked += 1
        if seen.st_ctime_ns > self.since:
            self._touched.append(path)

    def glances(self, files: list[tuple[bytes, int, int]]) -> None:
        """Add files that were not read and of which nothing is to be said: path, permission bits and size."""
        self._lines += [encode_glance(*file) for file in files]
        self._total += sum([file[2] for file in files])

    def entry(
        self, path: bytes, seen: os.stat_result, sha256: str | None = None, target: bytes | None = None,
        trouble: Found | None = None,
    ) -> None:
        """Add an entry of any type, with its trouble where it has any."""
        kind = _KINDS[stat.S_IFMT(seen.st_mode)]
        mode = None if kind == SYMLINK else stat.S_IMODE(seen.st_mode)
        line = encode_entry(Entry(path, kind, mode, seen.st_size if kind == FILE else None, sha256, target))
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
        """Add something that stands for itself."""
        self._close()
        self._items.append(item)

    def _close(self) -> None:
        if self._lines or self._hardlinked or self._touched:
            lines = "\n".join(self._lines).encode("ascii") + b"\n" if self._lines else b""
            files = len(self._lines) - self._directories - self._symlinks - self._others
            self._items.append(
                Run(
                    lines, files, self._directories, self._symlinks, self._others, self._total, self._hardlinked,
                    tuple(self._touched),
                )
            )
            self._begin()

    def finish(self) -> list[Any]:
        """All pieces: :class:`Run`, :class:`Found`, and what else was put in."""
        self._close()
        return self._items


class Looker:
    """Looks at entries; any number of threads may share one.

    Args:
        content: read the files for their digests; else their size has to do.
    """

    def __init__(self, content: bool) -> None:
        self.content = content
        self.stopped = False
        """Whether nobody wants to know any more."""
        self._local = threading.local()

    def look(
        self, held: int, part: Part, gathering: Gathering, put_off: Callable[[Part, bytes], object] | None = None
    ) -> None:
        """Gather what the entries of a part are.

        Args:
            held: the descriptor of its directory.
            part: the part.
            gathering: what gets them.
            put_off: has somebody else read a large file, and returns what stands for it until then.
        """
        view = self._view()
        most = LARGE if put_off is not None else None
        others, prefix, read = part.others, part.prefix, self._read
        for name in part.names if self.content else ():
            if name in others:
                self._entry(held, name, prefix + name, gathering)
                continue
            try:
                seen, sha256 = patiently(read, held, name, view, most)
            except OSError as error:
                self._failed(held, name, prefix + name, gathering, error)
            except _ChangedError as error:
                gathering.put(Found(prefix + name, trouble=UNSTABLE, reason=str(error)))
            else:
                if sha256:
                    gathering.file(prefix + name, seen, sha256)
                elif put_off is not None:
                    gathering.put(put_off(part, name))
        if not self.content:
            self._glance(held, part, gathering)
        if part.before is not None:
            try:
                if times(patiently(os.fstat, held)) != part.before:
                    gathering.put(Found(prefix[:-1] or TOP, trouble=UNSTABLE, reason="it changed while it was read"))
            except OSError as error:
                gathering.put(trouble_of(prefix[:-1] or TOP, error))

    def _glance(self, held: int, part: Part, gathering: Gathering) -> None:
        """Gather what the entries of a part are when no file is read; the quick way for most of them."""
        prefix, owner, since = part.prefix, gathering.owner, gathering.since
        seen: list[tuple[bytes, int, int]] = []
        for name in part.names:
            try:
                found = os.stat(name, dir_fd=held, follow_symlinks=False)
            except OSError:
                found = None
            if (
                found is None or found.st_mode & 0o170000 != stat.S_IFREG or found.st_uid != owner
                or found.st_nlink != 1 or found.st_ctime_ns > since
            ):
                gathering.glances(seen)
                seen = []
                self._entry(held, name, prefix + name, gathering)
                continue
            seen.append((prefix + name, found.st_mode & 0o7777, found.st_size))
        gathering.glances(seen)

    def _entry(self, held: int, name: bytes, path: bytes, gathering: Gathering) -> None:
        """What is no file, or whose content nobody asks for."""
        try:
            seen = patiently(os.stat, name, dir_fd=held, follow_symlinks=False)
        except OSError as error:
            gathering.put(trouble_of(path, error))
            return
        target = None
        if stat.S_ISLNK(seen.st_mode):
            try:
                target = patiently(os.readlink, name, dir_fd=held)
            except OSError as error:
                trouble = trouble_of(path, error)
                if trouble.trouble == UNSTABLE:
                    gathering.put(trouble)
                else:
                    gathering.entry(path, seen, trouble=trouble)
                return
        elif stat.S_ISREG(seen.st_mode) and self.content:
            gathering.put(Found(path, trouble=UNSTABLE, reason="it changed before it was looked at"))
            return
        gathering.entry(path, seen, target=target)

    def _failed(self, held: int, name: bytes, path: bytes, gathering: Gathering, error: OSError) -> None:
        """A file that could not be read: what there is to be seen of it from outside."""
        trouble = trouble_of(path, error)
        if trouble.trouble == UNREADABLE:
            try:
                seen = patiently(os.stat, name, dir_fd=held, follow_symlinks=False)
                gathering.entry(path, seen, trouble=trouble)
                return
            except OSError as gone:
                trouble = trouble_of(path, gone)
        gathering.put(trouble)

    def _read(self, held: int, name: bytes, view: memoryview, most: int | None) -> tuple[os.stat_result, str]:
        """The digest of a file that is the same before, meanwhile and after; empty from ``most`` bytes on.

        Raises:
            _ChangedError: it is not the same, or no file.
            OSError: it cannot be read.
        """
        descriptor = open_quietly(name, _OPEN_FILE, held)
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise _ChangedError("it changed while it was opened")
            size = seen.st_size
            if most is not None and size >= most:
                return seen, ""
            if abs(time.time() - seen.st_ctime) < TICK:
                time.sleep(TICK)  # from here on a change shows in the times
                if times(os.fstat(descriptor)) != times(seen):
                    raise _ChangedError("it changed while it was opened")
            total = os.readv(descriptor, [view])
            digest = hashlib.sha256(view[:total])
            if total == BLOCK or total != size:
                while total <= size and not self.stopped:
                    count = os.readv(descriptor, [view])
                    if not count:
                        break
                    digest.update(view[:count])
                    total += count
            after = os.fstat(descriptor)
            if total != size or (after.st_mtime_ns, after.st_ctime_ns, after.st_size) != (
                seen.st_mtime_ns, seen.st_ctime_ns, size
            ):
                raise _ChangedError("it changed while it was read")
            return seen, digest.hexdigest()
        finally:
            os.close(descriptor)

    def _view(self) -> memoryview:
        """This thread's buffer."""
        if not hasattr(self._local, "view"):
            self._local.view = memoryview(bytearray(BLOCK))
        return self._local.view


def open_quietly(name: bytes | str, flags: int, above: int) -> int:
    """Open without leaving a trace in the access time, where the system lets this account do that (open(2))."""
    try:
        return os.open(name, flags | os.O_NOATIME, dir_fd=above)
    except PermissionError:
        return os.open(name, flags, dir_fd=above)


def times(found: os.stat_result) -> tuple[int, ...]:
    """What is another one when a file or a directory was changed or replaced."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def trouble_of(path: bytes, error: OSError) -> Found:
    """What an error says of an entry."""
    trouble = UNSTABLE if error.errno in _CHANGED else UNREADABLE
    return Found(path, trouble=trouble, reason=error.strerror or str(error))

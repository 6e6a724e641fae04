# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the entries of an open directory, and its files, without following a link.

A file counts as read only if it is the same before and after: same file, same size, same times of content and inode.
Only what the directory calls a regular file is opened; should something else have its name by then, a named pipe for
instance, opening it does not wait, and nothing is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from typing import Callable, NamedTuple

from .dir_handles import Directory, retry_interrupted
from .extended_attributes import read_attributes
from .manifest_collector import UNREADABLE, UNSTABLE, EntryCollector, Found, describe_error
from .manifest_entry import (
    TOP,
)

LARGE_FILE = 1 << 20
"""Bytes from which on somebody else had better read a file: some 600 microseconds of digesting."""

BLOCK = 1 << 17
"""Bytes that are read at a time; they stay in a processor's cache until they are digested. Four times as many cost a
process that has just begun half as much time again, most of it the system's."""

CLOCK_TICK = 0.02
"""Seconds in which two changes of a file may bear the same time: kernels stamp by their clock tick, 10 ms at most."""


_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Part(NamedTuple):
    """Describe entries of one directory that are to be read."""

    directory: Directory
    prefix: bytes
    """The path of the directory with a slash, empty for the tree."""
    names: list[bytes]
    others: frozenset[bytes]
    """Which of the names are no regular files."""
    before: tuple[int, ...] | None = None
    """Where this is the last of a directory: its :func:`times` before it was listed."""


class _ChangedError(Exception):
    """Report that an entry is not what it was a moment ago."""


class EntryReader:
    """Read entries, and files for their digests with ``content``; any number of threads may share one."""

    def __init__(self, content: bool, attributes: bool = False) -> None:
        self.content = content
        self.attributes = attributes
        self.stopped = False
        """Whether nobody wants to know any more."""
        self._local = threading.local()

    def read_part(
        self, held: int, part: Part, collector: EntryCollector, defer: Callable[[Part, bytes], object] | None = None
    ) -> None:
        """Collect what the entries of a part are, whose directory is held open.

        A large file may be deferred: then somebody else reads it, and something stands for it until then.
        """
        view = self._view()
        limit_size = LARGE_FILE if defer is not None else None
        others, prefix, read = part.others, part.prefix, self._read
        for name in part.names if self.content else ():
            if name in others:
                self._entry(held, name, prefix + name, collector)
                continue
            try:
                seen, sha256, attributes = retry_interrupted(read, held, name, view, limit_size)
            except OSError as error:
                self._failed(held, name, prefix + name, collector, error)
            except _ChangedError as error:
                collector.put(Found(prefix + name, trouble=UNSTABLE, reason=str(error)))
            else:
                if sha256:
                    collector.file(prefix + name, seen, sha256, attributes)
                elif defer is not None:
                    collector.put(defer(part, name))
        if not self.content:
            self._stat_files(held, part, collector)
        if part.before is not None:
            try:
                if times(retry_interrupted(os.fstat, held)) != part.before:
                    collector.put(Found(prefix[:-1] or TOP, trouble=UNSTABLE, reason="it changed while it was read"))
            except OSError as error:
                collector.put(describe_error(prefix[:-1] or TOP, error))

    def _stat_files(self, held: int, part: Part, collector: EntryCollector) -> None:
        """Collect the entries of a part when no file is read; the quick way for most of them."""
        prefix, owner, since = part.prefix, collector.owner, collector.since
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
                collector.unread_files(seen)
                seen = []
                self._entry(held, name, prefix + name, collector)
                continue
            seen.append((prefix + name, found.st_mode & 0o7777, found.st_size))
        collector.unread_files(seen)

    def _entry(self, held: int, name: bytes, path: bytes, collector: EntryCollector) -> None:
        """Collect what is no file, or whose content is not asked for."""
        try:
            seen = retry_interrupted(os.stat, name, dir_fd=held, follow_symlinks=False)
        except OSError as error:
            collector.put(describe_error(path, error))
            return
        target = None
        if stat.S_ISLNK(seen.st_mode):
            try:
                target = retry_interrupted(os.readlink, name, dir_fd=held)
            except OSError as error:
                trouble = describe_error(path, error)
                if trouble.trouble == UNSTABLE:
                    collector.put(trouble)
                else:
                    collector.entry(path, seen, trouble=trouble)
                return
        elif stat.S_ISREG(seen.st_mode) and self.content:
            collector.put(Found(path, trouble=UNSTABLE, reason="it changed before it was looked at"))
            return
        attributes = None
        if self.attributes and stat.S_ISDIR(seen.st_mode):
            # A directory that cannot be looked into is reported by whoever lists it.
            with contextlib.suppress(OSError):
                attributes = read_attributes("/proc/self/fd/%d/%s" % (held, os.fsdecode(name)))
        collector.entry(path, seen, target=target, attributes=attributes)

    def _failed(self, held: int, name: bytes, path: bytes, collector: EntryCollector, error: OSError) -> None:
        """Collect a file that could not be read, with what its status says."""
        trouble = describe_error(path, error)
        if trouble.trouble == UNREADABLE:
            try:
                seen = retry_interrupted(os.stat, name, dir_fd=held, follow_symlinks=False)
                collector.entry(path, seen, trouble=trouble)
                return
            except OSError as gone:
                trouble = describe_error(path, gone)
        collector.put(trouble)

    def _read(
        self, held: int, name: bytes, view: memoryview, limit_size: int | None,
    ) -> tuple[os.stat_result, str, dict[str, str] | None]:
        """Digest a file that is the same before, meanwhile and after; empty from ``limit_size`` bytes on.

        _ChangedError: it is not the same, or no file. OSError: it cannot be read.
        """
        descriptor = open_quietly(name, _OPEN_FILE, held)
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise _ChangedError("it changed while it was opened")
            size = seen.st_size
            if limit_size is not None and size >= limit_size:
                return seen, "", None
            if abs(time.time() - seen.st_ctime) < CLOCK_TICK:
                time.sleep(CLOCK_TICK)  # from here on a change shows in the times
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
            attributes = read_attributes(descriptor) if self.attributes else None
            after = os.fstat(descriptor)
            if total != size or (after.st_mtime_ns, after.st_ctime_ns, after.st_size) != (
                seen.st_mtime_ns, seen.st_ctime_ns, size
            ):
                raise _ChangedError("it changed while it was read")
            return seen, digest.hexdigest(), attributes
        finally:
            os.close(descriptor)

    def _view(self) -> memoryview:
        """Return this thread's buffer."""
        if not hasattr(self._local, "view"):
            self._local.view = memoryview(bytearray(BLOCK))
        return self._local.view


def open_quietly(name: bytes | str, flags: int, above: int) -> int:
    """Open without changing the access time, where the system lets this account do that (open(2))."""
    try:
        return os.open(name, flags | os.O_NOATIME, dir_fd=above)
    except PermissionError:
        return os.open(name, flags, dir_fd=above)


def times(found: os.stat_result) -> tuple[int, ...]:
    """Return what is different when a file or a directory was changed or replaced."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns

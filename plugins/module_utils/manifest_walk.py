# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A tree is read for its record: every entry, in order of its path's bytes, without following a link.

One thread lists directories; entries are looked at, and files read, by it or by other threads; what is found comes back
in the order of the listing. So neither the file system's order nor the number of threads shows, and no more than a few
thousand entries are in memory at a time.

Other threads pay for large files, as reading and digesting them frees the interpreter, and where each call waits for a
server; for small files on a quick file system they only pass the interpreter's lock around, and further processes help
(see :mod:`manifest_help`). So, unless a number of threads is given, the first thread does the small files itself, next
to these processes, for as long as that is quick.

A file counts as read only if it is the same before and after: same file, same size, same times of content and inode.
Only directories and regular files are opened, by what the directory says that they are; should one be swapped for a
named pipe in that very moment, opening it does not wait, and nothing is read.
"""

from __future__ import annotations

import collections
import concurrent.futures
import errno
import functools
import hashlib
import os
import resource
import signal
import stat
import threading
import time
from typing import Callable, Iterable, Iterator, List, NamedTuple, Tuple, Union, cast

from ansible_collections.hpcml.torchstack.plugins.module_utils.boundary import open_parent
from ansible_collections.hpcml.torchstack.plugins.module_utils.crew import may_fork, processors
from ansible_collections.hpcml.torchstack.plugins.module_utils.directories import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
    patiently,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.manifest_help import DEEPEST, LONGEST, Helpers, Ticket
from ansible_collections.hpcml.torchstack.plugins.module_utils.manifest_record import (
    DIRECTORY,
    FILE,
    SYMLINK,
    TOP,
    Entry,
    as_text,
    encode_entry,
)

BATCH = 64
"""Entries that a thread is given at a time."""

AHEAD = 64
"""Batches per thread that may be on their way: a large file shall not hold up what comes after it."""

LARGE = 1 << 20
"""Bytes from which on a file is read by a thread of its own: some 600 microseconds of digesting."""

SLOW = 150e-6
"""Seconds per entry, small files read, above which all is left to threads. On a quick file system it is about 40e-6."""

MOST_WORKERS = 8
"""Threads where nobody says how many: a login node belongs to others, too."""

BLOCK = 1 << 18
"""Bytes that are read at a time; they stay in a processor's cache until they are digested."""

TICK = 0.02
"""Seconds in which two changes of a file may bear the same time: kernels stamp by their clock tick, 10 ms at most."""

UNSTABLE, UNREADABLE = "unstable", "unreadable"

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: SYMLINK, stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
}
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EINVAL, errno.ENXIO, errno.ENODEV)


class Found(NamedTuple):
    """What was seen of one name."""

    path: bytes
    entry: Entry | None = None
    line: bytes = b""
    """The entry as a record writes it."""
    uid: int = -1
    trouble: str = ""
    """``unstable``: it changed meanwhile; ``unreadable``: the system did not let it be read; empty if neither."""
    reason: str = ""


_LARGE_FILE = Found(b"")


class _Part(NamedTuple):
    """Entries of one directory, for a thread to look at."""

    directory: Directory
    prefix: bytes
    names: list[tuple[str, bytes]]


class _Level:
    """A directory that is being listed: what is left of it, and how it was before."""

    def __init__(
        self, directory: Directory, prefix: bytes, events: Iterator[tuple[bytes, str, bool]], before: tuple
    ) -> None:
        self.directory = directory
        self.prefix = prefix
        self.events = events
        self.before = before


_Item = Union[Found, _Part, _Level]
"""What a batch is made of: something known already, entries to look at, the end of a directory."""


_Looked = List[Union[Found, "concurrent.futures.Future[Found]"]]
"""What was found in a batch; of large files, what will be."""

_Pending = Union[_Looked, "concurrent.futures.Future[_Looked]", Tuple[List[_Item], Ticket]]
"""A batch that was looked at, or will be by a thread, or by another process."""


class _ChangedError(Exception):
    """An entry is not what it was a moment ago."""


class Walk:
    """One reading of a tree.

    Args:
        content: read the files for their digests; else their size has to do.
        leave_out: says of a path, as a record writes it, whether it is left out with all below it.
        workers: threads that look and read; 0 chooses.
        handles: how many directories may stay open; 0 chooses.
    """

    def __init__(self, content: bool, leave_out: Callable[[str], bool], workers: int, handles: int = 0) -> None:
        self.content = content
        self.leave_out = leave_out
        self.workers = workers or max(2, min(MOST_WORKERS, len(os.sched_getaffinity(0))))
        self.waits = workers > 0
        """Whether the first thread leaves everything to the others."""
        self.alone = workers > 0
        """Whether no other process helps."""
        self._put_off: Callable[[Directory, str, bytes], Found | concurrent.futures.Future[Found]] | None = None
        self._helpers: Helpers | None = None
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.capacity = handles or max(16, min(256, soft // 4))
        self.left_out = 0
        self.hardlinked = 0
        self.uid = -1
        self._local = threading.local()
        self._lock = threading.Lock()
        self._stopped = False

    def over(self, root: str, relative: str) -> Iterator[Found]:
        """Read the tree ``relative`` to the boundary ``root``, both from :func:`boundary.locate`.

        Raises:
            StackError: the tree itself cannot be opened.
        """
        self._path = path = os.path.normpath(os.path.join(root, relative))
        try:
            with open_parent(root, relative) as (parent, name):
                descriptor = _open_quietly(name, OPEN_DIRECTORY, parent)
        except OSError as error:
            raise StackError(
                "Cannot read %s: %s." % (path, error.strerror), "read the tree",
                "Run this as an account that may read it.", path,
            ) from error
        try:
            top = Directory(None, name)
            self.uid = patiently(os.fstat, descriptor).st_uid
            self.handles = Handles(top, descriptor, self.capacity)
            self._trail: list[Directory] = [top]
            try:
                yield from self._in_order(self._batches(top, descriptor))
            finally:
                if self._helpers is not None:
                    self._helpers.dismiss()
                self.handles.close()
        finally:
            os.close(descriptor)

    def _in_order(self, batches: Iterator[list[_Item]]) -> Iterator[Found]:
        """What the entries of the batches are, in their order, looked at by several threads."""
        if self.workers == 1:
            for batch in batches:
                yield from _settled(self._look(batch))
            return
        pending: collections.deque[_Pending] = collections.deque()
        spent, seen = 0.0, 0
        with concurrent.futures.ThreadPoolExecutor(self.workers, initializer=_leave_signals) as pool:
            self._put_off = functools.partial(self._by_thread, pool)
            try:
                for batch in batches:
                    asked = None if self.waits else self._ask(batch)
                    if asked is not None:
                        pending.append((batch, asked))
                    elif self.waits:
                        pending.append(pool.submit(self._look, batch))
                    else:
                        began = time.perf_counter()
                        looked = self._look(batch)
                        pending.append(looked)
                        spent, seen = spent + time.perf_counter() - began, seen + len(looked)
                        self.waits = seen >= BATCH and spent / seen > SLOW
                    if len(pending) > self.workers * AHEAD:
                        yield from self._settled(pending.popleft())
                while pending:
                    yield from self._settled(pending.popleft())
            finally:
                self._stopped = True

    def _settled(self, pending: _Pending) -> Iterator[Found]:
        """What was found in a batch, once all of it is known."""
        if isinstance(pending, tuple):
            looked = self._answered(*pending)
        else:
            looked = pending.result() if isinstance(pending, concurrent.futures.Future) else pending
        return _settled(looked)

    def _ask(self, batch: list[_Item]) -> Ticket | None:
        """Have another process look at a batch; None where none has room for it, or it would not pay."""
        if self.alone:
            return None
        if self._helpers is None:
            if sum(len(part.names) for part in batch if isinstance(part, _Part)) < BATCH // 2:
                return None
            others = processors() - 1
            self.alone = not others or not may_fork()
            if self.alone:
                return None
            self._helpers = Helpers(others, self._path, self._answer)
        parts = [part for part in batch if isinstance(part, _Part)]
        if not parts or sum(len(part.prefix) for part in parts) > LONGEST or parts[-1].directory.depth > DEEPEST:
            return None
        return self._helpers.ask([(part.directory.trail(), part.prefix, part.names) for part in parts])

    def _answer(self, question: list) -> tuple[list, int]:
        """In another process: what the names of some directories are, as plain data; None for a large file."""
        self._put_off, self.hardlinked = _not_here, 0
        answers: list = []
        for trail, prefix, names in question:
            directory = self._follow(trail)
            try:
                with self.handles.use(directory) as held:
                    looked = [self._entry(held, name, prefix + key, directory) for name, key in names]
            except OSError as error:
                looked = [_trouble(prefix + key, error) for name, key in names]
            for found in looked:
                known = cast(Found, found)
                answers.append(None if known is _LARGE_FILE else (known.entry and known.entry[1:], *known[2:]))
        return answers, self.hardlinked

    def _follow(self, trail: list) -> Directory:
        """In another process: the directory that a trail leads to, with those on the way that the last one had, too."""
        way = self._trail
        for level, (name, identity) in enumerate(trail, 1):
            if level < len(way) and (way[level].name, way[level].identity) == (name, identity):
                continue
            del way[level:]
            way.append(Directory(way[-1], name))
            way[-1].identity = identity
        return way[len(trail)]

    def _answered(self, batch: list[_Item], ticket: Ticket) -> _Looked:
        """What another process says of a batch."""
        answers, hardlinked = cast(Helpers, self._helpers).wait(ticket)
        with self._lock:
            self.hardlinked += hardlinked
        coming = iter(answers)
        found: _Looked = []
        for part in batch:
            if isinstance(part, Found):
                found.append(part)
            elif isinstance(part, _Level):
                found.extend(self._leave(part))
            else:
                for name, key in part.names:
                    answer, path = next(coming), part.prefix + key
                    if answer is None and self._put_off is not None:
                        found.append(self._put_off(part.directory, name, path))
                    else:
                        found.append(Found(path, answer[0] and Entry(path, *answer[0]), *answer[1:]))
                self.handles.release(part.directory)
        return found

    def _by_thread(
        self, pool: concurrent.futures.ThreadPoolExecutor, directory: Directory, name: str, path: bytes
    ) -> concurrent.futures.Future[Found]:
        """Leave a large file to a thread."""
        self.handles.expect(directory)
        return pool.submit(self._later, directory, name, path)

    def _batches(self, top: Directory, descriptor: int) -> Iterator[list[_Item]]:
        """All entries in order, some at a time.

        A directory's own entry stands where its name sorts, what it holds where its name with a slash does: ``a``,
        ``a-b``, ``a/c``.
        """
        batch: list[_Item] = [_found(TOP, patiently(os.fstat, descriptor))]
        size = 0
        stack = [self._list(top, b"", batch)]
        while stack:
            level = stack[-1]
            if level is None:
                stack.pop()
                continue
            part: _Part | None = None
            below = None
            for key, name, inside in level.events:
                if inside:
                    below = (key, name)
                    break
                if part is None:
                    part = _Part(level.directory, level.prefix, [])
                    self.handles.expect(level.directory)
                    batch.append(part)
                part.names.append((name, key))
                size += 1
                if size >= BATCH:
                    yield batch
                    batch, size, part = [], 0, None
            if below is not None:
                stack.append(self._enter(level, below[1], level.prefix + below[0], batch))
            else:
                batch.append(level)
                stack.pop()
            size += 1  # directories count, too, or a tree of empty ones would be one batch
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        yield batch

    def _enter(self, above: _Level, name: str, prefix: bytes, batch: list[_Item]) -> _Level | None:
        """Open a directory below another one and list it; ``prefix`` is its path with a slash."""
        directory = Directory(above.directory, name)
        try:
            with self.handles.use(above.directory) as held:
                descriptor = _open_quietly(name, OPEN_DIRECTORY, held)
        except OSError as error:
            batch.append(_trouble(prefix[:-1], error))
            return None
        found = patiently(os.fstat, descriptor)
        directory.identity = (found.st_dev, found.st_ino)
        return self._list(directory, prefix, batch, descriptor)

    def _list(
        self, directory: Directory, prefix: bytes, batch: list[_Item], descriptor: int = -1
    ) -> _Level | None:
        """List an open directory."""
        self.handles.keep(directory, descriptor)
        try:
            with self.handles.use(directory) as held:
                before = _times(patiently(os.fstat, held))
                events = patiently(self._events, held, prefix)
        except OSError as error:
            self.handles.release(directory)
            batch.append(_trouble(prefix[:-1] or TOP, error))
            return None
        self.left_out += events.pop()
        events.sort()
        return _Level(directory, prefix, iter(events), before)

    def _events(self, descriptor: int, prefix: bytes) -> list:
        """What is in an open directory; the last item says how many entries were left out."""
        events: list = []
        left_out = 0
        with os.scandir(descriptor) as entries:
            for entry in entries:
                key = os.fsencode(entry.name)
                if self.leave_out(as_text(prefix + key)):
                    left_out += 1
                    continue
                events.append((key, entry.name, False))
                if entry.is_dir(follow_symlinks=False):
                    events.append((key + b"/", entry.name, True))
        events.append(left_out)
        return events

    def _leave(self, level: _Level) -> Iterator[Found]:
        """All of a directory was looked at: is it still the one that was listed?"""
        path = level.prefix[:-1] or TOP
        try:
            with self.handles.use(level.directory) as held:
                if _times(patiently(os.fstat, held)) != level.before:
                    yield Found(path, trouble=UNSTABLE, reason="it changed while it was read")
        except OSError as error:
            yield _trouble(path, error)
        self.handles.release(level.directory)

    def _look(self, batch: Iterable[_Item]) -> _Looked:
        """What the entries of a batch are, or will turn out to be."""
        found: _Looked = []
        for part in batch:
            if self._stopped:
                break
            if isinstance(part, Found):
                found.append(part)
                continue
            if isinstance(part, _Level):
                found.extend(self._leave(part))
                continue
            try:
                with self.handles.use(part.directory) as held:
                    found.extend(self._entry(held, name, part.prefix + key, part.directory) for name, key in part.names)
            except OSError as error:
                found.extend(_trouble(part.prefix + key, error) for name, key in part.names)
            self.handles.release(part.directory)
        return found

    def _later(self, directory: Directory, name: str, path: bytes) -> Found:
        """What one name is, of a directory that was expected to be needed for it."""
        try:
            with self.handles.use(directory) as held:
                found = self._entry(held, name, path)
        except OSError as error:
            found = _trouble(path, error)
        self.handles.release(directory)
        return cast(Found, found)

    def _entry(
        self, above: int, name: str, path: bytes, directory: Directory | None = None
    ) -> Found | concurrent.futures.Future[Found]:
        """What one name of an open directory is; its trouble where it has any.

        A large file of a ``directory`` is left to a thread of its own, if there are threads.
        """
        try:
            seen = patiently(os.stat, name, dir_fd=above, follow_symlinks=False)
        except OSError as error:
            return _trouble(path, error)
        sha256 = target = None
        try:
            if stat.S_ISREG(seen.st_mode):
                if seen.st_size >= LARGE and self.content and directory is not None and self._put_off is not None:
                    return self._put_off(directory, name, path)
                if seen.st_nlink > 1:
                    with self._lock:
                        self.hardlinked += 1
                if self.content:
                    sha256 = self._read(above, name, seen)
            elif stat.S_ISLNK(seen.st_mode):
                target = os.fsencode(patiently(os.readlink, name, dir_fd=above))
        except OSError as error:
            trouble = _trouble(path, error)
            if trouble.trouble == UNSTABLE:
                return trouble
            return _found(path, seen)._replace(trouble=trouble.trouble, reason=trouble.reason)
        except _ChangedError as error:
            return Found(path, trouble=UNSTABLE, reason=str(error))
        return _found(path, seen, sha256, target)

    def _read(self, above: int, name: str, seen: os.stat_result) -> str:
        """The digest of a file that is the same before, meanwhile and after.

        Raises:
            _ChangedError: it is not.
            OSError: it cannot be read.
        """
        descriptor = _open_quietly(name, _OPEN_FILE, above)
        try:
            if abs(time.time() - seen.st_ctime) < TICK:
                time.sleep(TICK)  # from here on a change shows in the times
            if _times(patiently(os.fstat, descriptor)) != _times(seen):
                raise _ChangedError("it changed while it was opened")
            digest, total = hashlib.sha256(), 0
            view = self._view()
            while not self._stopped and total <= seen.st_size:
                count = os.readv(descriptor, [view])
                if not count:
                    break
                digest.update(view[:count])
                total += count
                if count < BLOCK and total == seen.st_size:
                    break
            if total != seen.st_size or _times(patiently(os.fstat, descriptor)) != _times(seen):
                raise _ChangedError("it changed while it was read")
            return digest.hexdigest()
        finally:
            os.close(descriptor)

    def _view(self) -> memoryview:
        """This thread's buffer."""
        if not hasattr(self._local, "view"):
            self._local.view = memoryview(bytearray(BLOCK))
        return self._local.view


def _settled(looked: _Looked) -> Iterator[Found]:
    for found in looked:
        yield found.result() if isinstance(found, concurrent.futures.Future) else found


def _not_here(_directory: Directory, _name: str, _path: bytes) -> Found:
    """A large file is for the threads of the process that asked."""
    return _LARGE_FILE


def _leave_signals() -> None:
    """Leave signals to the main thread: a thread lives a little longer than it works, and would let through what the
    main thread holds back while it writes the record."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _open_quietly(name: str, flags: int, above: int) -> int:
    """Open without leaving a trace in the access time, where the system lets this account do that (open(2))."""
    try:
        return os.open(name, flags | os.O_NOATIME, dir_fd=above)
    except PermissionError:
        return os.open(name, flags, dir_fd=above)


def _times(found: os.stat_result) -> tuple[int, ...]:
    """What is another one when a file or a directory was changed or replaced."""
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _found(path: bytes, seen: os.stat_result, sha256: str | None = None, target: bytes | None = None) -> Found:
    kind = _KINDS[stat.S_IFMT(seen.st_mode)]
    entry = Entry(
        path, kind, None if kind == SYMLINK else stat.S_IMODE(seen.st_mode), seen.st_size if kind == FILE else None,
        sha256, target,
    )
    return Found(path, entry, encode_entry(entry), seen.st_uid)


def _trouble(path: bytes, error: OSError) -> Found:
    trouble = UNSTABLE if error.errno in _CHANGED else UNREADABLE
    return Found(path, trouble=trouble, reason=error.strerror or str(error))

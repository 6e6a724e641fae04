# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A tree is read for its record: every entry, in order of its path's bytes, without following a link.

The first thread lists directories; entries are looked at, and files read, by it or by others; what is found comes back
in the order of the listing. So neither the file system's order nor the number of threads shows, and no more than some
ten thousand entries are in memory at a time.

Other threads pay where each call waits for a server, and for large files, as reading and digesting them frees the
interpreter; for small files on a quick file system they only pass the interpreter's lock around, and further processes
help (see :mod:`manifest_help`). So, unless a number of threads is given, the first thread looks itself, next to these
processes, for as long as that is quick; large files it leaves to whoever has nothing to do.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import os
import resource
import signal
import sys
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Union

from ..core.errors import StackError
from .boundary import open_parent
from .dir_handles import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
    patiently,
)
from .manifest_entries import (
    Found,
    Gathering,
    Looker,
    Part,
    open_quietly,
    times,
    trouble_of,
)
from .manifest_exclude import LeftOut
from .manifest_file import TOP, Run, as_text
from .manifest_helpers import (
    DEEPEST,
    LONGEST,
    QUESTIONS,
    QUICK_QUESTIONS,
    Helpers,
    Ticket,
)
from .process_pool import may_fork, processors

BATCH = 128
"""Entries that somebody is given at a time."""

AHEAD = 32
"""Batches per thread that may be on their way: a large file shall not hold up what comes after it."""

SLOW = 150e-6
"""Seconds per entry, small files read, above which all is left to threads, if they were spent waiting. On a quick file
system it is about 30e-6."""

OFTEN = 0.5
"""Times per entry that the system had the first thread wait for something; where only other programs have the
processors, it never does."""

MOST_WORKERS = 8
"""Threads where nobody says how many: a login node belongs to others, too."""

_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_SLASH = ord("/")
_NONE: frozenset[bytes] = frozenset()
_Batch = List[Union[Found, Part]]
_Pieces = List[Any]
"""What was found in a batch, or will be: :class:`Run`, :class:`Found`, and futures and tickets for more of them."""


class _Level(NamedTuple):
    """A directory that is being listed."""

    directory: Directory
    prefix: bytes
    keys: Iterator[bytes]
    """What is left of it: names, and once more with a slash where what a directory holds has its place."""
    others: frozenset[bytes]
    """Names that are no regular files."""
    before: tuple[int, ...]


class Walk:
    """One reading of a tree.

    Args:
        content: read the files for their digests; else their size has to do.
        leave_out: what is left out with all below it.
        workers: threads that look and read; 0 chooses.
        handles: how many directories may stay open; 0 chooses.
        since: the time, in nanoseconds, after which an inode that was changed counts as touched; 0 for none.
    """

    def __init__(
        self, content: bool, leave_out: LeftOut, workers: int, handles: int = 0, since: int = 0
    ) -> None:
        self.leave_out = leave_out
        self.since = since
        self.workers = workers or max(2, min(MOST_WORKERS, len(os.sched_getaffinity(0))))
        self.waits = workers > 0
        """Whether the first thread leaves everything to the others."""
        self.alone = workers > 0
        """Whether no other process helps."""
        self._looker = Looker(content)
        self._helpers: Helpers | None = None
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.capacity = handles or max(16, min(256, soft // 4))
        self.left_out = 0
        self.hardlinked = 0

    def over(self, root: str, relative: str) -> Iterator[Run | Found]:
        """Read the tree ``relative`` to the boundary ``root``, both from :func:`boundary.locate`.

        Raises:
            StackError: the tree itself cannot be opened.
        """
        self._path = path = os.path.normpath(os.path.join(root, relative))
        try:
            with open_parent(root, relative) as (parent, name):
                descriptor = open_quietly(name, OPEN_DIRECTORY, parent)
        except OSError as error:
            raise StackError(
                "Cannot read %s: %s." % (path, error.strerror), "read the tree",
                "Run this as an account that may read it.", path,
            ) from error
        try:
            seen = patiently(os.fstat, descriptor)
            self._owner = seen.st_uid
            gathering = Gathering(self._owner, self.since)
            gathering.entry(TOP, seen)
            yield from gathering.finish()
            top = Directory(None, name)
            self.handles = Handles(top, descriptor, self.capacity)
            self._trail: list[Directory] = [top]
            try:
                for piece in self._in_order(self._batches(top, descriptor, times(seen))):
                    if isinstance(piece, Run):
                        self.hardlinked += piece.hardlinked
                    yield piece
            finally:
                if self._helpers is not None:
                    self._helpers.dismiss()
                self.handles.close()
        finally:
            os.close(descriptor)

    def _in_order(self, batches: Iterator[_Batch]) -> Iterator[Run | Found]:
        """What the entries of the batches are, in their order, looked at by several threads or processes."""
        if self.workers == 1:
            for batch in batches:
                yield from self._look(batch)
            return
        pending: collections.deque[_Pieces] = collections.deque()
        spent, paused, seen = 0.0, 0, 0
        with concurrent.futures.ThreadPoolExecutor(self.workers, initializer=_leave_signals) as pool:
            put_off = functools.partial(self._put_off, pool)
            try:
                for batch in batches:
                    ticket = self._ask(batch)
                    if ticket is not None:
                        pending.append([ticket])
                    elif self.waits:
                        pending.append([pool.submit(self._look, batch, put_off)])
                    else:
                        began, before = time.perf_counter(), _pauses()
                        pending.append(self._look(batch, put_off))
                        spent, paused = spent + time.perf_counter() - began, paused + _pauses() - before
                        seen += sum(len(part.names) for part in batch if isinstance(part, Part))
                        self.waits = seen >= BATCH and spent / seen > SLOW and paused / seen > OFTEN
                    if len(pending) > self.workers * AHEAD:
                        yield from _settled(pending.popleft())
                while pending:
                    yield from _settled(pending.popleft())
            finally:
                self._looker.stopped = True

    def _ask(self, batch: _Batch) -> Ticket | None:
        """Have another process look at a batch; None where none has room for it, or it would not pay."""
        if self.alone or self.waits:
            return None
        parts = [part for part in batch if isinstance(part, Part)]
        if self._helpers is None:
            if sum(len(part.names) for part in parts) < BATCH // 4:
                return None
            others = processors() - 1
            self.alone = not others or not may_fork()
            if self.alone:
                return None
            questions = QUESTIONS if self._looker.content else QUICK_QUESTIONS
            self._helpers = Helpers(others, self._path, self._answer, questions)
        paths = sum(len(item.prefix if isinstance(item, Part) else item.path) for item in batch)
        if paths > LONGEST or any(part.directory.depth > DEEPEST for part in parts):
            return None
        ticket = self._helpers.ask([
            (part.directory.trail(), part.prefix, part.names, part.others, part.before) if isinstance(part, Part)
            else tuple(part) for part in batch
        ])
        if ticket is not None:
            for part in parts:
                self.handles.release(part.directory)
        return ticket

    def _answer(self, question: list) -> list[tuple[bool, tuple]]:
        """In another process: what the entries of a batch are, as plain data."""
        gathering = Gathering(self._owner, self.since)
        for asked in question:
            if isinstance(asked[0], bytes):
                gathering.put(Found(*asked))
            else:
                self._look_at(Part(self._follow(asked[0]), *asked[1:]), gathering)
        return [(isinstance(piece, Run), tuple(piece)) for piece in gathering.finish()]

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

    def _put_off(self, pool: concurrent.futures.ThreadPoolExecutor, part: Part, name: bytes) -> Any:
        """Leave a large file to another process, or to a thread."""
        file = part._replace(names=[name], others=_NONE, before=None)
        self.handles.expect(part.directory)
        return self._ask([file]) or pool.submit(self._look, [file])

    def _batches(self, top: Directory, descriptor: int, before: tuple[int, ...]) -> Iterator[_Batch]:
        """All entries in order, some at a time.

        A directory's own entry stands where its name sorts, what it holds where its name with a slash does: ``a``,
        ``a-b``, ``a/c``.
        """
        batch: _Batch = []
        size = 0
        stack: list[_Level] = []
        self._list(top, b"", descriptor, before, stack, batch)
        while stack:
            level = stack[-1]
            names: list[bytes] = []
            below, finished = b"", False
            for key in level.keys:
                if key[-1] == _SLASH:
                    below = key
                    break
                names.append(key)
                if size + len(names) >= BATCH:
                    break
            else:
                finished = True
                stack.pop()
            if names or finished:
                if not finished:
                    self.handles.expect(level.directory)
                others = level.others.intersection(names) if level.others else _NONE
                batch.append(Part(level.directory, level.prefix, names, others, level.before if finished else None))
            if below:
                self._enter(level, below, stack, batch)
            size += len(names) + bool(below or finished)  # or a tree of empty directories would be one batch
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        yield batch

    def _enter(self, above: _Level, key: bytes, stack: list[_Level], batch: _Batch) -> None:
        """Open a directory below another one and list it."""
        prefix, name = above.prefix + key, os.fsdecode(key[:-1])
        directory = Directory(above.directory, name)
        try:
            with self.handles.use(above.directory) as held:
                descriptor = open_quietly(name, OPEN_DIRECTORY, held)
            try:
                seen = patiently(os.fstat, descriptor)
            except OSError:
                os.close(descriptor)
                raise
        except OSError as error:
            batch.append(trouble_of(prefix[:-1], error))
            return
        directory.identity = (seen.st_dev, seen.st_ino)
        self._list(directory, prefix, descriptor, times(seen), stack, batch)

    def _list(
        self, directory: Directory, prefix: bytes, descriptor: int, before: tuple[int, ...], stack: list[_Level],
        batch: _Batch,
    ) -> None:
        """List an open directory, whose descriptor is kept from now on."""
        try:
            keys, others, left_out = patiently(self._keys, descriptor, prefix)
        except OSError as error:
            if prefix:
                os.close(descriptor)
            batch.append(trouble_of(prefix[:-1] or TOP, error))
            return
        self.handles.keep(directory, descriptor)
        self.left_out += left_out
        keys.sort()
        stack.append(_Level(directory, prefix, iter(keys), others, before))

    def _keys(self, descriptor: int, prefix: bytes) -> tuple[list[bytes], frozenset[bytes], int]:
        """What is in an open directory: keys and others of a level, and how many entries were left out."""
        keys: list[bytes] = []
        others: list[bytes] = []
        left_out = 0
        ask = self.leave_out.within(prefix)
        with os.scandir(descriptor) as entries:
            for entry in entries:
                key = entry.name.encode(*_ENCODING)
                if ask and self.leave_out(as_text(prefix + key)):
                    left_out += 1
                    continue
                keys.append(key)
                if not entry.is_file(follow_symlinks=False):
                    others.append(key)
                    if entry.is_dir(follow_symlinks=False):
                        keys.append(key + b"/")
        return keys, frozenset(others), left_out

    def _look(self, batch: _Batch, put_off: Callable[[Part, bytes], Any] | None = None) -> _Pieces:
        """What the entries of a batch are, or will turn out to be."""
        gathering = Gathering(self._owner, self.since)
        for part in batch:
            if isinstance(part, Found):
                gathering.put(part)
            elif not self._looker.stopped:
                self._look_at(part, gathering, put_off)
                self.handles.release(part.directory)
        return gathering.finish()

    def _look_at(
        self, part: Part, gathering: Gathering, put_off: Callable[[Part, bytes], Any] | None = None
    ) -> None:
        try:
            with self.handles.use(part.directory) as held:
                self._looker.look(held, part, gathering, put_off)
        except OSError as error:
            for name in part.names:
                gathering.put(trouble_of(part.prefix + name, error))
            if part.before is not None:
                gathering.put(trouble_of(part.prefix[:-1] or TOP, error))


def _settled(pieces: _Pieces) -> Iterator[Run | Found]:
    """What was found in a batch, once all of it is known."""
    for piece in pieces:
        if isinstance(piece, Ticket):
            for is_run, fields in piece.result():
                yield Run(*fields) if is_run else Found(*fields)
        elif isinstance(piece, concurrent.futures.Future):
            yield from _settled(piece.result())
        else:
            yield piece


def _pauses() -> int:
    """How many times this thread gave its processor away because it had to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _leave_signals() -> None:
    """Leave signals to the main thread: a thread lives a little longer than it works, and would let through what the
    main thread holds back while it writes the record."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

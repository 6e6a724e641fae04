# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read a tree for its manifest: every entry, in order of its path's bytes, without following a link.

The first thread lists directories; entries are looked at, and files read, by it or by others; what is found comes back
in the order of the listing, and no more than some ten thousand entries are in memory at a time.

Other threads pay where each call waits for a server, and for large files, as reading and digesting them frees the
interpreter; for small files on a quick file system they only pass the interpreter's lock around, and further processes
help (see :mod:`call_pool`). So, unless a number of threads is given, the first thread looks itself, next to these
processes, for as long as that is quick; large files it leaves to whoever has nothing to do.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import os
import signal
import time
from typing import Any, Callable, Iterator, List

from ..core.errors import StackError, explained
from .boundary import open_parent
from .call_pool import Call, CallPool
from .dir_handles import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
    default_capacity,
    retry_interrupted,
)
from .extended_attributes import read_attributes
from .manifest_collector import EntryCollector, Found, describe_error
from .manifest_entry import TOP, Run
from .manifest_exclude import Exclusion
from .manifest_listing import BATCH_SIZE, Batch, DirectoryLister
from .manifest_reader import EntryReader, Part, open_quietly, times
from .process_pool import count_waits, may_fork, processors

MAX_BATCHES_AHEAD = 32
"""Batches per thread that may be on their way: a large file shall not hold up what comes after it."""

SLOW_ENTRY = 150e-6
"""Seconds per small file above which all is left to threads, if spent waiting; quick file systems take 30e-6."""

SLOW_WAITS = 0.5
"""Times per entry that the first thread had to wait for something else than processors that others have."""

MAX_WORKERS = 8
"""Threads where nobody says how many: a login node belongs to others, too."""

WAITING_CALLS = 2
"""Batches that there are for each copy at a time: one to work on, one that waits."""

WAITING_QUICK_CALLS = 4
"""The same where answers take so little time that a copy would wait for the next batch."""

MAX_SHARED_DEPTH = 100
"""Levels below which no copy is asked: the way there would cost more than the answer."""

_NONE: frozenset[bytes] = frozenset()
_Pieces = List[Any]
"""What was found in a batch, or will be: :class:`Run`, :class:`Found`, and futures and calls for more of them."""


class Walk:
    """Read a tree once, files for their digests with ``content``. For threads and open directories 0 chooses.

    Inodes that were changed after ``since``, in nanoseconds, count as touched; 0 for none. With ``attributes`` files
    and directories have theirs.
    """

    def __init__(
        self, content: bool, exclusion: Exclusion, workers: int, handles: int = 0, since: int = 0,
        attributes: bool = False,
    ) -> None:
        self.attributes = attributes
        self.exclusion = exclusion
        self.since = since
        self.workers = workers or max(2, min(MAX_WORKERS, len(os.sched_getaffinity(0))))
        self.waits = workers > 0
        """Whether the first thread leaves everything to the others."""
        self.alone = workers > 0
        """Whether no other process helps."""
        self._reader = EntryReader(content, attributes)
        self._copies: CallPool | None = None
        self.capacity = handles or default_capacity()
        self.left_out = self.hardlinked = 0

    def over(self, root: str, relative: str) -> Iterator[Run | Found]:
        """Read the tree that :func:`boundary.locate` has found below ``root``; StackError: it cannot be opened."""
        self._path = path = os.path.normpath(os.path.join(root, relative))
        remedy = "Run this as an account that may read it."
        cannot = explained("Cannot read %s" % path, "read the tree", remedy, path)
        with cannot, open_parent(root, relative) as (parent, name):
            descriptor = open_quietly(name, OPEN_DIRECTORY, parent)
        try:
            seen = retry_interrupted(os.fstat, descriptor)
            self._owner = seen.st_uid
            collector = EntryCollector(self._owner, self.since)
            with explained("Cannot read %s" % path, "read the tree", remedy, path):
                collector.entry(TOP, seen, attributes=read_attributes(descriptor) if self.attributes else None)
            yield from collector.finish()
            top = Directory(None, name)
            self.handles = Handles(top, descriptor, self.capacity)
            self._trail: list[Directory] = [top]
            lister = DirectoryLister(self.handles, self.exclusion)
            try:
                for piece in self._in_order(lister.batches(top, descriptor, times(seen))):
                    if isinstance(piece, Run):
                        self.hardlinked += piece.hardlinked
                    yield piece
            finally:
                self.left_out = lister.left_out
                if self._copies is not None:
                    self._copies.shutdown()
                self.handles.close()
        finally:
            os.close(descriptor)

    def _in_order(self, batches: Iterator[Batch]) -> Iterator[Run | Found]:
        """Yield the entries of the batches in their order, read by several threads or processes."""
        if self.workers == 1:
            for batch in batches:
                yield from self._read_batch(batch)
            return
        pending: collections.deque[_Pieces] = collections.deque()
        spent, waits, seen = 0.0, 0, 0
        with concurrent.futures.ThreadPoolExecutor(self.workers, initializer=_leave_signals) as pool:
            defer = functools.partial(self._defer_file, pool)
            try:
                for batch in batches:
                    call = self._submit(batch)
                    if call is not None:
                        pending.append([call])
                    elif self.waits:
                        pending.append([pool.submit(self._read_batch, batch, defer)])
                    else:
                        began, before = time.perf_counter(), count_waits()
                        pending.append(self._read_batch(batch, defer))
                        spent, waits = spent + time.perf_counter() - began, waits + count_waits() - before
                        seen += sum(len(part.names) for part in batch if isinstance(part, Part))
                        self.waits = seen >= BATCH_SIZE and spent / seen > SLOW_ENTRY and waits / seen > SLOW_WAITS
                    if len(pending) > self.workers * MAX_BATCHES_AHEAD:
                        yield from _resolve(pending.popleft())
                while pending:
                    yield from _resolve(pending.popleft())
            finally:
                self._reader.stopped = True

    def _submit(self, batch: Batch) -> Call | None:
        """Have another process read a batch; None where none has room for it, or it would not pay."""
        if self.alone or self.waits:
            return None
        parts = [part for part in batch if isinstance(part, Part)]
        if self._copies is None:
            if sum(len(part.names) for part in parts) < BATCH_SIZE // 4:
                return None
            others = processors() - 1
            self.alone = not others or not may_fork()
            if self.alone:
                return None
            waiting = WAITING_CALLS if self._reader.content else WAITING_QUICK_CALLS
            self._copies = CallPool(others, self._answer_call, waiting, _copy_killed_error(self._path))
        if any(part.directory.depth > MAX_SHARED_DEPTH for part in parts):
            return None
        call = self._copies.submit([
            (part.directory.trail(), part.prefix, part.names, part.others, part.before) if isinstance(part, Part)
            else tuple(part) for part in batch
        ])
        if call is not None:
            for part in parts:
                self.handles.release(part.directory)
        return call

    def _answer_call(self, question: list) -> list[tuple[bool, tuple]]:
        """Read a batch in another process, and return its entries as plain data."""
        collector = EntryCollector(self._owner, self.since)
        for packed in question:
            if isinstance(packed[0], bytes):
                collector.put(Found(*packed))
            else:
                self._read_part(Part(self._follow_trail(packed[0]), *packed[1:]), collector)
        return [(isinstance(piece, Run), tuple(piece)) for piece in collector.finish()]

    def _follow_trail(self, trail: list) -> Directory:
        """Find, in another process, the directory that a trail leads to; those that the last one had, too, stay."""
        way = self._trail
        for level, (name, identity) in enumerate(trail, 1):
            if level < len(way) and (way[level].name, way[level].identity) == (name, identity):
                continue
            del way[level:]
            way.append(Directory(way[-1], name))
            way[-1].identity = identity
        return way[len(trail)]

    def _defer_file(self, pool: concurrent.futures.ThreadPoolExecutor, part: Part, name: bytes) -> Any:
        """Leave a large file to another process, or to a thread."""
        file = part._replace(names=[name], others=_NONE, before=None)
        self.handles.expect(part.directory)
        return self._submit([file]) or pool.submit(self._read_batch, [file])

    def _read_batch(self, batch: Batch, defer: Callable[[Part, bytes], Any] | None = None) -> _Pieces:
        """Read a batch; of what is left to others, what it will turn out to be."""
        collector = EntryCollector(self._owner, self.since)
        for part in batch:
            if isinstance(part, Found):
                collector.put(part)
            elif not self._reader.stopped:
                self._read_part(part, collector, defer)
                self.handles.release(part.directory)
        return collector.finish()

    def _read_part(
        self, part: Part, collector: EntryCollector, defer: Callable[[Part, bytes], Any] | None = None
    ) -> None:
        try:
            with self.handles.use(part.directory) as held:
                self._reader.read_part(held, part, collector, defer)
        except OSError as error:
            for name in part.names:
                collector.put(describe_error(part.prefix + name, error))
            if part.before is not None:
                collector.put(describe_error(part.prefix[:-1] or TOP, error))


def _resolve(pieces: _Pieces) -> Iterator[Run | Found]:
    """Yield what was found in a batch, once all of it is known."""
    for piece in pieces:
        if isinstance(piece, Call):
            for is_run, fields in piece.result():
                yield Run(*fields) if is_run else Found(*fields)
        elif isinstance(piece, concurrent.futures.Future):
            yield from _resolve(piece.result())
        else:
            yield piece


def _copy_killed_error(path: str) -> StackError:
    """Make the error for a copy that was killed."""
    return StackError(
        "One of the processes that read %s was killed." % path, "read the tree",
        "See who or what killed it, the memory limit for instance, and run this again.", path,
    )


def _leave_signals() -> None:
    """Leave signals to the main thread, which may hold some back while it writes the record and this thread ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Share the work of a pass: one thread, many where calls wait for a server, or some processes."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import cast

from ..core.errors import StackError
from .counters import Counters
from .dir_handles import Directory, Handles
from .process_pool import ProcessPool, count_waits, may_fork, processors
from .work_queue import Chunk, WorkQueue

SLOW_ENTRY = 60e-6
"""Seconds per entry above which more threads pay: two quick system calls take 5e-6, one to a server 1e-4 and more."""

MAX_THREADS = 16
"""Threads that are used once calls turn out to be slow."""

TIMING_WINDOW = 4096
"""Entries after which the time per entry is taken anew: the rest of a tree may be slower than what was cached."""

MIN_SAMPLE = 16
"""Entries that show what calls cost."""

MIN_ENTRIES_TO_FORK = 1500
"""Entries after which other processes join in where calls are quick: some ten milliseconds, and forks cost two."""

MAX_SHARED_DEPTH = 100
"""Levels below which directories stay with the process that has found them: others would have to find the way first."""

RUN_AGAIN = ", then run it again: what is done stays done."

_FAILED_ELSEWHERE = StackError("Another process of the walk has failed.", "apply", "Correct that" + RUN_AGAIN)


class Workers:
    """Share directories and files between threads and processes; a subclass works them off."""

    def __init__(self, workers: int, limit: int) -> None:
        self.workers = workers
        self.limit = limit
        self.work = WorkQueue()
        self.threads: list[threading.Thread] = []
        self.all_counters: list[Counters] = []
        self.started = workers > 0
        self.extra_threads = max(0, workers - 1)
        self.forked = False
        self.deferred: list | None = None
        self.pool: ProcessPool | None = None
        self.is_complete = True
        """Whether the counters have all that was done."""
        self.top: Directory
        self.handles: Handles

    def _directory(self, directory: Directory, counters: Counters) -> None:
        """Do a directory, and turn what it holds into work."""
        raise NotImplementedError

    def _chunk(self, chunk: Chunk, counters: Counters) -> None:
        """Do some files."""
        raise NotImplementedError

    def _join(self) -> None:
        for thread in self.threads:
            thread.join()

    def _work_until_done(self, counters: Counters) -> None:
        """Work off what there is, then what other processes hand over, until all is done."""
        self._start_threads(self.extra_threads)
        self._run_thread(counters)
        while self.pool is not None:
            if self.work.failure is not None:
                self.pool.give_up()
                return
            packet = self.pool.take()
            if packet is None:
                return
            self._accept(packet)
            self._restart_timing(counters)
            self._start_threads(self.extra_threads)
            self._run_thread(counters)

    def _start_processes(self) -> None:
        """Have other processes join in."""
        size = processors()
        if size > 1 and may_fork():
            self.pool = ProcessPool(size)
            with contextlib.suppress(OSError):
                self.pool.start(self._run_copy)

    def _run_copy(self) -> object:
        """Work as another process; returns counters, hard links and failure for the first one."""
        self.handles.close()
        self.work, self.all_counters, self.threads, self.deferred = WorkQueue(), [], [], []
        try:
            self._work_until_done(self._new_counters())
        except Exception as error:  # the first process has to say what happened
            self.work.fail(error)
        failure = self.work.failure
        if failure is not None and self.pool is not None:
            self.pool.give_up()
        reported: tuple[str, ...] | None = None
        if isinstance(failure, StackError):
            reported = (failure.message, failure.failed_step, failure.remedy, failure.path)
        elif failure is not None:
            reported = ("Cannot go on: %s." % failure, "apply", "Correct that" + RUN_AGAIN)
        return self.all_counters, self.deferred, reported if failure is not _FAILED_ELSEWHERE else None

    def _merge_results(self, counters: Counters) -> None:
        """Add what the other processes have done, and do the files of several names that they deferred.

        Such a file is counted once, so one process has to know them all.
        """
        pool, self.pool = self.pool, None
        if pool is None:
            return
        try:
            deferred: list = []
            for all_counters, names, failure in pool.results():
                self.all_counters += all_counters
                deferred += names
                if failure and self.work.failure in (None, _FAILED_ELSEWHERE):
                    self.work.failure = StackError(*failure)
        finally:
            pool.shutdown()
        if self.work.failure is None:
            for packet in deferred:
                self._accept(packet)
            self._start_threads(self.extra_threads)
            self._run_thread(counters)

    def _hand_over(self) -> None:
        """Hand over what lies deepest in the pile, so most, to a process that waits."""
        pool = self.pool
        if pool is None or not (pool.has_idle_worker or pool.given_up):
            return
        if pool.given_up:
            self.work.fail(_FAILED_ELSEWHERE)
            return
        with self.work.changed:
            item = self.work.items[0] if len(self.work.items) > 1 else None
            if isinstance(item, Chunk) and item.directory.depth < MAX_SHARED_DEPTH:
                handed_over = pool.put((item.directory.trail(), item.names))
                holder: Directory | None = item.directory
            elif isinstance(item, Directory) and item.depth < MAX_SHARED_DEPTH:
                handed_over = pool.put((item.trail(), None))
                holder = item.parent
            else:
                return
            if not handed_over:
                return
            self.work.items.popleft()
            self.work.unfinished -= 1
        if holder is not None:
            self.handles.release(holder)

    def _accept(self, packet: object) -> None:
        trail, names = cast("tuple[list, list[str] | None]", packet)
        directory = self.top
        for name, identity in trail:
            directory = Directory(directory, name)
            directory.identity = identity
        if names is None:
            if directory.parent is not None:
                self.handles.expect(directory.parent)
            self.work.put(directory)
        else:
            self.handles.expect(directory)
            self.work.put(Chunk(directory, names))

    def _new_counters(self) -> Counters:
        self.all_counters.append(Counters(self.limit))
        return self.all_counters[-1]

    def _start_threads(self, count: int) -> None:
        for _number in range(count):
            self.threads.append(threading.Thread(target=self._run_thread, args=(self._new_counters(),), daemon=True))
            self.threads[-1].start()

    def _run_thread(self, counters: Counters) -> None:
        """Work off items until there are none."""
        try:
            for item in iter(self.work.get, None):
                if isinstance(item, Chunk):
                    self._chunk(item, counters)
                elif isinstance(item, Directory):
                    self._directory(item, counters)
                self.work.done()
        except BaseException as error:  # an interrupt, too, has to stop the other threads before it goes on
            self.work.fail(error)

    def _add_workers(self, counters: Counters) -> None:
        """Start other threads once the calls of one turn out to wait for a server; else, for much work, processes."""
        if self.started:
            self._hand_over()
            return
        seen = counters.files + counters.directories + counters.symlinks
        entries = seen - self.counted
        slow = entries >= MIN_SAMPLE and time.perf_counter() - self.began > SLOW_ENTRY * entries
        if slow and count_waits() > self.waited + entries // 8:
            self.started = True
            self.extra_threads = MAX_THREADS - 1
            self._start_threads(self.extra_threads)
        elif not self.forked and seen >= MIN_ENTRIES_TO_FORK:
            self.forked = True
            self._start_processes()
        elif entries >= TIMING_WINDOW:
            self._restart_timing(counters)
        self._hand_over()

    def _restart_timing(self, counters: Counters) -> None:
        """Measure from here on what calls cost."""
        self.began, self.waited = time.perf_counter(), count_waits()
        self.counted = counters.files + counters.directories + counters.symlinks

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Who does the work of a pass over a tree: a thread, many threads where calls wait for a server, or some processes."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from typing import NamedTuple, cast

from ..core.errors import StackError
from .counters import Tally
from .dir_handles import Directory, Handles, Work
from .process_pool import Crew, may_fork, processors

SLOW = 60e-6
"""Seconds per entry above which more threads pay: two quick system calls take about 5 microseconds here, a call to a
metadata server 100 and more."""

AUTO_WORKERS = 16
"""Threads that are used once calls turn out to be slow."""

WINDOW = 4096
"""Entries after which the time per entry is taken anew: the rest of a tree may be slower than what was cached."""

FEW = 16
"""Entries that show what calls cost."""

MANY = 1500
"""Entries after which other processes join in where calls are quick: some ten milliseconds, and forks cost two."""

DEEP = 100
"""Levels below which directories stay with the process that has found them: others would have to find the way first."""

AGAIN = ", then run it again: what is done stays done."

_ELSEWHERE = StackError("Another process of the walk has failed.", "apply", "Correct that" + AGAIN)


def _waits() -> int:
    """How often this thread has waited for something, not counted when others had the processor."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Chunk(NamedTuple):
    """Files of one directory, for a thread to work off."""

    directory: Directory
    names: list[str]


class Workers:
    """Threads and processes that share out directories and files; what to do with these is a subclass's.

    Args:
        workers: threads; 0 begins with one and adds threads where calls are slow, processes where they are quick.
        limit: how many entries of each kind are listed.
    """

    def __init__(self, workers: int, limit: int) -> None:
        self.workers = workers
        self.limit = limit
        self.work = Work()
        self.threads: list[threading.Thread] = []
        self.tallies: list[Tally] = []
        self.started = workers > 0
        self.helpers = max(0, workers - 1)
        self.recruited = False
        self.put_off: list | None = None
        self.crew: Crew | None = None
        self.certain = True
        """Whether the tallies have all that was done."""
        self.top: Directory
        self.handles: Handles

    def _directory(self, directory: Directory, tally: Tally) -> None:
        """Do a directory, and turn what it holds into work."""
        raise NotImplementedError

    def _chunk(self, chunk: Chunk, tally: Tally) -> None:
        """Do some files."""
        raise NotImplementedError

    def _join(self) -> None:
        for thread in self.threads:
            thread.join()

    def _rounds(self, tally: Tally) -> None:
        """Work off what there is, then what other processes hand over, until all is done."""
        self._start(self.helpers)
        self._serve(tally)
        while self.crew is not None:
            if self.work.failure is not None:
                self.crew.give_up()
                return
            packet = self.crew.take()
            if packet is None:
                return
            self._accept(packet)
            self._look_anew(tally)
            self._start(self.helpers)
            self._serve(tally)

    def _recruit(self) -> None:
        """Have other processes join in."""
        size = processors()
        if size > 1 and may_fork():
            self.crew = Crew(size)
            with contextlib.suppress(OSError):
                self.crew.recruit(self._assist)

    def _assist(self) -> object:
        """What another process does, and returns for the first one: tallies, hard links, failure."""
        self.handles.close()
        self.work, self.tallies, self.threads, self.put_off = Work(), [], [], []
        try:
            self._rounds(self._tally())
        except Exception as error:  # the first process has to say what happened
            self.work.fail(error)
        failure = self.work.failure
        if failure is not None and self.crew is not None:
            self.crew.give_up()
        told: tuple[str, ...] | None = None
        if isinstance(failure, StackError):
            told = (failure.message, failure.failed_step, failure.remedy, failure.path)
        elif failure is not None:
            told = ("Cannot go on: %s." % failure, "apply", "Correct that" + AGAIN)
        return self.tallies, self.put_off, told if failure is not _ELSEWHERE else None

    def _gather(self, tally: Tally) -> None:
        """Add what the other processes have done, and do what they have put off: names of files with several names.

        Such a file is counted once, so one process has to know them all.
        """
        crew, self.crew = self.crew, None
        if crew is None:
            return
        try:
            put_off: list = []
            for tallies, names, failure in crew.results():
                self.tallies += tallies
                put_off += names
                if failure and self.work.failure in (None, _ELSEWHERE):
                    self.work.failure = StackError(*failure)
        finally:
            crew.dismiss()
        if self.work.failure is None:
            for packet in put_off:
                self._accept(packet)
            self._start(self.helpers)
            self._serve(tally)

    def _give(self) -> None:
        """Hand over what lies deepest in the pile, so most, to a process that waits."""
        crew = self.crew
        if crew is None or not (crew.hungry or crew.given_up):
            return
        if crew.given_up:
            self.work.fail(_ELSEWHERE)
            return
        with self.work.changed:
            item = self.work.items[0] if len(self.work.items) > 1 else None
            if isinstance(item, Chunk) and item.directory.depth < DEEP:
                gone = crew.put((item.directory.trail(), item.names))
                holder: Directory | None = item.directory
            elif isinstance(item, Directory) and item.depth < DEEP:
                gone = crew.put((item.trail(), None))
                holder = item.parent
            else:
                return
            if not gone:
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

    def _tally(self) -> Tally:
        self.tallies.append(Tally(self.limit))
        return self.tallies[-1]

    def _start(self, count: int) -> None:
        for _number in range(count):
            self.threads.append(threading.Thread(target=self._serve, args=(self._tally(),), daemon=True))
            self.threads[-1].start()

    def _serve(self, tally: Tally) -> None:
        """Work off items until there are none."""
        try:
            while True:
                item = self.work.get()
                if item is None:
                    return
                if isinstance(item, Chunk):
                    self._chunk(item, tally)
                elif isinstance(item, Directory):
                    self._directory(item, tally)
                self.work.done()
        except BaseException as error:  # an interrupt, too, has to stop the other threads before it goes on
            self.work.fail(error)

    def _consider_help(self, tally: Tally) -> None:
        """Start the other threads once what one thread has seen shows that calls wait for a server.

        Where they do not, and there is much to do, other processes join in.
        """
        if self.started:
            self._give()
            return
        seen = tally.files + tally.directories + tally.symlinks
        entries = seen - self.counted
        slow = entries >= FEW and time.perf_counter() - self.began > SLOW * entries
        if slow and _waits() > self.waited + entries // 8:
            self.started = True
            self.helpers = AUTO_WORKERS - 1
            self._start(self.helpers)
        elif not self.recruited and seen >= MANY:
            self.recruited = True
            self._recruit()
        elif entries >= WINDOW:
            self._look_anew(tally)
        self._give()

    def _look_anew(self, tally: Tally) -> None:
        """What calls cost is told from here on."""
        self.began, self.waited = time.perf_counter(), _waits()
        self.counted = tally.files + tally.directories + tally.symlinks

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Work off one task with several processes: an item goes to whichever has nothing left to do.

Threads of one interpreter take turns with everything but system calls; where these are quick, only further processes
make a walk quicker. The pool is the first process and forked copies of it. One socket carries items, a packet each, and
any process takes the next one. A page of shared memory holds for each process how many items it has put in and taken
out, and whether it waits. The work is finished once all wait and as many items were taken as put in, with the same sums
seen before and after: a process that takes an item meanwhile changes a sum.

A copy dies with the first process; the first process notices when a copy dies.
"""

from __future__ import annotations

import ctypes
import marshal
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import threading
from typing import Any, Callable, NoReturn

from ..core.errors import StackError

MAX_PROCESSES = 4
"""Processes of a pool: a login node belongs to others, too."""

MAX_ITEM = 1 << 16
"""Bytes of an item; a longer one is not handed over."""

POLL_INTERVAL = 0.005
"""Seconds after which a process that waits looks whether the others still live."""

_PR_SET_PDEATHSIG = 1
_PUT, _TAKEN, _WAITING, _FIELDS = 0, 1, 2, 3


def processors() -> int:
    """Count the processes that are worth having: the processors that this one may use, within bounds."""
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0)))


def may_fork() -> bool:
    """Tell whether a fork is safe: no other thread can hold a lock that the copy would wait for."""
    return threading.active_count() == 1


def count_waits() -> int:
    """Count how often this thread has waited; losing the processor to others does not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class ProcessPool:
    """Share the items of one task between so many processes, the first included.

    ``killed`` is the error for a copy that was; without, one of a walk that changes a tree.
    """

    def __init__(self, size: int, killed: StackError | None = None) -> None:
        self.size = size
        self.me = 0
        self.first = os.getpid()
        self.copies: dict[int, int] = {}
        """The pipe that each copy answers by, by process id."""
        self.killed = killed or StackError(
            "One of the processes of the walk was killed.", "apply",
            "See who or what killed it, the memory limit for instance, and run this again: what is done stays done.",
        )
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._slots = memoryview(self._page).cast("Q")
        self._outlet, self._inlet = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outlet.setblocking(False)
        self._inlet.setblocking(False)

    def start(self, task: Callable[[], object]) -> None:
        """Fork the copies; each does the task, and its result waits for :meth:`results`.

        OSError: the system gives no more processes; those that there are work all the same.
        """
        self._fork(lambda answers: _send_result(task(), answers))

    def _fork(self, work: Callable[[int], object]) -> None:
        """Fork the copies; each gets the descriptor by which it answers."""
        for number in range(1, self.size):
            reading, writing = os.pipe()
            try:
                child = os.fork()
            except OSError:
                os.close(reading)
                os.close(writing)
                for missing in range(number, self.size):
                    self._slots[missing * _FIELDS + _WAITING] = 1
                raise
            if child == 0:
                self._run_copy(number, work, writing)
            os.close(writing)
            self.copies[child] = reading

    def _run_copy(self, number: int, work: Callable[[int], object], writing: int) -> NoReturn:
        """Work as a copy, and end as one."""
        code = 1
        try:
            if _end_with(self.first):
                self.me = number
                self.copies.clear()
                work(writing)
                code = 0
        finally:
            os._exit(code)

    @property
    def has_idle_worker(self) -> bool:
        """Tell whether one of the other processes waits for work."""
        return any(self._slots[number * _FIELDS + _WAITING] for number in range(self.size) if number != self.me)

    def put(self, item: Any) -> bool:
        """Hand over an item of plain data (see :mod:`marshal`); false where there is no room for it."""
        packet = marshal.dumps(item)
        if len(packet) > MAX_ITEM:
            return False
        try:
            self._inlet.send(packet)
        except BlockingIOError:
            return False
        self._slots[self.me * _FIELDS + _PUT] += 1
        return True

    def take(self) -> Any:
        """Wait for an item; None when all is finished, or a process has given up. StackError: another was killed."""
        waiting = self.me * _FIELDS + _WAITING
        self._slots[waiting] = 1
        while not self.given_up:
            try:
                packet = self._outlet.recv(MAX_ITEM)
            except BlockingIOError:
                if self._is_finished():
                    break
                self._check_copies()
                select.select([self._outlet], [], [], POLL_INTERVAL)
                continue
            self._slots[waiting] = 0
            self._slots[self.me * _FIELDS + _TAKEN] += 1
            return marshal.loads(packet)
        return None

    def give_up(self) -> None:
        """Make the others stop, too."""
        self._slots[self.size * _FIELDS] = 1

    @property
    def given_up(self) -> bool:
        """Tell whether one of the processes has given up."""
        return bool(self._slots[self.size * _FIELDS])

    def results(self) -> list:
        """Wait for what the tasks of the copies returned; StackError: one of them was killed."""
        results = []
        for reading in list(self.copies.values()):
            with os.fdopen(os.dup(reading), "rb") as stream:
                try:
                    results.append(pickle.load(stream))
                except EOFError as error:
                    raise self.killed from error
        return results

    def shutdown(self) -> None:
        """End the copies, if they live still, and leave nothing behind."""
        self.give_up()
        for child, reading in self.copies.items():
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.copies.clear()
        self._inlet.close()
        self._outlet.close()
        self._slots.release()
        self._page.close()

    def _sums(self) -> tuple[int, int]:
        """Add up how many items all processes have put in and taken out."""
        return (
            sum(self._slots[number * _FIELDS + _PUT] for number in range(self.size)),
            sum(self._slots[number * _FIELDS + _TAKEN] for number in range(self.size)),
        )

    def _is_finished(self) -> bool:
        """Tell whether nothing is left to do, or a process has given up."""
        if self.given_up:
            return True
        before = self._sums()
        idle = all(self._slots[number * _FIELDS + _WAITING] for number in range(self.size))
        return idle and before[0] == before[1] and before == self._sums()

    def _check_copies(self) -> None:
        """Give up where a copy was killed."""
        if self.me:
            return
        # The end of a copy's pipe comes with its result only, and that not before all is finished.
        for reading in select.select(list(self.copies.values()), [], [], 0)[0]:
            if not self._is_finished() and not _has_data(reading):
                self.give_up()
                raise self.killed


def _send_result(result: object, writing: int) -> None:
    """Send the result of a copy's task to the first process."""
    with os.fdopen(writing, "wb") as stream:
        pickle.dump(result, stream)


def _has_data(reading: int) -> bool:
    """Tell whether a pipe that is ready to be read has more than its end."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return any(event & select.POLLIN for _descriptor, event in poll.poll(0))


def _end_with(first: int) -> bool:
    """Make this copy end with the process that it is a copy of; false where that has ended already.

    Python starts no thread in a fork; whatever handlers the first process has are not this one's.
    """
    for word in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(word, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == first

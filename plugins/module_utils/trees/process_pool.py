# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes that work off one task together: what is still to do goes to whoever has nothing left.

Threads of one interpreter take turns with everything but system calls; where these are quick, only further processes
make a walk quicker. The crew is the first process and forked copies of it. One socket carries work, a packet per item,
and any of them takes the next one. A page of shared memory holds for each how many items it has put in and taken out,
and whether it waits. The work is finished once all wait and as many items were taken as put in, with the same sums
seen before and after: who takes an item meanwhile changes a sum.

A copy dies with the first process; the first process notices when a copy dies.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import select
import signal
import socket
import threading
from typing import Callable

from ..core.errors import StackError

MOST = 4
"""Processes: a login node belongs to others, too."""

LONGEST = 1 << 16
"""Bytes of an item; what is longer stays where it is."""

NAP = 0.005
"""Seconds after which one who waits looks whether the others still live."""

_PR_SET_PDEATHSIG = 1
_PUT, _TAKEN, _WAITING, _FIELDS = 0, 1, 2, 3


def processors() -> int:
    """How many processes are worth having: the processors that this one may use, within bounds."""
    return min(MOST, len(os.sched_getaffinity(0)))


class Crew:
    """The processes of one task.

    Args:
        size: how many, the first included.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.me = 0
        self.first = os.getpid()
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._slots = memoryview(self._page).cast("Q")
        self._outlet, self._inlet = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outlet.setblocking(False)
        self._inlet.setblocking(False)
        self._copies: dict[int, int] = {}

    def recruit(self, task: Callable[[], object]) -> None:
        """Fork the others; each does the task, and its result waits for :meth:`results`.

        Raises:
            OSError: the system gives no more processes; those that there are work all the same.
        """
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
                self._serve(number, writing, task)
            os.close(writing)
            self._copies[child] = reading

    def _serve(self, number: int, writing: int, task: Callable[[], object]) -> None:
        """A copy's whole life."""
        code = 1
        try:
            if depend_on(self.first):
                self.me = number
                self._copies.clear()
                with os.fdopen(writing, "wb") as stream:
                    pickle.dump(task(), stream)
                code = 0
        finally:
            os._exit(code)

    @property
    def hungry(self) -> bool:
        """Whether one of the others waits for work."""
        return any(self._slots[number * _FIELDS + _WAITING] for number in range(self.size) if number != self.me)

    def put(self, item: object) -> bool:
        """Hand over an item, if there is room for it."""
        packet = pickle.dumps(item)
        if len(packet) > LONGEST:
            return False
        try:
            self._inlet.send(packet)
        except BlockingIOError:
            return False
        self._slots[self.me * _FIELDS + _PUT] += 1
        return True

    def take(self) -> object | None:
        """Wait for an item; None when all is finished, or somebody has given up.

        Raises:
            StackError: one of the others was killed.
        """
        waiting = self.me * _FIELDS + _WAITING
        self._slots[waiting] = 1
        while not self._over():
            select.select([self._outlet], [], [], NAP)
            try:
                packet = self._outlet.recv(LONGEST)
            except BlockingIOError:
                self._look_after_the_others()
                continue
            self._slots[waiting] = 0
            self._slots[self.me * _FIELDS + _TAKEN] += 1
            return pickle.loads(packet)
        return None

    def give_up(self) -> None:
        """Let the others stop, too."""
        self._slots[self.size * _FIELDS] = 1

    @property
    def given_up(self) -> bool:
        """Whether one of them did."""
        return bool(self._slots[self.size * _FIELDS])

    def results(self) -> list:
        """What the others' tasks returned.

        Raises:
            StackError: one of them was killed.
        """
        results = []
        for reading in list(self._copies.values()):
            with os.fdopen(os.dup(reading), "rb") as stream:
                try:
                    results.append(pickle.load(stream))
                except EOFError as error:
                    raise _killed() from error
        return results

    def dismiss(self) -> None:
        """End the others, if they live still, and leave nothing behind."""
        self.give_up()
        for child, reading in self._copies.items():
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self._copies.clear()
        self._inlet.close()
        self._outlet.close()
        self._slots.release()
        self._page.close()

    def _sums(self) -> tuple[int, int]:
        return (
            sum(self._slots[number * _FIELDS + _PUT] for number in range(self.size)),
            sum(self._slots[number * _FIELDS + _TAKEN] for number in range(self.size)),
        )

    def _over(self) -> bool:
        if self.given_up:
            return True
        before = self._sums()
        idle = all(self._slots[number * _FIELDS + _WAITING] for number in range(self.size))
        return idle and before[0] == before[1] and before == self._sums()

    def _look_after_the_others(self) -> None:
        if self.me:
            return
        # The end of a copy's pipe comes with its result only, and that not before all is finished.
        for reading in select.select(list(self._copies.values()), [], [], 0)[0]:
            if not self._over() and not _holds(reading):
                self.give_up()
                raise _killed()


def _holds(reading: int) -> bool:
    """Whether a pipe that is ready to be read has more than its end."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return any(event & select.POLLIN for _descriptor, event in poll.poll(0))


def _killed() -> StackError:
    return StackError(
        "One of the processes of the walk was killed.", "apply",
        "See who or what killed it, the memory limit for instance, and run this again: what is done stays done.",
    )


def depend_on(first: int) -> bool:
    """Let this forked copy end with the process that it is a copy of; False where that has ended already.

    Python starts no thread in a fork; whatever handlers the first process has are not this one's.
    """
    for word in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(word, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == first


def may_fork() -> bool:
    """Whether a fork is safe: no thread of somebody else holds a lock that the copy would wait for."""
    return threading.active_count() == 1

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have forked copies of this process answer calls. A copy ends with the pool, and with the process that made it.

The process that calls never waits for room in a copy's pipe, so the two never wait for each other.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import struct
from typing import Any, Callable

from ..core.errors import StackError
from .process_pool import ProcessPool

_LENGTH = struct.Struct("=Q")


class Call:
    """Hold a call whose answer comes later."""

    def __init__(self, pool: CallPool) -> None:
        self._pool = pool
        self.answer: Any = None

    def result(self) -> Any:
        """Wait for the answer; StackError: a copy was killed."""
        while self.answer is None:
            self._pool.receive(None)
        return self.answer


class CallPool(ProcessPool):
    """Let ``count`` copies of this process, or as many as there can be, answer calls in any order.

    The function takes and returns plain data (see :mod:`marshal`), and never None. ``waiting`` calls, the one that it
    works on included, are for each copy; ``killed`` is the error for a copy that was.
    """

    def __init__(self, count: int, function: Callable[[Any], Any], waiting: int, killed: StackError) -> None:
        super().__init__(count + 1, killed)
        with contextlib.suppress(OSError):  # the copies that there are do
            self._fork(lambda writing: self._answer(function, writing))
        self._limit = waiting * len(self.copies)
        self._calls: dict[int, Call] = {}
        self._number = 0
        self._poll = select.poll()
        for reading in self.copies.values():
            self._poll.register(reading, select.POLLIN)

    def submit(self, argument: Any) -> Call | None:
        """Call the function in a copy; None where all have enough to do, StackError: a copy was killed."""
        self.receive(0)
        if len(self._calls) >= self._limit or not self.put((self._number, argument)):
            return None
        call = self._calls[self._number] = Call(self)
        self._number += 1
        return call

    def receive(self, timeout: int | None) -> None:
        """Take the answers that come in so many milliseconds, None: at any time; StackError: a copy was killed."""
        for reading, _event in self._poll.poll(timeout):
            length, = _LENGTH.unpack(self._read(reading, _LENGTH.size))
            number, answer = marshal.loads(self._read(reading, length))
            self._calls.pop(number).answer = answer

    def _read(self, reading: int, length: int) -> bytes:
        """Read so many bytes of an answer."""
        data = os.read(reading, length)
        while len(data) < length:
            more = os.read(reading, length - len(data))
            if not more:
                raise self.killed
            data += more
        return data

    def _answer(self, function: Callable[[Any], Any], writing: int) -> None:
        """Answer calls as a copy, until the pool is shut down."""
        with os.fdopen(writing, "wb") as stream:
            for number, argument in iter(self.take, None):
                answer = marshal.dumps((number, function(argument)))
                stream.write(_LENGTH.pack(len(answer)) + answer)
                stream.flush()

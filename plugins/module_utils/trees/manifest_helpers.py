# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes that look at entries for a walk: forked copies of it, each with an interpreter of its own.

The walk asks with parts of directories and gets what their names are. No copy has more than a few questions at a time,
each of them short, so that neither side ever waits for the other to make room. A copy ends with the walk, and with the
process that walks.
"""

from __future__ import annotations

import collections
import marshal
import multiprocessing.connection
import os
import select
import signal
from typing import Any, Callable

from ..core.errors import StackError
from .process_pool import depend_on

QUESTIONS = 2
"""Questions that a copy has at a time: one to work on, one that waits."""

QUICK_QUESTIONS = 4
"""The same where answers take so little time that a copy would wait for the next question."""

HELD = 1 << 16
"""Bytes of questions that wait for a copy, more than one, at most: far below what a socket holds."""

LONGEST = 4096
"""Bytes of the paths of a question's directories; with their names this stays below what a socket holds."""

DEEPEST = 100
"""Levels below which nobody is asked: the way there would cost more than the answer."""


class Copy:
    """One copy, as the walk sees it."""

    def __init__(self, child: int, line: multiprocessing.connection.Connection) -> None:
        self.child = child
        self.line = line
        self.asked: collections.deque[Ticket] = collections.deque()
        self._poll = select.poll()
        self._poll.register(line.fileno(), select.POLLIN)

    @property
    def answers(self) -> bool:
        """Whether there is something to hear."""
        return bool(self.asked) and bool(self._poll.poll(0))


class Ticket:
    """A question; the answer comes later."""

    def __init__(self, helpers: Helpers, copy: Copy, size: int) -> None:
        self._helpers = helpers
        self.copy = copy
        self.size = size
        self.answer: Any = None

    def result(self) -> Any:
        """The answer, once it is there.

        Raises:
            StackError: the copy was killed.
        """
        return self._helpers.wait(self)


class Helpers:
    """Some copies.

    Args:
        count: how many.
        path: the tree, to be named when a copy was killed.
        answer: what a copy makes of a question; both consist of what :mod:`marshal` knows.
        questions: how many a copy has at a time.
    """

    def __init__(self, count: int, path: str, answer: Callable[[Any], Any], questions: int = QUESTIONS) -> None:
        self.copies: list[Copy] = []
        self._questions = questions
        self.path = path
        first = os.getpid()
        for _number in range(count):
            mine, theirs = multiprocessing.connection.Pipe()
            try:
                child = os.fork()
            except OSError:  # those that there are do
                mine.close()
                theirs.close()
                return
            if child == 0:
                mine.close()
                _serve(theirs, answer, first)
            theirs.close()
            self.copies.append(Copy(child, mine))

    def ask(self, question: Any) -> Ticket | None:
        """Put a question to a copy that has room for one, if there is one.

        Raises:
            StackError: a copy was killed.
        """
        for copy in self.copies:
            while copy.answers:
                self._hear(copy)
            if len(copy.asked) < self._questions:
                packet = marshal.dumps(question)
                ticket = Ticket(self, copy, len(packet))
                if copy.asked and sum(other.size for other in copy.asked) + ticket.size > HELD:
                    continue
                try:
                    copy.line.send_bytes(packet)
                except OSError as error:
                    raise self._killed() from error
                copy.asked.append(ticket)
                return ticket
        return None

    def wait(self, ticket: Ticket) -> Any:
        """The answer to a question.

        Raises:
            StackError: the copy was killed.
        """
        while ticket.answer is None:
            self._hear(ticket.copy)
        return ticket.answer

    def dismiss(self) -> None:
        """End the copies and leave nothing behind."""
        for copy in self.copies:
            copy.line.close()
            os.kill(copy.child, signal.SIGKILL)
            os.waitpid(copy.child, 0)
        self.copies.clear()

    def _hear(self, copy: Copy) -> None:
        try:
            answer = marshal.loads(copy.line.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._killed() from error
        copy.asked.popleft().answer = answer

    def _killed(self) -> StackError:
        return StackError(
            "One of the processes that read %s was killed." % self.path, "read the tree",
            "See who or what killed it, the memory limit for instance, and run this again.", self.path,
        )


def _serve(line: multiprocessing.connection.Connection, answer: Callable[[Any], Any], first: int) -> None:
    """A copy's whole life."""
    code = 1
    try:
        alive = depend_on(first)
        while alive:
            line.send_bytes(marshal.dumps(answer(marshal.loads(line.recv_bytes()))))
            alive = os.getppid() == first
    except (EOFError, OSError):
        code = 0
    finally:
        os._exit(code)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Share the directories and files of a tree between threads."""

from __future__ import annotations

import collections
import threading
from typing import NamedTuple

from .dir_handles import Directory


class WorkQueue:
    """Hold what is still to do, last in first out, for any number of threads."""

    def __init__(self) -> None:
        self.items: collections.deque = collections.deque()
        self.changed = threading.Condition()
        self.unfinished = 0
        self.idle = 0
        self.failure: BaseException | None = None

    @property
    def has_idle_worker(self) -> bool:
        """Tell whether a thread waits for work."""
        return self.idle > len(self.items)

    def put(self, item: object) -> None:
        """Add an item."""
        with self.changed:
            self.items.append(item)
            self.unfinished += 1
            if self.idle:
                self.changed.notify()

    def get(self) -> object | None:
        """Wait for an item; None when all are finished, or a thread has failed."""
        with self.changed:
            while not self.items and self.unfinished and self.failure is None:
                self.idle += 1
                self.changed.wait()
                self.idle -= 1
            return self.items.pop() if self.items and self.failure is None else None

    def done(self) -> None:
        """Count an item from :meth:`get` as finished."""
        with self.changed:
            self.unfinished -= 1
            if not self.unfinished:
                self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Stop all threads."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()


class Chunk(NamedTuple):
    """Describe files of one directory, for a thread to work off."""

    directory: Directory
    names: list[str]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record what a prefix was made from, and the journal of a transaction that has begun.

It lies outside the prefix, so that removing the prefix or writing it half leaves the record whole. The journal is
written before the first change and closed after the last; while it is open, the prefix counts as half.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import Any, Iterator, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.files import read_json, write_json
from .package import Package

LINK, REMOVE = "link", "remove"
WAIT = 60.0
"""Seconds that a run waits for another one on the same prefix; longer than a warm creation takes."""


class Journal(NamedTuple):
    """A transaction that has begun, and what the prefix was before it."""

    step: str
    kept: Sequence[str]
    records: Sequence[Sequence[str]]
    history: str
    had_prefix: bool

    @property
    def fresh(self) -> bool:
        """Tell whether the transaction creates the prefix: nothing was there before."""
        return not self.kept and not self.records


class State(NamedTuple):
    """What the record says."""

    digest: str = ""
    packages: Sequence[Sequence[str]] = ()
    journal: Journal | None = None


class Store:
    """The record of one prefix, beside it or in another directory."""

    def __init__(self, prefix: str, directory: str = "") -> None:
        self.prefix = prefix
        self.directory = directory or os.path.dirname(prefix)
        stem = ".%s.conda" % os.path.basename(prefix)
        self.path = os.path.join(self.directory, stem + ".json")
        self.lock = os.path.join(self.directory, stem + ".lock")

    def read(self) -> State:
        """Tell what the record says; nothing where there is none."""
        try:
            found: Any = read_json(self.path)
            if found is None:
                return State()
            journal = Journal(**found["journal"]) if found["journal"] else None
            return State(found["digest"], tuple(map(tuple, found["packages"])), journal)
        except OSError as error:
            raise self._broken(error.strerror) from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._broken("it is not a record of this module") from error

    def _broken(self, why: object) -> StackError:
        message = "Cannot read the record %s: %s." % (self.path, why)
        remedy = "Remove it: the prefix is then compared package by package."
        return StackError(message, "read the prefix", remedy, self.path)

    def open(self, journal: Journal) -> None:
        """Note that a transaction begins."""
        write_json(self.path, {"digest": "", "packages": [], "journal": journal._asdict()})

    def close(self, digest: str, packages: Sequence[Package]) -> None:
        """Note that the prefix is complete, and what it is."""
        identities = [list(package.identity) for package in sorted(packages)]
        write_json(self.path, {"digest": digest, "packages": identities, "journal": None})

    def forget(self) -> None:
        """Remove the record, after the prefix."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs, and what a killed one left running, off the prefix meanwhile.

        Raises:
            StackError: another run works on it, or the directory cannot be written.
        """
        try:
            os.makedirs(self.directory, exist_ok=True)
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = "Cannot write %s: %s." % (self.directory, error.strerror)
            remedy = "Run as the account that owns it, or set state_dir."
            raise StackError(message, "lock the prefix", remedy, self.directory) from error
        try:
            deadline = time.monotonic() + WAIT
            while not self._taken(descriptor):
                if time.monotonic() > deadline:
                    message = "Another run is changing %s." % self.prefix
                    remedy = "Wait until it has ended, then run this again."
                    raise StackError(message, "lock the prefix", remedy, self.prefix)
                time.sleep(0.1)
            self._drop_leftovers()
            yield
        finally:
            os.close(descriptor)

    def _drop_leftovers(self) -> None:
        """Remove what a write of the record left that was killed."""
        start = ".%s." % os.path.basename(self.path)
        for name in os.listdir(self.directory):
            if name.startswith(start):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, name))

    @staticmethod
    def _taken(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
        return True

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Let one process at a time start a step, on one host and between hosts.

On one host flock(2) decides; the lock's descriptor is handed to the supervisor, so that there is no moment between two
owners. Between hosts flock may be missing or local (a mount option of Lustre), so a starter also announces itself
by link(2), which is atomic on every shared file system. The announcement of a dead starter is removed only
on its own host, by one process at a time: between judging a file and unlinking it another remover could have put its
own announcement there. That turn is the name of an abstract socket (unix(7)), which ends with its owner.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import time
from typing import Any, Iterator, NamedTuple

from ..core.clock import utc
from ..core.errors import StackError
from ..core.processes import Here, here, is_alive, read_process
from .files import StepFiles
from .json_record import read_record
from .outcome import Outcome
from .records import JobRecord

CLAIM = ".starting"
"""The announcement of a starter, in the step's directory."""

_WITHOUT_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class Announcement(NamedTuple):
    """The process that is starting the step, as the file :data:`CLAIM` names it."""

    host: str
    boot_id: str
    pid: int
    start_time: int | None
    since: str


class StepLock:
    """The right to start a step; nobody but its holder replaces the records of the last attempt."""

    def __init__(self, files: StepFiles, here: Here) -> None:
        self.files = files
        self.here = here
        self.path = files.path(".lock")
        self.claim = files.path(CLAIM)
        self.descriptor = -1
        self.exclusive = False
        """Whether flock(2) guarantees the lock: no other process of this host has it, a supervisor included."""

    def acquire(self) -> bool:
        """Take the lock if it is free, without waiting; OSError: the step's directory cannot be written."""
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        acquired = False
        try:
            self.exclusive = self._flock()
            acquired = self._announce()
        except BlockingIOError:
            return False
        finally:
            if not acquired:
                self.release()
        return acquired

    def _flock(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EACCES:
                raise BlockingIOError(error.errno, error.strerror) from None
            if error.errno not in _WITHOUT_FLOCK:
                raise
            return False
        return True

    def _announce(self) -> bool:
        process = read_process(os.getpid())
        record = Announcement(
            self.here.host, self.here.boot_id, os.getpid(), process.start_time if process else None, utc(time.time())
        )
        mine = own_announcement(self.claim, self.here.host, os.getpid())
        try:
            with open(mine, "w", encoding="utf-8") as stream:
                json.dump(record._asdict(), stream)
            for _attempt in range(2):
                try:
                    os.link(mine, self.claim)
                    return True
                except FileExistsError:
                    if not self._remove_dead_claim():
                        return False
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(mine)

    def _remove_dead_claim(self) -> bool:
        with _exclusive_decision(self.claim) as ours:
            if not ours:
                return False
            other = self._announced()
            if other is None:
                return True
            if other.host != self.here.host:
                return False
            if other.boot_id == self.here.boot_id and is_alive(other.pid, other.start_time):
                return False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.claim)
            return True

    def _announced(self) -> Announcement | None:
        record = read_record(self.claim)
        if record is None:
            return None
        fields: dict[str, Any] = {name: record.get(name) for name in Announcement._fields}
        return Announcement(**fields)

    def refusal(self) -> StackError:
        """Make the error that says why the lock could not be had."""
        other = self._announced()
        if other is None:
            return StackError(
                "Another process holds %s, and step %s is not running." % (self.path, self.files.name), "lock",
                "Look with 'fuser -v %s' which one it is, end it, and run this again." % self.path, self.path,
            )
        return StackError(
            "Host %s (pid %s) has been starting step %s since %s."
            % (other.host, other.pid, self.files.name, other.since), "lock",
            "Run this again in a minute; if that process is gone for good, remove %s first." % self.claim, self.claim,
        )

    def release(self) -> None:
        """Give this process's share of the lock back; a supervisor that inherited it keeps it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def withdraw(self) -> None:
        """Remove the announcement and release the lock."""
        # What cannot be removed is a dead starter's as soon as this process ends.
        with contextlib.suppress(OSError):
            os.unlink(self.claim)
        self.release()


def keep_end(files: StepFiles, job: JobRecord, end: Outcome) -> bool:
    """Record what a scheduler says about the end of a job, which it will have forgotten some day.

    False where the lock is held, by who is about to start the step or by a supervisor that has not quite gone.
    """
    lock = StepLock(files, here())
    with contextlib.suppress(OSError):
        if not lock.acquire():
            return False
        try:
            if job.is_same(JobRecord.read(files)):
                end.write(files, job.nonce)
        finally:
            lock.withdraw()
    return True


def own_announcement(claim: str, host: str, pid: int) -> str:
    """Name the file by which a process prepares its announcement; it is linked to ``claim`` as a whole."""
    return "%s.%s.%d" % (claim, host, pid)


@contextlib.contextmanager
def _exclusive_decision(path: str) -> Iterator[bool]:
    """Tell whether only this process of this account and host may decide about ``path`` now."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        try:
            holder.bind("\0torchstack-%d-%s" % (os.geteuid(), name))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            yield False
        else:
            yield True

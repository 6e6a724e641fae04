# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of one node meet, and keep what lives as long as they do: a directory on the node.

The directory belongs to one account, application and node. Local rank 0 makes it, each holds a shared lock in it, and
whoever can turn that lock into an exclusive one at its end was the last and removes it. A lock goes with its process,
however that ends, so what nobody holds is what somebody's sudden end has left, and is removed as well.

The place may be writable by everybody, such as /tmp: nothing in it is followed or used that is not this account's own.
The end of the directory's name is random, and the others look for one that this account owns and somebody holds: who
knows account, job and node, as everybody may, can put nothing in their way.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time

LOCK, READY, FAILED, ARRIVED = "lock", "ready", "failed", "arrived."
POLL = 0.02
"""Seconds between two looks at who has arrived."""


class MeetingError(Exception):
    """The ranks of this node do not meet; a sentence."""


class Meeting:
    """One rank's part in the meeting of its node.

    Args:
        place: an existing directory on the node.
        identity: what tells this application from others, such as ``123.0``, and the node's name.
        local_rank: the number of this rank on its node.
        local_size: how many ranks there are on it; None where the launcher does not tell.
    """

    def __init__(self, place, identity, local_rank, local_size):
        self.mark = "torchstack-%d-" % os.geteuid()
        self.place = place
        self.name = self.mark + re.sub(r"[^\w-]", "_", identity) + "."
        self.path = None
        self.local_rank = local_rank
        self.expected = {"%s%d" % (ARRIVED, number) for number in range(local_size or 0)} | {READY}
        self.lock = None

    def enter(self, seconds):
        """Be there, so that the directory stays.

        Args:
            seconds: how long to wait for local rank 0, which makes it.

        Raises:
            MeetingError: the directory cannot be made, or local rank 0 does not come in time.
        """
        deadline = time.monotonic() + seconds
        try:
            while not (self._make() if self.local_rank == 0 else self._find()):
                if time.monotonic() > deadline:
                    raise MeetingError(self._late(seconds, [0]))
                time.sleep(POLL)
        except OSError as error:
            raise MeetingError("%s cannot be used: %s; set TORCHSTACK_NODE_TMP to another directory of the node" % (
                self.place, error.strerror or error)) from error

    def _make(self):
        """Make the directory and hold its lock; whether nobody removed it meanwhile."""
        self.path = tempfile.mkdtemp(prefix=self.name, dir=self.place)
        self.lock = _own_lock(self.path, True)
        return self.lock is not None

    def _find(self):
        """Hold the lock of the directory that local rank 0 has made; whether it is there."""
        for name in sorted(os.listdir(self.place)):
            path = os.path.join(self.place, name)
            if name.startswith(self.name) and not os.path.lexists(
                    os.path.join(path, "%s%d" % (ARRIVED, self.local_rank))):
                with contextlib.suppress(OSError):
                    self.lock = _own_lock(path, False)
                if self.lock is not None:
                    self.path = path
                    return True
        return False

    def _late(self, seconds, numbers):
        return (
            "the ranks of this node waited %g seconds for local rank %s; see what it says, and whether all of them see "
            "the same %s; TORCHSTACK_NODE_WAIT sets another time" % (seconds, ", ".join(map(str, numbers)), self.place))

    def arrive(self, ready):
        """Tell the others that this rank is there.

        Args:
            ready: whether what the others wait for is done: true for one rank of the node.
        """
        self._note("%s%d" % (ARRIVED, self.local_rank))
        if ready:
            self._note(READY)

    def fail(self):
        """Tell the others not to wait: this rank cannot go on."""
        if self.lock is not None:
            with contextlib.suppress(OSError):
                self._note(FAILED)

    def wait(self, seconds):
        """Wait until all are there and ready.

        Raises:
            MeetingError: some do not come in time, or one has said that it cannot go on.
        """
        deadline = time.monotonic() + seconds
        while True:
            there = set(os.listdir(self.path))
            if FAILED in there:
                raise MeetingError("another rank of this node could not begin, and said why")
            missing = self.expected - there
            if not missing:
                return
            if time.monotonic() > deadline:
                numbers = sorted(int(name[len(ARRIVED):]) for name in missing if name != READY)
                raise MeetingError(self._late(seconds, numbers or [0]))
            time.sleep(POLL)

    def leave(self):
        """Go; the last one removes the directory, and what others of this account have left on this node."""
        if self.lock is None:
            return
        lock, self.lock = self.lock, None
        try:
            if _alone(lock):
                _remove(self.path)
        finally:
            os.close(lock)
        self._remove_left()

    def _note(self, name):
        os.close(os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))

    def _remove_left(self):
        """Remove the directories of this account whose ranks have all ended without removing them."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.place):
                path = os.path.join(self.place, name)
                if name.startswith(self.mark):
                    with contextlib.suppress(OSError):
                        _remove_if_left(path)


def _own_lock(path, first):
    """Hold the shared lock of a directory of this account's own; None where it is none, or has gone meanwhile.

    Args:
        first: whether this is who has made it; for all others somebody has to hold the lock already.

    Raises:
        OSError: it cannot be opened.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return None
        try:
            lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if first else 0), 0o600, dir_fd=directory)
        except FileNotFoundError:
            return None
        if not first and _alone(lock):
            # What killed ranks have left; or it is being made at this moment, and the next look finds it held.
            os.close(lock)
            return None
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(os.path.join(path, LOCK), follow_symlinks=False)):
                return lock
        os.close(lock)
        return None
    finally:
        os.close(directory)


def _alone(lock):
    """Whether nobody else holds the lock; it is exclusively held then, and else not at all."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_if_left(path):
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            return
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=directory)
        try:
            if _alone(lock):
                _remove(path)
        finally:
            os.close(lock)
    finally:
        os.close(directory)


def _remove(path):
    """Remove a file or a tree, without following links; what still writes into it has a few tries."""
    for _attempt in range(5):
        try:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(POLL)

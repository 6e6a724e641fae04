# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Lock a root for the moment in which a release's state is judged and changed.

Whatever publishes, rolls back, retires, thaws or freezes reads what it judges by while it holds this lock, and changes
it before it gives the lock back; what takes long, such as measuring a tree, comes before. The order of locks is one:
the lock of a release, which a playbook holds for as long as it runs (:mod:`..core.rollout_lock`), and then this one.
Nobody who holds this one waits for a release's.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Iterator

from ..core import rollout_lock
from ..core.errors import StackError

WORK = "hpcml.torchstack"
"""What a holder does, for whoever is refused."""


def lock_path(root: str) -> str:
    """Return the lock of a root."""
    return os.path.join(root, ".torchstack", "publish.lock.json")


@contextlib.contextmanager
def held(root: str, patience: float = 60.0) -> Iterator[None]:
    """Hold the lock of a root while it is judged and changed, which takes less than a second.

    Raises StackError: after ``patience`` seconds somebody else is still at it, or may be.
    """
    path, here = lock_path(root), rollout_lock.this_place()
    me = rollout_lock.describe_process(os.getpid(), WORK)
    deadline = time.monotonic() + patience
    while True:
        try:
            rollout_lock.make_directory(os.path.dirname(path))
            rollout_lock.acquire(path, me, here)
            break
        except rollout_lock.LockHeld as other:
            if time.monotonic() > deadline:
                raise _refusal(root, other, here) from other
            time.sleep(0.2)
        except OSError as error:
            raise _unwritable(path, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            rollout_lock.release(path, me)


def remove_stale(root: str) -> None:
    """Take away the lock of a process that was killed when its work was done; one that is held stays."""
    path = lock_path(root)
    record = rollout_lock.read_lock(path)
    if record is not None and rollout_lock.judge(record, rollout_lock.this_place()) == rollout_lock.DEAD:
        with held(root):
            pass


def _refusal(root: str, held: rollout_lock.LockHeld, here: rollout_lock.Place) -> StackError:
    message = "The releases below %s are being changed: %s has held %s since %s" % (
        root, rollout_lock.describe(held.record), held.path, held.record["since"])
    if held.verdict == rollout_lock.ALIVE:
        return StackError(message + ".", "lock", "Wait for it to end, and run this again.", held.path)
    return StackError(
        "%s, and %s cannot tell whether that process is alive." % (message, here.host), "lock",
        "On %s, look with 'ps -o lstart,args -p %d'; if it is gone, remove %s and run this again." % (
            held.record["host"], held.record["pid"], held.path), held.path)


def _unwritable(path: str, error: OSError) -> StackError:
    return StackError(
        "The lock %s cannot be taken: %s." % (path, error.strerror or error), "lock",
        "Run as the account that owns the root.", path)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""One at a time changes what users see below a root: two people may publish, retire and roll back at once."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Iterator

from ..core import rollout_lock as lock
from ..core.errors import StackError

WORK = "hpcml.torchstack.modulefile_publish"


def lock_path(root: str) -> str:
    """The lock of a root."""
    return os.path.join(root, ".torchstack", "publish.lock.json")


@contextlib.contextmanager
def publishing(root: str, patience: float = 60.0) -> Iterator[None]:
    """For as long as this process changes what users see below a root.

    Args:
        root: the directory that holds the releases and the module tree.
        patience: seconds to wait for somebody else, whose changes take less than one.

    Raises:
        StackError: somebody else is at it all the time, or may be.
    """
    path, here = lock_path(root), lock.this_place()
    me = lock.describe_process(os.getpid(), WORK)
    deadline = time.monotonic() + patience
    while True:
        try:
            lock.make_directory(os.path.dirname(path))
            lock.acquire(path, me, here)
            break
        except lock.LockHeld as held:
            if time.monotonic() > deadline:
                raise _refusal(root, held, here) from held
            time.sleep(0.2)
        except OSError as error:
            raise _unwritable(path, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.release(path, me)


def tidy(root: str) -> None:
    """Take away the lock of a process that was killed when its work was done; one that is held stays."""
    path = lock_path(root)
    record = lock.read_lock(path)
    if record is not None and lock.judge(record, lock.this_place()) == lock.DEAD:
        with publishing(root):
            pass


def _refusal(root: str, held: lock.LockHeld, here: lock.Place) -> StackError:
    message = "What users see below %s is being changed: %s has held %s since %s" % (
        root, lock.describe(held.record), held.path, held.record["since"])
    if held.verdict == lock.ALIVE:
        return StackError(message + ".", "lock", "Wait for it to end, and run this again.", held.path)
    return StackError(
        "%s, and %s cannot tell whether that process is alive." % (message, here.host), "lock",
        "On %s, look with 'ps -o lstart,args -p %d'; if it is gone, remove %s and run this again." % (
            held.record["host"], held.record["pid"], held.path), held.path)


def _unwritable(path: str, error: OSError) -> StackError:
    return StackError(
        "The lock %s cannot be taken: %s." % (path, error.strerror or error), "lock",
        "Run as the account that owns the root.", path)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The start of a supervisor: its arguments, its signals, and its answer to the launcher that waits for it."""

from __future__ import annotations

import contextlib
import os
import signal

from ..core.processes import adopt_orphans
from .supervisor import WATCHED, Disowned, Supervisor

STARTED = b"1"
"""The supervisor's answer to its launcher when it has recorded itself; any other answer says why it could not."""

ANSWER_BYTES = 1024

_SHRUGGED_OFF = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def main(arguments: list[str]) -> int:
    """Entry of the archive: ``DIRECTORY NONCE CONFIRM-FD LOCK-FD``; a missing descriptor is -1.

    :data:`STARTED` on the first descriptor tells the launcher that the job is recorded, anything else why it
    is not; the second one is the step's lock, which lives as long as this process.
    """
    directory, nonce, confirm, lock = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    for signum in _SHRUGGED_OFF:
        signal.signal(signum, signal.SIG_IGN)
    for descriptor in (confirm, lock):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    os.umask(0o022)
    os.chdir("/")
    adopt_orphans()
    try:
        supervisor = Supervisor(directory, nonce)
        if not supervisor.take_turn():
            supervisor.leave()
            return 0
        supervisor.announce()
    except Exception as error:
        if isinstance(error, Disowned) and confirm < 0:
            return 0
        _answer(confirm, (str(error) or repr(error)).encode("utf-8", "replace"))
        raise
    _answer(confirm, STARTED)
    try:
        return supervisor.run()
    finally:
        supervisor.leave()


def _answer(descriptor: int, text: bytes) -> None:
    if descriptor >= 0:
        # Whoever waited for this may have been killed meanwhile; the job goes on.
        with contextlib.suppress(OSError):
            os.write(descriptor, text[:ANSWER_BYTES])
        os.close(descriptor)

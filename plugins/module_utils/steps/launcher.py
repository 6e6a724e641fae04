# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define what every launcher has to do, and pack the supervisor into the archive by which it travels.

A launcher is one file with one class that has the methods of :class:`Launcher`; :mod:`.launcher_registry` knows it.
"""

from __future__ import annotations

import sys
from typing import Protocol, Sequence

from ..core.zipapp import program_archive
from . import supervisor
from .files import StepFiles
from .job_state import JobState
from .lock import StepLock
from .records import JobRecord, StepRecords

ISOLATED = ("-I", "-S")
"""Python options that keep the caller's PYTHONPATH, user packages and .pth files out of the supervisor."""


class Launcher(Protocol):
    """Where and how a step's supervisor runs."""

    def query(self, step: StepFiles, records: StepRecords, unchanged: float | None = None) -> JobState:
        """Find out the state of the last job, of the records that were read just now.

        The caller has seen the same heartbeat for ``unchanged`` seconds; None where it has not watched.
        """

    def reconcile(self, step: StepFiles, job: JobRecord, lock: StepLock) -> JobState:
        """Find out the state of a job that was ``starting``, now that this process holds the step's lock."""

    def launch(self, step: StepFiles, job: JobRecord, lock: StepLock) -> list[str]:
        """Start the supervisor of ``job``, whose record is on disk with the phase ``starting``; return warnings.

        Called with the lock held, until the supervisor has recorded itself, or the batch system took the job.
        """

    def clear(self, step: StepFiles, job: JobRecord) -> None:
        """Stop what a job without supervisor has left running; called with the step's lock held."""

    def requeue(self, step: StepFiles, job: JobRecord, state: JobState) -> JobState:
        """Submit a job again that its scheduler has ended; the answer is its state then."""

    def cancel(self, step: StepFiles, job: JobRecord) -> None:
        """Ask a job to end, and return at once."""


def supervisor_archive() -> bytes:
    """Pack a zip archive that Python runs: the supervisor and the parts of this collection that it uses."""
    return program_archive(supervisor)


def supervisor_command(
    step: StepFiles, nonce: str, confirm: int = -1, lock: int = -1, python: str = "", variables: Sequence[str] = ()
) -> list[str]:
    """Return the command that runs the supervisor of one attempt at a step from its archive.

    Descriptors: ``confirm`` for its answer, ``lock`` of the step's lock. Variables are those of :func:`.own_job_id`.
    """
    own = [step.archive, step.directory, nonce, str(confirm), str(lock), *variables]
    return [python or sys.executable, *ISOLATED, *own]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a launcher promises, and the archive by which the supervisor travels.

A launcher is one file with one class that has the methods of :class:`Launcher`; :mod:`.builds` knows it by name.
"""

from __future__ import annotations

import sys
from typing import Protocol

from ..core.zipapp import program_archive
from . import (
    supervisor_entry,
)
from .job import Standing
from .lock import StepLock
from .step import StepFiles

ARCHIVE = ".supervisor.zip"
"""The supervisor's code in the step's directory: a job that outlives its module cannot use the module's own copy."""

ISOLATED = ("-I", "-S")
"""Python options that keep the caller's PYTHONPATH, user packages and .pth files out of the supervisor."""


class Launcher(Protocol):
    """Where and how a step's supervisor runs."""

    def standing(
        self, step: StepFiles, job: dict | None, outcome: dict | None, unchanged: float | None = None
    ) -> Standing:
        """How the last job stands.

        Args:
            step: the step.
            job: the record of its last job.
            outcome: the record of an end, of this job or of an older one.
            unchanged: for how many seconds the caller has seen the same heartbeat; None where it has not watched.
        """

    def settle(self, step: StepFiles, job: dict, lock: StepLock) -> Standing:
        """How a job stands that was ``starting``, now that this process holds the step's lock."""

    def launch(self, step: StepFiles, job: dict, lock: StepLock) -> list[str]:
        """Start the supervisor of ``job``, whose record is on disk with the phase ``starting``.

        Called with the step's lock held; returns when the supervisor has recorded itself, or the batch system has
        accepted the job.

        Returns:
            Warnings for the operator.
        """

    def clear(self, step: StepFiles, job: dict) -> None:
        """Stop what a job without supervisor has left running; called with the step's lock held."""

    def requeue(self, step: StepFiles, job: dict, standing: Standing) -> Standing:
        """Submit a job again that its scheduler has ended; the answer is how it stands then."""

    def cancel(self, step: StepFiles, job: dict) -> None:
        """Ask a job to end, and return at once."""


def supervisor_archive() -> bytes:
    """A zip archive that Python runs: the supervisor and the parts of this collection that it uses."""
    return program_archive(supervisor_entry)


def supervisor_command(
    step: StepFiles, nonce: str, confirm: int = -1, lock: int = -1, python: str = ""
) -> list[str]:
    """The command that runs the supervisor of one attempt at a step from its archive.

    Args:
        step: the step.
        nonce: the attempt's.
        confirm: descriptor for the supervisor's answer.
        lock: descriptor of the step's lock.
        python: the interpreter; this one where it is empty.
    """
    return [python or sys.executable, *ISOLATED, step.path(ARCHIVE), step.directory, nonce, str(confirm), str(lock)]

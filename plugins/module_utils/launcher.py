# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a launcher promises, and the archive by which the supervisor travels.

A launcher is one file with one class that has the methods of :class:`Launcher`; :mod:`.builds` knows it by name.
"""

from __future__ import annotations

import sys
from typing import Protocol

from ansible_collections.hpcml.torchstack.plugins.module_utils import (
    artefacts,
    errors,
    files,
    jobs,
    processes,
    steps,
    supervisor,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.archive import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.steplock import StepLock
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import StepFiles

ARCHIVE = ".supervisor.zip"
"""The supervisor's code in the step's directory: a job that outlives its module cannot use the module's own copy."""

ISOLATED = ("-I", "-S")
"""Python options that keep the caller's PYTHONPATH, user packages and .pth files out of the supervisor."""

_PARTS = (artefacts, errors, files, jobs, processes, steps, supervisor)
_MAIN = """import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.supervisor import main
sys.exit(main(sys.argv[1:]))
"""


class Launcher(Protocol):
    """Where and how a step's supervisor runs."""

    def standing(self, job: dict | None, outcome: dict | None) -> str:
        """How the last job stands, in the words of :func:`.jobs.judge`."""

    def launch(self, step: StepFiles, job: dict, lock: StepLock) -> list[str]:
        """Start the supervisor of ``job``, whose record is on disk with the phase ``starting``.

        Called with the step's lock held; returns when the supervisor has recorded itself, or the batch system has
        accepted the job.

        Returns:
            Warnings for the operator.
        """

    def clear(self, step: StepFiles, job: dict) -> None:
        """Stop what a job without supervisor has left running; called with the step's lock held."""


def supervisor_archive() -> bytes:
    """A zip archive that Python runs: the supervisor and the parts of this collection that it uses."""
    return program_archive(_MAIN, _PARTS)


def supervisor_command(step: StepFiles, nonce: str, confirm: int = -1, lock: int = -1) -> list[str]:
    """The command that runs the supervisor of one attempt at a step from its archive."""
    return [sys.executable, *ISOLATED, step.path(ARCHIVE), step.directory, nonce, str(confirm), str(lock)]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Every launcher by its name, and the one that knows a job."""

from __future__ import annotations

from typing import Mapping

from .job import read_record
from .launcher import Launcher
from .launcher_batch import BatchLauncher
from .launcher_local import LocalLauncher
from .step import StepFiles


def records_of(files: StepFiles) -> tuple[dict | None, dict | None, dict | None]:
    """The step's stamp, job and outcome records."""
    return read_record(files.stamp), read_record(files.job), read_record(files.exit)


def runner_of(job: dict | None, launcher: str = "local", options: Mapping | None = None) -> Launcher:
    """The launcher that knows a job.

    Args:
        job: the record of the job; what started it knows it.
        launcher: one of :data:`.job_options.LAUNCHERS`, where there is no job.
        options: what that is to ask its batch system for.
    """
    if job is not None:
        launcher, options = job["launcher"], job.get("options")
    return LocalLauncher() if launcher == "local" else BatchLauncher(launcher, options or {})

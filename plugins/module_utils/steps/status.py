# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find out whether a step waits, is being built, is done, failed or gone. No call waits for a build."""

from __future__ import annotations

import time
from typing import Any

from ..core.errors import StackError
from ..core.files import readable_by_all
from ..core.processes import here
from .decision import refuse_silent
from .files import StepFiles
from .job_state import LIVE, JobState
from .launcher import Launcher
from .launcher_registry import launcher_of
from .lock import keep_end
from .outcome import Outcome
from .records import JobRecord, StepRecords
from .results import failure, finished_result, obstacle_in, refused_submission, running_result

FIRST_QUERY_SECONDS = 0.5
"""A step that ends within this time needs no second call."""


def query(files: StepFiles, nonce: str, unchanged: float | None = None) -> dict[str, Any]:
    """Find out how a job is getting on: the module's result ``running``, ``done`` or ``cached``.

    StackError: it failed, was killed or replaced, went silent; or neither scheduler nor heartbeat tells that it lives.
    """
    with readable_by_all():
        return _query(files, nonce, unchanged)


def query_briefly(files: StepFiles, nonce: str) -> dict[str, Any]:
    """Query a job that has just begun, for a moment, so that a short step is done in one call."""
    deadline = time.monotonic() + FIRST_QUERY_SECONDS
    while True:
        result = query(files, nonce)
        if result["state"] != "running" or time.monotonic() > deadline:
            return result
        time.sleep(0.02)


def _query(files: StepFiles, nonce: str, unchanged: float | None) -> dict[str, Any]:
    records = StepRecords.read(files)
    job = _own_job(files, records.job, nonce)
    launcher = launcher_of(job)
    state = launcher.query(files, records, unchanged)
    # Read again after that: what ended in between has left its records.
    records = StepRecords.read(files)._replace(job=job)
    stamp, end = records.stamp, records.end
    if stamp is not None and records.succeeded:
        return finished_result(files, stamp, job, end)
    if not job.is_local and state.name in ("starting", "queued", "unasked", "requeue", "elsewhere"):
        # A script that was stopped has said so; whether that was its end is the scheduler's to say.
        return _batch_result(files, job, launcher, state)
    if state.end is not None:
        keep_end(files, job, state.end)
        raise failure(files, job, state.end)
    if end is not None and end.reason != "done":
        raise failure(files, job, end)
    if state.name == "silent":
        refuse_silent(files, job)
    if state.name in (*LIVE, "starting"):
        return running_result(files, job, here(), state)
    raise _death(files, job, state)


def _own_job(files: StepFiles, job: JobRecord | None, nonce: str) -> JobRecord:
    """Make sure that the step's job is the one that is followed."""
    if job is None:
        raise StackError(
            "The records of step %s are gone: there is no %s." % (files.name, files.job), "follow",
            "Run this again: the build without them stops itself, and the step is run anew.", files.job,
        )
    if job.nonce != nonce:
        raise StackError(
            "Another run has started step %s anew." % files.name, "follow", "Run this again to follow that build.",
            files.directory,
        )
    return job


def _death(files: StepFiles, job: JobRecord, state: JobState) -> StackError:
    """Make the error for a build that ended without a record of its end."""
    if state.name == "rebooted":
        reboot = "the machine rebooted while step %s was running" % files.name
        return failure(files, job, Outcome.of(state.name), reboot)
    obstacle = obstacle_in(files.directory)
    if obstacle:
        sentence = "step %s could not be recorded: %s cannot be written: %s" % (files.name, files.directory, obstacle)
        return failure(files, job, Outcome.of("error"), sentence)
    sentence = "step %s was killed, and its supervisor (pid %s) has recorded nothing" % (files.name, job.pid)
    return failure(files, job, Outcome.of("killed"), sentence)


def _batch_result(files: StepFiles, job: JobRecord, launcher: Launcher, state: JobState) -> dict[str, Any]:
    if state.error is not None:
        raise state.error
    if state.name == "starting":
        sentence = "the job of step %s was announced, and its scheduler does not know it" % files.name
        raise failure(files, job, Outcome.of("lost"), sentence)
    if state.name == "requeue":
        try:
            state = launcher.requeue(files, job, state)
        except StackError as error:
            if error.failed_step != "submit":
                raise
            raise refused_submission(files, job, error) from error
        job = JobRecord.read(files) or job
    return running_result(files, job, here(), state)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A look at a job: is it waiting, building, done, failed, gone? A look never waits for a build."""

from __future__ import annotations

import contextlib
import time

from ..batch.outcomes import TITLES
from ..core.errors import StackError
from ..core.files import readable_by_all, write_json
from ..core.processes import here
from .job import (
    LIVE,
    Standing,
    outcome_of,
    read_record,
    refuse_silent,
)
from .launcher import Launcher
from .launcher_registry import runner_of
from .lock import StepLock
from .results import (
    failure,
    job_keys,
    obstacle_in,
    progress_of,
    refused_warnings,
    running_result,
    stamped_result,
)
from .step import StepFiles, describe_outcome, utc


def look(files: StepFiles, nonce: str, unchanged: float | None = None) -> dict:
    """How a job is getting on.

    Args:
        files: the step.
        nonce: the job's.
        unchanged: for how many seconds the caller has seen the same heartbeat; None where it has not watched.

    Returns:
        The module's result with ``state`` ``running``, ``done`` or ``cached``.

    Raises:
        StackError: it failed, was killed, went silent, or has been replaced by another one; or its scheduler does not
            answer, and nothing else says that it lives.
    """
    with readable_by_all():
        return _look(files, nonce, unchanged)


def _look(files: StepFiles, nonce: str, unchanged: float | None) -> dict:
    job = _own_job(files, nonce)
    runner = runner_of(job)
    standing = runner.standing(files, job, read_record(files.exit), unchanged)
    # The records are read after the standing: what ended in between has left them.
    stamp, outcome = read_record(files.stamp), read_record(files.exit)
    end = outcome_of(job, outcome)
    if stamp is not None and stamp["nonce"] == nonce:
        return dict(
            stamped_result(files, stamp, True, "cached" if stamp["from_cache"] else "done"),
            progress=progress_of(files, job, stamp["seconds"]),
            warnings=[*(end or {}).get("notes", []), *refused_warnings(files, job, end or {})],
            **job_keys(files, job),
        )
    if job["launcher"] != "local" and standing.word in ("starting", "queued", "unasked", "requeue", "elsewhere"):
        # A script that was stopped has said so; whether that was its end is the scheduler's to say.
        return _look_at_batch(files, job, runner, standing)
    if standing.end is not None:
        keep_end(files, job, standing.end)
        raise failure(files, job, describe_outcome(files.name, standing.end), standing.end)
    if end is not None and end["reason"] != "done":
        raise failure(files, job, describe_outcome(files.name, end), end)
    if standing.word == "silent":
        refuse_silent(files, job)
    if standing.word in (*LIVE, "starting"):
        return running_result(files, job, here(), standing)
    raise _death(files, job, standing)


def _own_job(files: StepFiles, nonce: str) -> dict:
    """The record of the step's job, if it is the one that is followed."""
    job = read_record(files.job)
    if job is None:
        raise StackError(
            "The records of step %s are gone: there is no %s." % (files.name, files.job), "follow",
            "Run this again: the build without them stops itself, and the step is run anew.", files.job,
        )
    if job["nonce"] != nonce:
        raise StackError(
            "Another run has started step %s anew." % files.name, "follow", "Run this again to follow that build.",
            files.directory,
        )
    return job


def _death(files: StepFiles, job: dict, standing: Standing) -> StackError:
    """The error for a build that ended without a word."""
    if standing.word == "rebooted":
        reboot = "the machine rebooted while step %s was running" % files.name
        return failure(files, job, reboot, {"reason": standing.word})
    obstacle = obstacle_in(files.directory)
    if obstacle:
        sentence = "step %s could not be recorded: %s cannot be written: %s" % (files.name, files.directory, obstacle)
        return failure(files, job, sentence, {"reason": "error"})
    return failure(
        files, job, "step %s was killed without a word from its supervisor (pid %s)" % (files.name, job["pid"]),
        {"reason": "killed"},
    )


def _look_at_batch(files: StepFiles, job: dict, runner: Launcher, standing: Standing) -> dict:
    if standing.error is not None:
        raise standing.error
    if standing.word == "starting":
        sentence = "the job of step %s was announced, and its scheduler does not know it" % files.name
        raise failure(files, job, sentence, {"reason": "lost"})
    if standing.word == "requeue":
        try:
            standing = runner.requeue(files, job, standing)
        except StackError as error:
            if error.failed_step != "submit":
                raise
            raise refused_submission(files, job, error) from error
        job = read_record(files.job) or job
    return running_result(files, job, here(), standing)


def refused_submission(files: StepFiles, job: dict, error: StackError) -> StackError:
    """The error for a job that its scheduler has refused, which is recorded as the end of this attempt."""
    end = {"reason": "rejected", "words": error.message, "scheduler": TITLES[job["launcher"]], "advice": error.remedy}
    with contextlib.suppress(OSError):
        write_json(files.exit, dict(end, nonce=job["nonce"], finished=utc(time.time())))
    failed = failure(files, job, describe_outcome(files.name, end), end)
    failed.failed_step = "submit"
    return failed


def keep_end(files: StepFiles, job: dict, end: dict) -> bool:
    """Record what a scheduler says about the end of a job, which it will have forgotten some day.

    Left undone where nothing can be written, or somebody holds the step's lock.

    Returns:
        False where the lock is held, by who is about to start the step or by a supervisor that has not quite gone.
    """
    lock = StepLock(files, here())
    with contextlib.suppress(OSError):
        if not lock.acquire():
            return False
        try:
            if (read_record(files.job) or {}).get("nonce") == job["nonce"]:
                write_json(files.exit, dict({"finished": utc(time.time())}, **dict(end, nonce=job["nonce"])))
        finally:
            lock.withdraw()
    return True

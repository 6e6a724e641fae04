# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Taking something back: the stamp of a step, so that it runs again, or the build of a step that is running."""

from __future__ import annotations

import os
import time

from ..batch.outcomes import TITLES
from ..core.errors import StackError
from ..core.files import readable_by_all, write_atomic
from .job import LIVE, outcome_of, refuse_silent
from .launcher_registry import records_of, runner_of
from .results import job_keys
from .status import keep_end
from .step import StepFiles

START_SECONDS = 40.0
"""How long a build that is being started may take to be one that can be cancelled."""

LEAVE_SECONDS = 10.0
"""How long a supervisor that has written its stamp may take to be gone."""

CANCEL_SECONDS = 300.0
"""How long a cancelled build may take to end: its grace, and what its scheduler adds (``KillWait``, slurm.conf(5))."""


def forget(files: StepFiles, check: bool) -> dict:
    """Remove a step's stamp, so that it runs again, and takes nothing over; everything else stays.

    Args:
        files: the step.
        check: only say whether there is a stamp.

    Raises:
        StackError: the step is being built, and would be stamped after this.
    """
    stamp, job, outcome = records_of(files)
    standing = runner_of(job).standing(files, job, outcome).word
    if stamp is None and job is not None and standing in (*LIVE, "starting", "silent", "requeue", "unasked"):
        if job["launcher"] != "local":
            raise StackError(
                "Step %s waits or is being built as a job of %s, and will be stamped when it succeeds."
                % (files.name, TITLES[job["launcher"]]),
                "forget", "Wait for it, or cancel it with 'state: cancelled', and run this again.", files.directory,
            )
        raise StackError(
            "Step %s is being built on host %s (pid %s), and will be stamped when it succeeds."
            % (files.name, job["host"], job["pid"]),
            "forget",
            "Wait for it, or stop it with 'kill %s' on %s, and run this again." % (job["pid"], job["host"]),
            files.directory,
        )
    if stamp is not None and not check:
        # Its supervisor may be on its way out: whoever came next would take it for one that still builds.
        deadline = time.monotonic() + LEAVE_SECONDS
        while standing in LIVE and time.monotonic() < deadline:
            time.sleep(0.05)
            standing = runner_of(job).standing(files, job, outcome).word
        with readable_by_all():
            write_atomic(files.again, b"")
        os.unlink(files.stamp)
    return {
        "changed": stamp is not None,
        "log": files.log,
        "script": files.script,
        "state": "absent",
        "step": files.name,
    }


def cancel(files: StepFiles, check: bool) -> dict:
    """End the build of a step, or take its job out of the queue, and wait for that; everything else stays.

    Args:
        files: the step.
        check: only say whether there is something to cancel.

    Returns:
        The module's result with the state ``cancelled``.

    Raises:
        StackError: it cannot be reached from here, or does not end.
    """
    with readable_by_all():
        return _cancel(files, check)


def _cancel(files: StepFiles, check: bool) -> dict:
    stamp, job, outcome = records_of(files)
    result = {"changed": False, "log": files.log, "script": files.script, "state": "cancelled", "step": files.name}
    # The stamp is written last: a supervisor that is still seen is on its way out.
    if job is None or (stamp is not None and stamp["nonce"] == job["nonce"]):
        return result
    runner = runner_of(job)
    standing = runner.standing(files, job, outcome)
    deadline = time.monotonic() + START_SECONDS
    while standing.word == "starting" and time.monotonic() < deadline:
        time.sleep(0.5)
        _stamp, job, outcome = records_of(files)
        standing = runner.standing(files, job, outcome)
    if standing.error is not None:
        raise standing.error
    if standing.word == "silent" and job is not None:
        refuse_silent(files, job)
    # What has not begun by now never will: whoever was to start it is gone.
    if job is None or standing.word not in (*LIVE, "requeue"):
        return result
    result.update(job_keys(files, job, standing.queue), changed=True)
    if check:
        return result
    runner.cancel(files, job)
    _await_end(files, job)
    stamp, now, outcome = records_of(files)
    replaced = now is None or now["nonce"] != job["nonce"]
    if not replaced and (stamp is None or stamp["nonce"] != job["nonce"]):
        request = {
            "reason": "cancelled", "words": "on request", "scheduler": TITLES[job["launcher"]],
            "job_id": result.get("job_id"),
        }
        end, deadline = dict(outcome_of(job, outcome) or {}, **request), time.monotonic() + START_SECONDS
        # A supervisor says how its build ended before it goes, and holds the lock until then.
        while not keep_end(files, job, end) and time.monotonic() < deadline:
            time.sleep(0.1)
    return result


def _await_end(files: StepFiles, job: dict) -> None:
    deadline, pause = time.monotonic() + CANCEL_SECONDS, 0.1
    while True:
        _stamp, now, outcome = records_of(files)
        if now is None or now["nonce"] != job["nonce"]:
            return
        standing = runner_of(now).standing(files, now, outcome)
        if standing.word not in (*LIVE, "starting", "unasked"):
            return
        if time.monotonic() > deadline:
            raise StackError(
                "Step %s was cancelled, and has not ended in %d s." % (files.name, CANCEL_SECONDS), "cancel",
                "Look at its log, %s, and run this again." % files.log, files.log,
            )
        time.sleep(pause)
        pause = min(2 * pause, 2.0)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Cancel the build of a step that is running, or forget that a step has succeeded."""

from __future__ import annotations

import os
import time
from typing import Any

from ..batch.registry import title_of
from ..core.errors import StackError
from ..core.files import readable_by_all, write_atomic
from .decision import refuse_silent
from .files import StepFiles
from .job_state import LIVE
from .launcher_registry import launcher_of
from .lock import keep_end
from .outcome import Outcome
from .records import JobRecord, StepRecords
from .results import job_keys

START_SECONDS = 40.0
"""How long a build that is being started may take to be one that can be cancelled."""

LEAVE_SECONDS = 10.0
"""How long a supervisor that has written its stamp may take to be gone."""

CANCEL_SECONDS = 300.0
"""How long a cancelled build may take to end: its grace, and what its scheduler adds (``KillWait``, slurm.conf(5))."""


def forget(files: StepFiles, check: bool) -> dict[str, Any]:
    """Remove a step's stamp, so that it runs again, and takes nothing over; with ``check`` only look for it.

    StackError: the step is being built, and would be stamped after this.
    """
    records = StepRecords.read(files)
    stamp, job = records.stamp, records.job
    launcher = launcher_of(job)
    state = launcher.query(files, records).name
    if stamp is None and job is not None and state in (*LIVE, "starting", "silent", "requeue", "unasked"):
        if not job.is_local:
            raise StackError(
                "Step %s waits or is being built as a job of %s, and will be stamped when it succeeds."
                % (files.name, title_of(job.launcher)),
                "forget", "Wait for it, or cancel it with 'state: cancelled', and run this again.", files.directory,
            )
        raise StackError(
            "Step %s is being built on host %s (pid %s), and will be stamped when it succeeds."
            % (files.name, job.host, job.pid), "forget",
            "Wait for it, or stop it with 'kill %s' on %s, and run this again." % (job.pid, job.host),
            files.directory,
        )
    if stamp is not None and not check:
        # Its supervisor may be on its way out: whoever came next would take it for one that still builds.
        deadline = time.monotonic() + LEAVE_SECONDS
        while state in LIVE and time.monotonic() < deadline:
            time.sleep(0.05)
            state = launcher.query(files, records).name
        with readable_by_all():
            write_atomic(files.again, b"")
        os.unlink(files.stamp)
    return {
        "changed": stamp is not None, "log": files.log, "script": files.script, "state": "absent", "step": files.name,
    }


def cancel(files: StepFiles, check: bool) -> dict[str, Any]:
    """End the build of a step, or take its job out of the queue, and wait for that; everything else stays.

    StackError: it cannot be reached from here, or does not end.
    """
    with readable_by_all():
        return _cancel(files, check)


def _cancel(files: StepFiles, check: bool) -> dict[str, Any]:
    records = StepRecords.read(files)
    job = records.job
    result = {"changed": False, "log": files.log, "script": files.script, "state": "cancelled", "step": files.name}
    # The stamp is written last: a supervisor that is still seen is on its way out.
    if job is None or records.succeeded:
        return result
    launcher = launcher_of(job)
    state = launcher.query(files, records)
    deadline = time.monotonic() + START_SECONDS
    while state.name == "starting" and time.monotonic() < deadline:
        time.sleep(0.5)
        records = StepRecords.read(files)
        job, state = records.job, launcher.query(files, records)
    if state.error is not None:
        raise state.error
    if state.name == "silent" and job is not None:
        refuse_silent(files, job)
    # What has not begun by now never will: whoever was to start it is gone.
    if job is None or state.name not in (*LIVE, "requeue"):
        return result
    result.update(job_keys(files, job, state.queue), changed=True)
    if check:
        return result
    launcher.cancel(files, job)
    _await_end(files, job)
    records = StepRecords.read(files)
    if job.is_same(records.job) and not records.succeeded:
        end = (records.end or Outcome("")).with_facts(
            reason="cancelled", words="on request", scheduler=title_of(job.launcher), job_id=result.get("job_id")
        )
        deadline = time.monotonic() + START_SECONDS
        # A supervisor says how its build ended before it goes, and holds the lock until then.
        while not keep_end(files, job, end) and time.monotonic() < deadline:
            time.sleep(0.1)
    return result


def _await_end(files: StepFiles, job: JobRecord) -> None:
    """Wait until a job has ended, or was replaced; StackError: it has not in :data:`CANCEL_SECONDS`."""
    deadline, pause = time.monotonic() + CANCEL_SECONDS, 0.1
    while True:
        records = StepRecords.read(files)
        if not job.is_same(records.job):
            return
        if launcher_of(records.job).query(files, records).name not in (*LIVE, "starting", "unasked"):
            return
        if time.monotonic() > deadline:
            raise StackError(
                "Step %s was cancelled, and has not ended in %d s." % (files.name, CANCEL_SECONDS), "cancel",
                "Look at its log, %s, and run this again." % files.log, files.log,
            )
        time.sleep(pause)
        pause = min(2 * pause, 2.0)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Decide what is to be done about a step, by its records and the state of its last job."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..batch.registry import title_of
from ..core.errors import StackError
from .attempt import Order
from .files import StepFiles
from .job_state import LIVE, JobState
from .launcher import Launcher
from .launcher_registry import launcher_of
from .lock import StepLock
from .outcome import Outcome, describe_outcome
from .records import JobRecord, StepRecords
from .request import Request


class Assessment(NamedTuple):
    """What is known of the last attempt at a step, and what is to be done."""

    records: StepRecords
    launcher: Launcher
    """That of the last job."""
    state: JobState
    action: str
    """See :func:`decide`."""
    resumed: str | None
    """Why the step runs again, where it has to; see :func:`resume_reason`."""


def assess(request: Request, order: Order, lock: StepLock | None = None) -> Assessment:
    """Read the records of a step anew, find out the state of its last job, and :func:`decide`."""
    files, records = request.files, StepRecords.read(request.files)
    stamped, job = records.is_stamped(order.digest), records.job
    # A dangling link exists.
    missing = [path for path in request.created_paths if not os.path.lexists(path)]
    launcher = launcher_of(job, order.launcher, order.options)
    state = launcher.query(files, records)
    if lock is not None and state.name == "starting" and job is not None:
        state = launcher.reconcile(files, job, lock)
    action = decide(files, order.digest, records, stamped and not missing, state.name)
    resumed = resume_reason(files.name, state.name, job, state.end or records.end, missing if stamped else [])
    return Assessment(records, launcher, state, action, resumed)


def decide(files: StepFiles, digest: str, records: StepRecords, complete: bool, state: str) -> str:
    """Decide what is to be done about a step: ``unchanged``, ``attach``, ``wait``, ``refuse`` or ``run``.

    ``complete``: it has its stamp, and all its paths. StackError: a build with other inputs is, or may be, running.
    """
    job = records.job
    if complete:
        return "unchanged"
    if records.succeeded:
        # The supervisor writes the stamp last: if it is still seen alive, it is on its way out.
        return "run"
    if state in LIVE and job is not None:
        if job.digest != digest:
            refuse_other_build(files, job, digest)
        return "attach"
    if state == "silent" and job is not None:
        refuse_silent(files, job)
    if state == "requeue" and job is not None and job.digest == digest:
        return "attach"
    return {"starting": "wait", "unasked": "refuse"}.get(state, "run")


def refuse_other_build(files: StepFiles, job: JobRecord, digest: str) -> None:
    """Refuse to go on: an older build of the step, with other inputs, is still running."""
    if not job.is_local:
        raise StackError(
            "Step %s is being built with other inputs by a job of %s (started %s, log %s)."
            % (files.name, title_of(job.launcher), job.started, files.log),
            "start", "Wait for it and run this again, or cancel it with 'state: cancelled'.", files.directory,
            running_digest=job.digest, digest=digest,
        )
    raise StackError(
        "Step %s is being built with other inputs on host %s (pid %s, started %s, log %s)."
        % (files.name, job.host, job.pid, job.started, files.log), "start",
        "Wait for it and run this again, or stop it with 'kill %s' on %s." % (job.pid, job.host), files.directory,
        running_digest=job.digest, digest=digest,
    )


def refuse_silent(files: StepFiles, job: JobRecord) -> None:
    """Refuse to go on: a job of another host has gone silent, and nobody here can know whether it is dead."""
    raise StackError(
        "Step %s belongs to a build on host %s (pid %s, started %s), whose last heartbeat was at %s."
        % (files.name, job.host, job.pid or "unknown", job.started, job.heartbeat), "start",
        "Run this on %s, which can tell whether the build is alive; if that host is gone for good, remove %s and run "
        "this again: a build that comes back without that file stops itself." % (job.host, files.job), files.job,
    )


def resume_reason(
    name: str, state: str, job: JobRecord | None, outcome: Outcome | None, missing: list[str]
) -> str | None:
    """Say why a step runs although an attempt was made before, as one sentence; None for a first attempt."""
    if missing:
        return "%s was complete, but %s is gone" % (name, ", ".join(missing))
    if job is None:
        return None
    where = "(host %s, pid %s, started %s)" % (job.host, job.pid or "unknown", job.started)
    if state == "rebooted":
        return "the machine rebooted while %s was running %s; resumed" % (name, where)
    if state == "leftover":
        return "the supervisor of %s was killed %s; what was left of it was stopped; resumed" % (name, where)
    if state == "unsubmitted":
        return "the controller of %s ended before its job was submitted (host %s, started %s); resumed" % (
            name, job.host, job.started)
    if state == "killed":
        return "%s was killed %s; resumed" % (name, where)
    if outcome is not None and outcome.reason != "done":
        return "the last attempt failed: %s" % describe_outcome(name, outcome)
    return None

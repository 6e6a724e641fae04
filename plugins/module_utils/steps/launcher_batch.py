# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a step as a job of a batch system, and find out the state of that job.

Before it submits, it writes down the name that the job will have. A process that is killed between the scheduler's
acceptance and its answer therefore leaves a question that the scheduler can answer, and nobody submits before it has:
neither the next run, nor another one meanwhile, because the submitting command holds the step's lock itself.

What the scheduler says of a job counts more than its heartbeat. Beside the states of :func:`.judge` its jobs are

* ``queued``: the scheduler knows the job, and its supervisor has not reported, or the job was put back;
* ``requeue``: the scheduler has ended it for a reason for which the site has it submitted again;
* ``ended``: the scheduler has ended it, or its script ended without a record; the state says how;
* ``lost``: the scheduler has answered and does not know it, and its heartbeat has stopped;
* ``unsubmitted``: the scheduler has never seen it;
* ``unasked``: the scheduler does not answer, and nothing else says that the job lives.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Mapping

from ..batch.outcomes import OVERRULING
from ..batch.registry import system_of
from ..batch.scheduler import ENDED, PENDING, JobStatus, current_job, end_of_job, queue_of
from ..core.errors import StackError
from ..core.processes import here
from .batch_submission import RECONCILE_SECONDS, submit
from .files import StepFiles
from .job_state import WATCH_SECONDS, JobState, heartbeat_changes
from .lock import StepLock
from .outcome import Outcome
from .records import BatchStart, JobRecord, Stamp, StepRecords, Submission
from .turn_records import former_of, turn_path

RECORD_SECONDS = 10.0
"""How long the record of an end is waited for after the end of its job, where the file system shows it late."""

END_SECONDS = 15.0
"""How long a job whose script has ended may take to be over for its scheduler, which may say why it ended."""

_stopped: set[tuple[str, str]] = set()
"""Heartbeats that this process has watched standing still: once is enough."""

INTERRUPTED = ("stopped", "signal", "exit")
"""Ends of a script that may come from its scheduler, which asks jobs by a signal to end."""


class BatchLauncher:
    """Run supervisors as jobs of the batch system of this name."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.scheduler = system_of(name)(options.get("bin", ""))
        self.options = options

    def query(self, step: StepFiles, records: StepRecords, unchanged: float | None = None) -> JobState:
        job, end = records.job, records.end
        if job is None:
            return JobState("none")
        if end is not None and end.reason == "done" and not job.has_stamped(Stamp.read(step)):
            # The stamp is written after it: its supervisor is about to, or was ended before it could.
            end = None
        if end is not None and end.reason not in INTERRUPTED:
            return JobState("finished")
        submission = Submission.read(step, job)
        if submission is None:
            return JobState("starting")
        try:
            status = self._ask(submission, end)
        except StackError as error:
            return self._unasked(step, job, end, unchanged, error)
        if status is None:
            return self._unknown(step, job, submission, end, unchanged)
        if status.state == ENDED:
            return self._over(step, job, submission, end, status)
        if end is not None and end.reason != "stopped" and status.state != PENDING:
            return JobState("finished")
        former = self._former_host(step, job, status)
        if end is not None or job.phase != "running" or status.state == PENDING or former:
            return JobState("queued", queue=queue_of(status, submission.requeues, former))
        return JobState("elsewhere")

    @staticmethod
    def _former_host(step: StepFiles, job: JobRecord, status: JobStatus) -> str:
        """Return the host of an earlier supervisor that this start waits for; empty where there is none."""
        if job.phase != "running":
            former = former_of(job)
            return former[0].owner.host if former and not former[0].has_left(step) else ""
        start = job.batch or BatchStart()
        earlier = start.restarts is not None and status.restarts > start.restarts
        followed = start.turn is not None and os.path.lexists(turn_path(step, job.nonce, start.turn + 1))
        return job.host if earlier or followed else ""

    def _ask(self, submission: Submission, end: Outcome | None) -> JobStatus | None:
        """Ask the scheduler for the job; where its script has ended, after that was noticed."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            status = current_job(self.scheduler.find(submission.job_name))
            leaving = end is not None and status is not None and status.state not in (ENDED, PENDING)
            if not leaving or time.monotonic() > deadline:
                return status
            time.sleep(0.5)

    def _unasked(
        self, step: StepFiles, job: JobRecord, end: Outcome | None, unchanged: float | None, error: StackError
    ) -> JobState:
        if end is not None and end.reason != "stopped":
            return JobState("finished")
        if end is None and job.phase == "running" and self._lives(step, job, unchanged):
            return JobState("elsewhere")
        return JobState("unasked", error=error)

    def _unknown(
        self, step: StepFiles, job: JobRecord, submission: Submission, end: Outcome | None, unchanged: float | None
    ) -> JobState:
        """Tell the state of a job that the scheduler does not know: it was never there, or it is long over."""
        if end is not None:
            return JobState("finished")
        if job.phase == "running" and self._lives(step, job, unchanged):
            return JobState("elsewhere")
        if submission.job_id is None and job.phase != "running":
            return JobState("starting")
        if self._record_appears(step, job):
            return JobState("finished")
        job_id = submission.job_id or (job.batch and job.batch.job_id)
        lost = Outcome.of("lost", job_id=job_id, words="", scheduler=self.scheduler.title, node=job.host)
        return JobState("lost", end=lost)

    def _over(
        self, step: StepFiles, job: JobRecord, submission: Submission, end: Outcome | None, status: JobStatus
    ) -> JobState:
        if status.end not in OVERRULING and (end is not None or self._record_appears(step, job)):
            return JobState("finished")
        if job.has_stamped(Stamp.read(step)):
            return JobState("finished")
        verdict = (end or Outcome("")).with_facts(**end_of_job(status, self.scheduler.title))
        count = submission.requeues + status.restarts
        if status.end in self.options.get("requeue_on", ()) and count < self.options.get("requeue", 0):
            return JobState("requeue", queue=queue_of(status, submission.requeues), end=verdict)
        return JobState("ended", end=verdict)

    def _lives(self, step: StepFiles, job: JobRecord, unchanged: float | None) -> bool:
        if unchanged is not None:
            return unchanged < WATCH_SECONDS
        sign = (job.nonce, job.heartbeat)
        if sign not in _stopped and heartbeat_changes(step, WATCH_SECONDS):
            return True
        _stopped.add(sign)
        return False

    def _record_appears(self, step: StepFiles, job: JobRecord) -> bool:
        """Wait for the record of the job's end, which a shared file system may show late."""
        deadline = time.monotonic() + RECORD_SECONDS
        while not job.has_stamped(Stamp.read(step)):
            end = Outcome.read(step)
            if end is not None and end.nonce == job.nonce and end.reason != "done":
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
            # A change of its own makes a client of NFS ask the server what the directory holds.
            with contextlib.suppress(OSError):
                os.utime(step.directory)
        return True

    def reconcile(self, step: StepFiles, job: JobRecord, lock: StepLock) -> JobState:
        """See :class:`.launcher.Launcher`: nobody submits any more, and a request may still be on its way."""
        if Submission.read(step, job) is None:
            return JobState("unsubmitted")
        deadline = time.monotonic() + RECONCILE_SECONDS
        while True:
            state = self.query(step, StepRecords(None, job, Outcome.read(step)))
            if state.name != "starting":
                return state
            if time.monotonic() > deadline:
                return JobState("unsubmitted")
            time.sleep(1.0)

    def launch(self, step: StepFiles, job: JobRecord, lock: StepLock) -> list[str]:
        """See :class:`.launcher.Launcher`, and :func:`.batch_submission.submit` for errors."""
        submit(self.scheduler, self.options, step, job, lock)
        return []

    def clear(self, step: StepFiles, job: JobRecord) -> None:
        """See :class:`.launcher.Launcher`; a scheduler ends all processes of a job itself."""

    def requeue(self, step: StepFiles, job: JobRecord, state: JobState) -> JobState:
        """See :class:`.launcher.Launcher`; where somebody else is at it, the job is about to be queued."""
        lock = StepLock(step, here())
        if not lock.acquire():
            return JobState("queued", queue=state.queue)
        try:
            current, submission = JobRecord.read(step), Submission.read(step, job)
            mine = job.is_same(current) and submission is not None
            again = self.query(step, StepRecords(None, job, Outcome.read(step))) if mine else state
            if not mine or submission is None or again.name != "requeue":
                return again if again.name == "queued" else JobState("queued", queue=state.queue)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(step.exit)
            job._replace(phase="starting", pid=None, start_time=None).write(step)
            submit(self.scheduler, self.options, step, job, lock, submission.requeues + 1)
        finally:
            lock.withdraw()
        return self.query(step, StepRecords(None, JobRecord.read(step) or job, None))

    def cancel(self, step: StepFiles, job: JobRecord) -> None:
        submission = Submission.read(step, job)
        for status in self.scheduler.find(submission.job_name) if submission else ():
            if status.state != ENDED:
                self.scheduler.cancel(status.job_id)

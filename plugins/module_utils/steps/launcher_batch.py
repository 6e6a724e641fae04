# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The launcher that runs a step as a job of a batch system.

Before it submits, it writes down the name that the job will have. A process that is killed between the scheduler's
acceptance and its answer therefore leaves a question that the scheduler can answer, and nobody submits before it has:
neither the next run, nor another one meanwhile, because the submitting command holds the step's lock itself.

The scheduler's word on a job counts more than its heartbeat. Beside the words of :func:`.jobs.judge` its jobs stand

* ``queued``: the scheduler knows the job, and its supervisor has not reported, or the job was put back;
* ``requeue``: the scheduler has ended it for a reason for which the site has it submitted again;
* ``ended``: the scheduler has ended it, or its script ended without a record; the standing says how;
* ``lost``: the scheduler has answered and does not know it, and its heartbeat has stopped;
* ``unsubmitted``: the scheduler has never seen it;
* ``unasked``: the scheduler does not answer, and nothing else says that the job lives.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Mapping

from ..batch.batch_sights import end_of_job, queue_of
from ..batch.outcomes import OVERRULING
from ..batch.scheduler import (
    ENDED,
    PENDING,
    Sight,
    last_sight,
    scheduler_of,
)
from ..core.errors import StackError
from ..core.files import write_atomic, write_json
from ..core.processes import here
from .batch_claim import former_of, turn_path
from .batch_records import (
    SCRIPT,
    SUBMISSION,
    job_name,
    submission_of,
)
from .job import (
    WATCH_SECONDS,
    Standing,
    heartbeat_changes,
    outcome_of,
    read_record,
)
from .launcher import supervisor_command
from .lock import StepLock
from .step import StepFiles, utc

SETTLE_SECONDS = 35.0
"""How long a submission without an answer is looked for before there is another one. A request may be on its way for as
long as a command of Slurm waits for its answer (10 s; ``MessageTimeout``, slurm.conf(5)), or as a hook of PBS may take
to let a job in (30 s; ``alarm``, pbs_hook_attributes(7B))."""

RECORD_SECONDS = 10.0
"""How long the record of an end is waited for after the end of its job, where the file system shows it late."""

END_SECONDS = 15.0
"""How long a job whose script has ended may take to be over for its scheduler, which may say why it ended."""

_stopped: set[tuple[str, str]] = set()
"""Heartbeats that this process has watched standing still: once is enough."""

INTERRUPTED = ("stopped", "signal", "exit")
"""Ends of a script that may come from its scheduler, which asks jobs by a signal to end."""


class BatchLauncher:
    """Runs supervisors as jobs.

    Args:
        name: ``slurm`` or ``pbs``.
        options: as :func:`.job_options.check_options` returns them.
    """

    def __init__(self, name: str, options: Mapping) -> None:
        self.scheduler = scheduler_of(name, options.get("bin", ""))
        self.options = options

    def standing(
        self, step: StepFiles, job: dict | None, outcome: dict | None, unchanged: float | None = None
    ) -> Standing:
        """See :class:`.launcher.Launcher`."""
        if job is None:
            return Standing("none")
        end = outcome_of(job, outcome)
        if end is not None and end["reason"] == "done" and not self._is_stamped(step, job):
            # The stamp is written after it: its supervisor is about to, or was ended before it could.
            end = None
        if end is not None and end["reason"] not in INTERRUPTED:
            return Standing("finished")
        submission = submission_of(step, job)
        if submission is None:
            return Standing("starting")
        try:
            sight = self._sight(submission, end)
        except StackError as error:
            return self._unasked(step, job, end, unchanged, error)
        if sight is None:
            return self._unknown(step, job, submission, end, unchanged)
        if sight.state == ENDED:
            return self._over(step, job, submission, end, sight)
        if end is not None and end["reason"] != "stopped" and sight.state != PENDING:
            return Standing("finished")
        former = self._former_host(step, job, sight)
        if end is not None or job["phase"] != "running" or sight.state == PENDING or former:
            return Standing("queued", queue=queue_of(sight, submission, former))
        return Standing("elsewhere")

    @staticmethod
    def _former_host(step: StepFiles, job: dict, sight: Sight) -> str:
        """The host of an earlier supervisor that the one of this start waits for; empty where there is none."""
        if job["phase"] != "running":
            former = former_of(job)
            return former[0].owner["host"] if former and not former[0].has_left(step) else ""
        started, turn = job.get("restarts"), job.get("turn")
        earlier = started is not None and sight.restarts > started
        followed = turn is not None and os.path.lexists(turn_path(step, job["nonce"], turn + 1))
        return job["host"] if earlier or followed else ""

    def _sight(self, submission: dict, end: dict | None) -> Sight | None:
        """The job as the scheduler shows it; where its script has ended, after that was noticed."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            sight = last_sight(self.scheduler.find(submission["job_name"]))
            leaving = end is not None and sight is not None and sight.state not in (ENDED, PENDING)
            if not leaving or time.monotonic() > deadline:
                return sight
            time.sleep(0.5)

    def _unasked(
        self, step: StepFiles, job: dict, end: dict | None, unchanged: float | None, error: StackError
    ) -> Standing:
        if end is not None and end["reason"] != "stopped":
            return Standing("finished")
        if end is None and job["phase"] == "running" and self._lives(step, job, unchanged):
            return Standing("elsewhere")
        return Standing("unasked", error=error)

    def _unknown(
        self, step: StepFiles, job: dict, submission: dict, end: dict | None, unchanged: float | None
    ) -> Standing:
        """A job that a scheduler that has answered does not know: it was never there, or it is long over."""
        if end is not None:
            return Standing("finished")
        if job["phase"] == "running" and self._lives(step, job, unchanged):
            return Standing("elsewhere")
        if submission["job_id"] is None and job["phase"] != "running":
            return Standing("starting")
        if self._record_appears(step, job):
            return Standing("finished")
        lost = {"reason": "lost", "job_id": submission["job_id"] or job.get("job_id"), "words": ""}
        return Standing("lost", end=dict(lost, scheduler=self.scheduler.title, node=job["host"]))

    def _over(
        self, step: StepFiles, job: dict, submission: dict, end: dict | None, sight: Sight
    ) -> Standing:
        if sight.end not in OVERRULING and (end is not None or self._record_appears(step, job)):
            return Standing("finished")
        if self._is_stamped(step, job):
            return Standing("finished")
        verdict = dict(end or {}, **end_of_job(sight, self.scheduler.title))
        count = submission["requeues"] + sight.restarts
        if sight.end in self.options.get("requeue_on", ()) and count < self.options.get("requeue", 0):
            return Standing("requeue", queue=queue_of(sight, submission), end=verdict)
        return Standing("ended", end=verdict)

    def _lives(self, step: StepFiles, job: dict, unchanged: float | None) -> bool:
        if unchanged is not None:
            return unchanged < WATCH_SECONDS
        sign = (job["nonce"], job["heartbeat"])
        if sign not in _stopped and heartbeat_changes(step.job, WATCH_SECONDS):
            return True
        _stopped.add(sign)
        return False

    def _record_appears(self, step: StepFiles, job: dict) -> bool:
        """Whether the end of the job has been recorded; waits for it, as a shared file system may show it late."""
        deadline = time.monotonic() + RECORD_SECONDS
        while not self._is_stamped(step, job):
            end = outcome_of(job, read_record(step.exit))
            if end is not None and end["reason"] != "done":
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
            # A change of its own makes a client of NFS ask the server what the directory holds.
            with contextlib.suppress(OSError):
                os.utime(step.directory)
        return True

    @staticmethod
    def _is_stamped(step: StepFiles, job: dict) -> bool:
        return (read_record(step.stamp) or {}).get("nonce") == job["nonce"]

    def settle(self, step: StepFiles, job: dict, lock: StepLock) -> Standing:
        """See :class:`.launcher.Launcher`: nobody submits any more, and a request may still be on its way."""
        if submission_of(step, job) is None:
            return Standing("unsubmitted")
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            standing = self.standing(step, job, read_record(step.exit))
            if standing.word != "starting":
                return standing
            if time.monotonic() > deadline:
                return Standing("unsubmitted")
            time.sleep(1.0)

    def launch(self, step: StepFiles, job: dict, lock: StepLock) -> list[str]:
        """See :class:`.launcher.Launcher`.

        Raises:
            StackError: ``failed_step="submit"``: the scheduler has refused the job; or ``failed_step="scheduler"``:
                nobody knows whether it has accepted it, and the next run will ask.
        """
        self._submit(step, job, lock, 0)
        return []

    def _submit(self, step: StepFiles, job: dict, lock: StepLock, requeues: int) -> None:
        name = job_name(step.name, job["digest"], job["nonce"], requeues)
        command = supervisor_command(step, job["nonce"], python=self.options.get("python", ""))
        script = self.scheduler.script(name, self.options, step.log, command)
        path = step.path(SCRIPT)
        write_atomic(path, script.encode("utf-8"), 0o755)
        intent = {
            "job_id": None, "job_name": name, "nonce": job["nonce"], "requeues": requeues, "script": path,
            "submitted": utc(time.time()),
        }
        write_json(step.path(SUBMISSION), intent)
        try:
            job_id = self.scheduler.submit(path, self.options, [lock.descriptor], job.get("secrets", ()))
        except StackError as error:
            if error.failed_step != "scheduler":
                raise
            found = self._look_for(name)
            if found is None:
                raise
            job_id = found
        write_json(step.path(SUBMISSION), dict(intent, job_id=job_id))

    def _look_for(self, name: str) -> str | None:
        """The job of a submission whose answer was lost; None where the scheduler knows none, or does not answer."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            with contextlib.suppress(StackError):
                sight = last_sight(self.scheduler.find(name))
                if sight is not None:
                    return sight.job_id
            if time.monotonic() > deadline:
                return None
            time.sleep(1.0)

    def clear(self, step: StepFiles, job: dict) -> None:
        """See :class:`.launcher.Launcher`; a scheduler ends all processes of a job itself."""

    def requeue(self, step: StepFiles, job: dict, standing: Standing) -> Standing:
        """See :class:`.launcher.Launcher`.

        Where somebody else is at it, the job stands as before: it is about to be queued.
        """
        lock = StepLock(step, here())
        if not lock.acquire():
            return Standing("queued", queue=standing.queue)
        try:
            current, submission = read_record(step.job), submission_of(step, job)
            mine = current is not None and current["nonce"] == job["nonce"] and submission is not None
            again = self.standing(step, job, read_record(step.exit)) if mine else standing
            if not mine or submission is None or again.word != "requeue":
                return again if again.word == "queued" else Standing("queued", queue=standing.queue)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(step.exit)
            write_json(step.job, dict(job, phase="starting", pid=None, start_time=None))
            self._submit(step, job, lock, submission["requeues"] + 1)
        finally:
            lock.withdraw()
        return self.standing(step, read_record(step.job) or job, None)

    def cancel(self, step: StepFiles, job: dict) -> None:
        """See :class:`.launcher.Launcher`."""
        submission = submission_of(step, job)
        for sight in self.scheduler.find(submission["job_name"]) if submission else ():
            if sight.state != ENDED:
                self.scheduler.cancel(sight.job_id)

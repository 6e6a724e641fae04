# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Own the job of a step: its record with the heartbeat, its turn, its log."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Mapping, Sequence

from ..core.build_environment import handed_on
from ..core.clock import utc
from ..core.files import write_json
from ..core.processes import Process, here, read_process
from ..core.redaction import redacted, secret_values
from . import batch_claim, scratch
from .files import StepFiles
from .job_state import HEARTBEAT_SECONDS
from .records import BatchStart, JobRecord, Stamp, StepInputs, Submission
from .turn_records import former_of

REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals by which a supervisor is asked to end."""

WATCHED = (signal.SIGCHLD, *REQUESTS)
"""Signals that a supervisor takes out of :meth:`SupervisedJob.sleep`; they are blocked otherwise."""


class Disowned(Exception):
    """The step's job.json is gone or is another job's: this attempt has no right to go on."""


class SupervisedJob:
    """Hold the job of one attempt at a step, for its supervisor; Disowned: the step has another attempt by now."""

    def __init__(self, directory: str, nonce: str, variables: Sequence[str] = ()) -> None:
        self.files = StepFiles(os.path.basename(directory), directory)
        job = JobRecord.read(self.files)
        if job is None or job.nonce != nonce:
            # It took so long to start that the step was given to another one.
            raise Disowned("%s is another attempt's" % self.files.job)
        self.job = job
        self.variables = variables
        self.inputs = StepInputs.read(self.files)
        self.log = os.open(self.files.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.turn: batch_claim.Turn | None = None
        self.request: int | None = None
        """The signal by which this process was asked to end."""
        self.leaving = False
        self.hanging: list[Process] = []
        self.scratch = ""
        self.environment = handed_on(os.environ, self.inputs.secrets, variables[0] if variables else "")
        self.kept_back = sorted(set(os.environ) - set(self.environment))
        self.known = secret_values(self.environment, self.inputs.secrets)
        self.beaten = time.monotonic()
        self.begun = time.monotonic()

    def note(self, text: str) -> None:
        """Write a line of our own into the log."""
        with contextlib.suppress(OSError):
            os.write(self.log, ("==== %s\n" % redacted(text, self.known)).encode("utf-8", "replace"))

    def take_turn(self) -> bool:
        """Become the only supervisor of a job; False: another one of its batch system builds, or it is complete."""
        if self.job.is_local:
            batch_claim.Turn(self.files, self.job, here(), None).await_end_of(former_of(self.job))
            return True
        submission = Submission.read(self.files, self.job)
        if submission is None:
            return False
        job_id = batch_claim.own_job_id(os.environ, self.variables)
        self.turn = batch_claim.Turn(self.files, self.job, here(), job_id, submission.requeues)
        if not self.turn.take():
            return False
        job, stamp = JobRecord.read(self.files), Stamp.read(self.files)
        if job is None or job.nonce != submission.nonce or (stamp is not None and stamp.digest == job.digest):
            return False
        self.job = job
        return True

    def leave(self) -> None:
        """Give back what this attempt had to itself, when nothing is left running."""
        scratch.remove(self.scratch)
        if self.turn is not None and self.turn.number >= 0 and not self.hanging:
            self.turn.leave()

    def announce(self) -> None:
        """Become the recorded owner of the job."""
        place = here()
        process = read_process(os.getpid())
        now = utc(time.time())
        self.job = self.job._replace(
            phase="running", host=place.host, boot_id=place.boot_id, pid=os.getpid(),
            start_time=process.start_time if process else None, heartbeat=now, begun=now,
        )
        if self.turn is not None:
            restarts = batch_claim.own_restarts(os.environ, self.variables)
            start = BatchStart(self.turn.job_id, restarts, self.turn.number)
            self.job = self.job._replace(batch=start, log_offset=os.fstat(self.log).st_size)
        self.job.write(self.files)
        facts = (self.job.attempt, self.job.started, place.host, self.job.digest)
        self.note("attempt %d  %s  host %s  digest %s" % facts)
        if self.kept_back:
            self.note("not handed on of the caller's environment: %s" % " ".join(self.kept_back))

    def beat(self) -> None:
        """Write the heartbeat when it is due; Disowned: the job is no longer this one's."""
        if time.monotonic() - self.beaten < HEARTBEAT_SECONDS:
            return
        self.beaten = time.monotonic()
        if self.leaving:
            if self.turn is not None:
                self.turn.show_life()
            return
        self.check_ownership()
        self.job = self.job._replace(heartbeat=utc(time.time()))
        # A full or stuttering file system is no reason to give up a build; others will see the old heartbeat.
        with contextlib.suppress(OSError):
            self.job.beat(self.files)

    def check_ownership(self) -> None:
        """Make sure that job.json still names this job; Disowned: it does not."""
        try:
            record = JobRecord.read(self.files)
        except OSError:
            return
        if not self.job.is_same(record):
            raise Disowned
        if self.turn is not None and self.turn.lost():
            raise Disowned

    def sleep(self, seconds: float) -> None:
        """Sleep until something happens, at most ``seconds``."""
        received = signal.sigtimedwait(WATCHED, max(0.01, seconds))
        if received is not None and received.si_signo in REQUESTS:
            self.request = received.si_signo

    def keep(self, path: str, record: Mapping[str, Any], patience: float) -> None:
        """Write a record, again and again where that fails, for ``patience`` seconds or until a request to stop.

        OSError: it cannot be written. Disowned: the job is no longer this one's.
        """
        deadline, pause = time.monotonic() + patience, 0.1
        while True:
            try:
                return write_json(path, record)
            except OSError as error:
                if self.request is not None or time.monotonic() + pause > deadline:
                    raise
                self.note("%s cannot be written (%s); trying again" % (path, error.strerror))
            self.sleep(pause)
            self.check_ownership()
            pause = min(2 * pause, 5.0)

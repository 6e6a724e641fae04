# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Let one supervisor at a time build a step, wherever a batch system starts them.

A job may be submitted twice (its submission was lost, and then was not), and a scheduler that cannot reach a node puts
its job back while the supervisor there still works. So the supervisors of one attempt, which share its nonce, take
numbered turns: the turn of the highest number builds. A turn is taken by link(2), which is atomic on every shared file
system, and never removed while its attempt lasts, so that nobody can mistake a new turn for an old one.

Whoever has lost its turn stops its build, shows meanwhile that it lives, and says when it has left. The next one builds
at once where a former supervisor has said so, or was on this very node: what is left of it is stopped from here.

A scheduler's word that it has lost a node is no such certainty: slurmstepd or pbs_mom's children may live on with the
whole build. A former supervisor on another node is therefore waited for as long as it gives a sign of life, and given
up when it has missed :data:`MAX_MISSED_HEARTBEATS` heartbeats. One that was cut off from the shared file system for
longer, and comes back, stops its build at its next heartbeat. Nothing here compares the clocks of two nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Mapping, Sequence

from ..core.clock import utc
from ..core.processes import (
    Here,
    is_alive,
    job_processes,
    read_process,
    stop_processes,
)
from .files import StepFiles
from .job_state import HEARTBEAT_SECONDS, WATCH_SECONDS, heartbeat_changes
from .json_record import read_record, write_in_place
from .outcome import Outcome
from .records import JobRecord
from .turn_records import LEFT, Claim, Owner, claims_of, former_of, turn_path

MAX_MISSED_HEARTBEATS = 6
"""So many heartbeats without a sign of life make a former supervisor a dead one."""

CHECKS_PER_HEARTBEAT = 5


def own_job_id(environment: Mapping[str, str], variables: Sequence[str]) -> str | None:
    """Return the identifier of the batch job that this process is part of; None where it is part of none.

    The variables say the identifier, and how often the job was put back, if there is one for that.
    """
    return (environment.get(variables[0]) or None) if variables else None


def own_restarts(environment: Mapping[str, str], variables: Sequence[str]) -> int | None:
    """Count how often the batch job of this process had been put back; None where nobody says so."""
    if own_job_id(environment, variables) is None or len(variables) < 2:
        return None
    count = environment.get(variables[1], "0")
    return int(count) if count.isdigit() else None


class Turn:
    """This supervisor's right to build, in an attempt that was submitted ``requeues`` times again."""

    def __init__(self, files: StepFiles, job: JobRecord, place: Here, job_id: str | None, requeues: int = 0) -> None:
        self.files, self.job, self.place, self.job_id, self.requeues = files, job, place, job_id, requeues
        self.number = -1

    def take(self) -> bool:
        """Become the one that builds, once earlier ones have stopped; False where another one builds."""
        while True:
            claims = self.claims()
            if claims and not self._may_follow(claims[-1]):
                return False
            if self._claim(claims[-1].number + 1 if claims else 0):
                break
        return self.await_end_of([*former_of(self.job), *claims]) and not self.lost()

    def restarts(self) -> int:
        """Count how often this very job was started before."""
        return sum(claim.number < self.number and claim.owner.job_id == self.job_id for claim in self.claims())

    def excess(self) -> Outcome | None:
        """Return the end of an attempt whose job was put back more often than the site allows; None for others."""
        count, limit = self.requeues + self.restarts(), self.job.options.get("requeue", 0)
        if count <= limit:
            return None
        return Outcome.of("requeued", count=count, limit=limit, scheduler=self.job.launcher, job_id=self.job_id)

    def clean_up(self) -> None:
        """Remove what earlier starts have left: the record of their end, and on this machine processes."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.files.exit)
        if self.job.last_nonce:
            self._stop_former(self.job.last_nonce)

    def lost(self) -> bool:
        """Tell whether another supervisor has taken the next turn."""
        return os.path.lexists(turn_path(self.files, self.job.nonce, self.number + 1))

    def show_life(self) -> None:
        """Let whoever waits for the end of this turn see that it is about to come."""
        with contextlib.suppress(OSError):
            write_in_place(self._path, dict(read_record(self._path) or {}, leaving=utc(time.time())))

    def leave(self) -> None:
        """Say that nothing of this turn is left running."""
        with contextlib.suppress(OSError):
            os.close(os.open(self._path + LEFT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def claims(self) -> list[Claim]:
        """Read the turns of this attempt that were taken so far, in their order."""
        return claims_of(self.files, self.job.nonce)

    def await_end_of(self, claims: Sequence[Claim]) -> bool:
        """Wait until nothing of earlier turns can be left; False where this process was asked to end meanwhile."""
        for claim in claims:
            if self._is_here(claim):
                self._stop_former(claim.nonce)
        away = [claim for claim in claims if claim.owner.host != self.place.host]
        sign, missed = self._sign_of(away), 0
        limit = MAX_MISSED_HEARTBEATS * CHECKS_PER_HEARTBEAT
        while missed < limit and not all(claim.has_left(self.files) for claim in away):
            # Checks are counted rather than seconds: a file system that stands still does so for both sides.
            time.sleep(HEARTBEAT_SECONDS / CHECKS_PER_HEARTBEAT)
            if signal.SIGTERM in signal.sigpending():
                return False
            # A change of its own makes a client of NFS ask the server what the directory holds.
            with contextlib.suppress(OSError):
                os.utime(self.files.directory)
            last, sign = sign, self._sign_of(away)
            missed = missed + 1 if sign == last else 0
        return True

    def _sign_of(self, claims: Sequence[Claim]) -> tuple[object, ...]:
        """Read what changes as long as the owners of turns build, or stop their builds."""
        job = JobRecord.read(self.files)
        return (job and job.heartbeat, *(read_record(claim.path(self.files)) for claim in claims))

    def _stop_former(self, nonce: str) -> None:
        """Stop what earlier supervisors of an attempt have left on this machine."""
        own = nonce == self.job.nonce
        leader = (self.job.child_pid, self.job.child_start_time) if own else (None, None)
        stop_processes(lambda: job_processes(nonce, *leader, keep=os.getpid()), self.job.limits.grace, lambda: None)

    @property
    def _path(self) -> str:
        return turn_path(self.files, self.job.nonce, self.number)

    def _is_here(self, claim: Claim) -> bool:
        return (claim.owner.host, claim.owner.boot_id) == tuple(self.place)

    def _may_follow(self, claim: Claim) -> bool:
        if claim.has_left(self.files):
            return True
        if self._is_here(claim):
            return not is_alive(claim.owner.pid, claim.owner.start_time)
        # Its own job was started or submitted again: the scheduler has ended the earlier start, or believes so.
        again = claim.owner.job_id == self.job_id or claim.owner.requeues < self.requeues
        return again or not heartbeat_changes(self.files, WATCH_SECONDS)

    def _claim(self, number: int) -> bool:
        """Take a turn, unless somebody was faster."""
        process = read_process(os.getpid())
        owner = Owner(
            self.place.host, self.place.boot_id, os.getpid(), self.job_id, self.requeues,
            process.start_time if process else None,
        )
        path = turn_path(self.files, self.job.nonce, number)
        mine = "%s.%s.%d" % (path, self.place.host, os.getpid())
        try:
            with open(mine, "w", encoding="utf-8") as stream:
                json.dump(owner._asdict(), stream)
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)
            # NFS may do a link and then, when its answer was lost and it is asked again, say that it is there already.
            taken = os.stat(mine).st_nlink == 2
        finally:
            with contextlib.suppress(OSError):
                os.unlink(mine)
        self.number = number if taken else -1
        return taken

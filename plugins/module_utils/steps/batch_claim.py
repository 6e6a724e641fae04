# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""One supervisor of a step at a time, wherever a batch system starts them.

A job may be submitted twice (its submission was lost, and then was not), and a scheduler that cannot reach a node puts
its job back while the supervisor there still works. So the supervisors of one attempt, which share its nonce, take
numbered turns: the turn of the highest number builds. A turn is taken by link(2), which is atomic on every shared file
system, and never removed while its attempt lasts, so that nobody can mistake a new turn for an old one.

Whoever has lost its turn stops its build, shows meanwhile that it lives, and says when it has left. Nothing of a former
supervisor is certainly left, so that the next one builds at once, where

* it has said that it has left: preempted, requeued, cancelled, at its time limit;
* it was on this very node: in an earlier boot, or what is left of it is stopped from here.

A scheduler's word that it has lost a node is no such certainty: Slurm says so when slurmd does not answer, and
slurmstepd with the whole build may live on (so may pbs_mom's children). From another node a former supervisor is
therefore waited for as long as it gives a sign of life, and given up when it has missed :data:`SILENT_BEATS`
heartbeats. One that was cut off from the shared file system for longer, and comes back, stops its build at its next
heartbeat.

Nothing here compares the clocks of two nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from typing import Mapping, NamedTuple, Sequence

from ..core.processes import (
    Here,
    is_alive,
    job_processes,
    read_process,
    stop_processes,
)
from .job import (
    HEARTBEAT_SECONDS,
    WATCH_SECONDS,
    heartbeat_changes,
    read_record,
    write_in_place,
)
from .step import StepFiles, utc

PREFIX = ".turn."
LEFT = ".left"

SILENT_BEATS = 6
"""So many heartbeats without a sign of life make a former supervisor a dead one."""

LOOKS_PER_BEAT = 5

JOB_ID_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID")
"""Where a job finds its own identifier."""


def own_job_id(environment: Mapping[str, str]) -> str | None:
    """The identifier of the job that this process is part of."""
    for name in JOB_ID_VARIABLES:
        if environment.get(name):
            return environment[name]
    return None


def own_restarts(environment: Mapping[str, str]) -> int | None:
    """How often the scheduler had put back the job that this process is part of; None where it does not say.

    Slurm sets ``SLURM_RESTART_COUNT`` in a job that it has started again (sbatch(1)); PBS sets nothing.
    """
    if not environment.get("SLURM_JOB_ID"):
        return None
    count = environment.get("SLURM_RESTART_COUNT", "0")
    return int(count) if count.isdigit() else None


class Claim(NamedTuple):
    """A turn that was taken."""

    nonce: str
    number: int
    owner: dict

    def path(self, files: StepFiles) -> str:
        """The record of the turn, whose owner alone writes it."""
        return turn_path(files, self.nonce, self.number)

    def has_left(self, files: StepFiles) -> bool:
        """Whether its owner has said that nothing of it is left running."""
        return os.path.lexists(self.path(files) + LEFT)


def turn_path(files: StepFiles, nonce: str, number: int) -> str:
    """Where a turn of an attempt is recorded, if it was taken."""
    return files.path("%s%s.%d" % (PREFIX, nonce, number))


def claims_of(files: StepFiles, nonce: str) -> list[Claim]:
    """The turns of an attempt that were taken so far, in their order."""
    pattern = re.compile(re.escape("%s%s." % (PREFIX, nonce)) + r"(\d+)\Z")
    numbers = sorted(int(match.group(1)) for match in map(pattern.match, os.listdir(files.directory)) if match)
    return [Claim(nonce, number, read_record(turn_path(files, nonce, number)) or {}) for number in numbers]


def still_there(files: StepFiles, nonce: str) -> dict | None:
    """The last supervisor of an attempt, as the record of the next attempt has it; None where it has left."""
    claims = claims_of(files, nonce)
    return claims[-1]._asdict() if claims and not claims[-1].has_left(files) else None


def former_of(job: dict) -> list[Claim]:
    """The last supervisor of the attempt before this one, where that had not said that it has left."""
    return [Claim(**job["former"])] if job.get("former") else []


class Turn:
    """This supervisor's right to build.

    Args:
        files: the step.
        job: the record of the job.
        place: this machine.
        job_id: the batch job that this process is part of.
        requeues: how often the attempt was submitted again.
    """

    def __init__(self, files: StepFiles, job: dict, place: Here, job_id: str | None, requeues: int = 0) -> None:
        self.files, self.job, self.place, self.job_id, self.requeues = files, job, place, job_id, requeues
        self.number = -1

    def take(self) -> bool:
        """Become the one that builds, and wait until earlier ones have stopped.

        Returns:
            False where another one builds, which is to be left in peace.
        """
        while True:
            claims = self.claims()
            if claims and not self._may_follow(claims[-1]):
                return False
            if self._claim(claims[-1].number + 1 if claims else 0):
                break
        return self.await_end_of([*former_of(self.job), *claims]) and not self.lost()

    def restarts(self) -> int:
        """How often this very job was started before."""
        return sum(
            claim.number < self.number and claim.owner["job_id"] == self.job_id for claim in self.claims()
        )

    def excess(self) -> dict | None:
        """The end of an attempt whose job was put back more often than the site allows; None where it was not."""
        count, limit = self.requeues + self.restarts(), self.job["options"].get("requeue", 0)
        if count <= limit:
            return None
        end = {"reason": "requeued", "count": count, "limit": limit}
        return dict(end, scheduler=self.job["launcher"], job_id=self.job_id)

    def clean_up(self) -> None:
        """Remove what earlier starts have left: their word on how they were stopped, and on this machine processes."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.files.exit)
        if self.job.get("last_nonce"):
            self._stop_former(self.job["last_nonce"])

    def lost(self) -> bool:
        """Whether another supervisor has taken the next turn."""
        return os.path.lexists(turn_path(self.files, self.job["nonce"], self.number + 1))

    def show_life(self) -> None:
        """Let whoever waits for the end of this turn see that it is about to come."""
        with contextlib.suppress(OSError):
            write_in_place(self._path, dict(read_record(self._path) or {}, leaving=utc(time.time())))

    def leave(self) -> None:
        """Say that nothing of this turn is left running."""
        with contextlib.suppress(OSError):
            os.close(os.open(self._path + LEFT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def claims(self) -> list[Claim]:
        """The turns of this attempt that were taken so far, in their order."""
        return claims_of(self.files, self.job["nonce"])

    def await_end_of(self, claims: Sequence[Claim]) -> bool:
        """Wait until nothing of earlier turns is left, as far as that can be known; see the top of this file.

        Returns:
            False where this process was asked to end meanwhile.
        """
        for claim in claims:
            if self._is_here(claim):
                self._stop_former(claim.nonce)
        away = [claim for claim in claims if claim.owner["host"] != self.place.host]
        sign, missed = self._sign_of(away), 0
        while missed < SILENT_BEATS * LOOKS_PER_BEAT and not all(claim.has_left(self.files) for claim in away):
            # Looks are counted rather than seconds: a file system that stands still does so for both sides.
            time.sleep(HEARTBEAT_SECONDS / LOOKS_PER_BEAT)
            if signal.SIGTERM in signal.sigpending():
                return False
            # A change of its own makes a client of NFS ask the server what the directory holds.
            with contextlib.suppress(OSError):
                os.utime(self.files.directory)
            last, sign = sign, self._sign_of(away)
            missed = missed + 1 if sign == last else 0
        return True

    def _sign_of(self, claims: Sequence[Claim]) -> tuple:
        """What changes as long as the owners of turns build, or stop their builds."""
        job = read_record(self.files.job) or {}
        return (job.get("heartbeat"), *(read_record(claim.path(self.files)) for claim in claims))

    def _stop_former(self, nonce: str) -> None:
        """Stop what earlier supervisors of an attempt have left on this machine."""
        own = nonce == self.job["nonce"]
        leader = (self.job.get("child_pid"), self.job.get("child_start_time")) if own else (None, None)
        stop_processes(
            lambda: job_processes(nonce, *leader, keep=os.getpid()), self.job["limits"]["grace"], lambda: None
        )

    @property
    def _path(self) -> str:
        return turn_path(self.files, self.job["nonce"], self.number)

    def _is_here(self, claim: Claim) -> bool:
        return (claim.owner["host"], claim.owner["boot_id"]) == tuple(self.place)

    def _may_follow(self, claim: Claim) -> bool:
        if claim.has_left(self.files):
            return True
        if self._is_here(claim):
            return not is_alive(claim.owner["pid"], claim.owner["start_time"])
        # Its own job was started or submitted again: the scheduler has ended the earlier start, or believes so.
        again = claim.owner["job_id"] == self.job_id or claim.owner["requeues"] < self.requeues
        return again or not heartbeat_changes(self.files.job, WATCH_SECONDS)

    def _claim(self, number: int) -> bool:
        """Take a turn, unless somebody was faster."""
        process = read_process(os.getpid())
        owner = {
            "host": self.place.host, "boot_id": self.place.boot_id, "pid": os.getpid(), "job_id": self.job_id,
            "requeues": self.requeues, "start_time": process.start_time if process else None,
        }
        path = turn_path(self.files, self.job["nonce"], number)
        mine = "%s.%s.%d" % (path, self.place.host, os.getpid())
        try:
            with open(mine, "w", encoding="utf-8") as stream:
                json.dump(owner, stream)
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)
            # NFS may do a link and then, when its answer was lost and it is asked again, say that it is there already.
            taken = os.stat(mine).st_nlink == 2
        finally:
            with contextlib.suppress(OSError):
                os.unlink(mine)
        self.number = number if taken else -1
        return taken

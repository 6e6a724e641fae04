# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell the state of a job by its record: running, elsewhere, silent, killed, ...

A process id means something on one host in one boot only. From any other host a job is followed by its heartbeat, and a
silent one is never taken for dead: the operator decides. Two hosts' clocks may differ by hours: a heartbeat is old only
when it does not change while somebody watches.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, NamedTuple

from ..core.clock import seconds_of
from ..core.errors import StackError
from ..core.processes import Here
from .files import StepFiles
from .outcome import Outcome
from .records import JobRecord

HEARTBEAT_SECONDS = 5.0
"""The supervisor of a job writes its heartbeat this often."""

SILENT_SECONDS = 300.0
"""A job of another host without a heartbeat for longer than this is silent: it may be dead, or cut off."""

STARTING_SECONDS = 20.0
"""A job that was announced this long ago, and still has no process, never began."""

CACHE_SECONDS = 60.0
"""How long a client of a shared file system may show what was there before (acdirmax of nfs(5))."""

WATCH_SECONDS = CACHE_SECONDS + 3 * HEARTBEAT_SECONDS
"""A heartbeat that has not changed for so long has stopped, whatever file system shows it."""

BRIEF_WATCH_SECONDS = 3 * HEARTBEAT_SECONDS
"""How long to watch where nothing depends on it but a message."""

LIVE = ("running", "elsewhere", "queued")
"""States of a job that one follows."""


class JobState(NamedTuple):
    """The state of a job."""

    name: str
    """One of those of :func:`judge`, and for a batch job of those of :mod:`.launcher_batch`."""
    queue: Mapping[str, Any] | None = None
    """How it waits in a batch system, for the result; see :func:`..batch.scheduler.queue_of`."""
    end: Outcome | None = None
    """How its scheduler says that it ended."""
    error: StackError | None = None
    """Why nobody could tell."""


def judge(
    job: JobRecord | None, end: Outcome | None, here: Here, now: float, alive: Callable[[int | None, int | None], bool],
    remains: Callable[[JobRecord], bool], changes: Callable[[], bool] = lambda: False,
) -> str:
    """Tell the state of a job by its records and by this machine.

    Whether a process lives here, processes of a job without supervisor remain, and a heartbeat changes while one
    watches is asked only where it matters. The answers:

    * ``none``: there never was one.
    * ``finished``: it ended and said how.
    * ``starting``: announced just now, its supervisor has not reported yet.
    * ``running``: its supervisor works on this machine.
    * ``elsewhere``: it has a fresh heartbeat from another machine.
    * ``silent``: its heartbeat on another machine is older than :data:`SILENT_SECONDS`, and does not change.
    * ``rebooted``: this machine has been booted since.
    * ``killed``: its supervisor died without a record of its end, and nothing of it is left.
    * ``leftover``: its supervisor died or gave up, and its script or some of its children still work.
    """
    if job is None:
        return "none"
    if job.host != here.host:
        if end is not None:
            return "finished"
        fresh = abs(now - seconds_of(job.heartbeat)) <= SILENT_SECONDS
        return "elsewhere" if fresh or changes() else "silent"
    if job.boot_id != here.boot_id:
        return "finished" if end is not None else "rebooted"
    if end is not None and end.reason != "done":
        return "leftover" if remains(job) else "finished"
    if job.phase == "starting" and now - seconds_of(job.heartbeat) <= STARTING_SECONDS:
        return "starting"
    if alive(job.pid, job.start_time):
        return "running"
    if remains(job):
        return "leftover"
    return "finished" if end is not None else "killed"


def heartbeat_changes(files: StepFiles, seconds: float) -> bool:
    """Watch whether the heartbeat of a step's job, or who writes it, changes; at most for ``seconds``."""
    first = JobRecord.read(files)
    deadline, pause = time.monotonic() + seconds, min(0.5, seconds / 10)
    while first is not None and time.monotonic() < deadline:
        time.sleep(pause)
        record = JobRecord.read(files)
        if record is not None and _sign(record) != _sign(first):
            return True
    return False


def _sign(job: JobRecord) -> tuple[object, ...]:
    return job.nonce, job.heartbeat, job.host, job.pid, job.phase

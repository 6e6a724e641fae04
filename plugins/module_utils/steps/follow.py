# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Follow a job: decide when to poll, when to call the module, and what the operator is told. Pure.

All times are one clock's, that of whoever follows, in seconds. A heartbeat is only ever compared with the one seen
before: the clocks of the nodes may be hours off. A length of time comes from two times of the same node.

While a job waits in a queue, a poll is enough to see that its supervisor has announced itself; the module, which asks
the scheduler, is called at growing intervals; and now and then while a job builds, as its node may be given up.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ..core.clock import seconds_of
from .poll import Snapshot
from .progress import OFTEN, Cadence, ProgressPrinter, progress_line
from .queue_lines import QueuePrinter

FIRST_INTERVAL = 0.3
INTERVAL_GROWTH = 1.6
MAX_INTERVAL = 5.0
"""Seconds between two polls of a build."""

MAX_QUEUE_INTERVAL = 10.0
"""Seconds between two polls of a job that waits."""

STALE_SECONDS = 15.0
"""A heartbeat that has not changed for so long is worth a call of the module: one is written every five seconds."""

MAX_STALE_SECONDS = 300.0
"""The same on a file system that has been seen to show changes late."""

CALM_SECONDS = 300.0
"""Seconds between two questions to the scheduler about a job that builds and gives signs of life."""

SCHEDULER_PATIENCE = 1800.0
"""Seconds without an answer of the scheduler and without a heartbeat, after which nobody follows any longer."""


class Pace(NamedTuple):
    """Seconds between two calls of the module: from ``first``, growing by ``growth``, up to ``longest``."""

    first: float
    growth: float
    longest: float


DOUBT = Pace(1.0, 1.6, 30.0)
"""How often the module is called for what stays in doubt; the first time at once."""

QUEUED = Pace(10.0, 1.5, 60.0)
"""How often the scheduler is asked about a job that waits."""


class _Process(NamedTuple):
    """The supervisor that a result or a job's record is about."""

    host: object
    pid: object


def _process_of(result: Mapping[str, Any]) -> _Process:
    return _Process(result.get("host"), result.get("pid"))


class Follow:
    """What is known of one job, from poll to poll."""

    def __init__(self, first: dict[str, Any], now: float, cadence: Cadence = OFTEN) -> None:
        """Begin with the result ``running`` of the call that started the job, or attached to it."""
        self._cadence = cadence
        self.name: str = first["step"]
        self.nonce: str = first["nonce"]
        self.seen = first
        self.progress: dict[str, Any] = first["progress"]
        self.log_start = 0
        self.news: list[str] = []
        self.interval = FIRST_INTERVAL
        self.queued = bool(first.get("queue"))
        self.asked = self.answered = self.changed = now
        self.gap = QUEUED.first if self.queued else DOUBT.first
        self._sign: tuple[object, ...] | None = None
        self._slowest = 0.0
        # A job that is put back into the queue keeps the record of its last start, which may even beat, on a node that
        # its scheduler has lost: it has started again when somebody else has.
        self._former = _process_of(first)
        self._doubt = ""
        self._begun: str | None = None
        self._began = now - first["seconds"]
        self._size = 0
        """Most that was seen of the log; a shared file system may show an older state again."""
        self._printer, self._queue_printer = ProgressPrinter(self.name, self._cadence), QueuePrinter(self.name)
        if first.get("node") and not self.queued:
            self.news.append("%s  job %s runs on %s" % (self.name, first["job_id"], first["node"]))

    def next_interval(self) -> float:
        """Return the seconds to sleep before the next poll."""
        longest = MAX_QUEUE_INTERVAL if self.queued else MAX_INTERVAL
        interval = min(self.interval, longest)
        self.interval = min(interval * INTERVAL_GROWTH, longest)
        return interval

    def unchanged(self, now: float) -> float:
        """Return for how many seconds the job has given no sign of life that could be seen from here."""
        return now - self.changed

    def see(self, snapshot: Snapshot | None, now: float) -> bool:
        """Take in a poll, None where it has no record of this job; tell whether the module has to be called now."""
        if snapshot is not None:
            self._take_in(snapshot, now)
        doubt = self._doubt_of(snapshot, now)
        if doubt and doubt != self._doubt:
            self._doubt = doubt
            self.gap = QUEUED.first if self.queued else DOUBT.first
            return True
        self._doubt = doubt
        if doubt or self.queued:
            return now - self.asked >= self.gap
        return bool(self.seen.get("job_id")) and now - self.asked >= CALM_SECONDS

    def learn(self, result: dict[str, Any], now: float) -> None:
        """Take in what the module has found: the job goes on, ``result["state"]`` is ``running``."""
        self._count_call(now)
        self.answered = now
        queue = result.get("queue")
        if queue and not self.queued:
            self.queued, self.gap, self._former = True, QUEUED.first, _process_of(self.seen)
        elif self.queued and not queue:
            if result.get("node") and _process_of(result) != self._former:
                self._start(_process_of(result), now)
            else:
                # It has nodes, or is about to; the record is that of its former start, or there is none yet.
                queue = {"job_id": self.seen["queue"].get("job_id"), "state": "starting"}
        elif not queue:
            self._tell_of_restart(_process_of(result))
        self.seen = dict(result, queue=queue)
        if "percent" in result["progress"]:
            self.progress = result["progress"]

    def unanswered(self, now: float) -> bool:
        """Take in that the scheduler did not answer the module; tell whether to go on following."""
        self._count_call(now)
        return now - max(self.answered, self.changed) < SCHEDULER_PATIENCE

    def lines(self, now: float, today: str) -> list[str]:
        """Return what the operator, whose date is ``2026-11-20``, is told now."""
        lines, self.news = self.news, []
        if self.queued:
            lines += self._queue_printer.lines(self.seen["queue"], now, today)
        else:
            seconds = now - self._began
            if "percent" in self.progress:
                self.progress = dict(self.progress, text=progress_line(self.name, self.progress, seconds))
            line = self._printer.line(self.progress, seconds, now)
            lines += [line] if line else []
        return lines

    def whereabouts(self) -> str:
        """Say what an operator should know who can no longer see the job."""
        if self.queued:
            what = "waits in the queue as job %s without the controller (log %s)" % (
                self.seen["queue"].get("job_id"), self.seen["log"])
        else:
            what = "goes on without the controller on host %s (pid %s, log %s)" % (
                self.seen["host"], self.seen["pid"], self.seen["log"])
        return "Step %s %s; run this again to attach to it." % (self.name, what)

    def _count_call(self, now: float) -> None:
        pace = QUEUED if self.queued else DOUBT
        self.asked, self.gap = now, min(self.gap * pace.growth, pace.longest)

    def _doubt_of(self, snapshot: Snapshot | None, now: float) -> str:
        """Tell why the module should be called; empty where a snapshot is enough."""
        if snapshot is None:
            return "unreadable"
        if snapshot.ended:
            return "ended"
        if self.queued:
            return ""
        if not snapshot.running:
            return "not running"
        # A shared file system that caches attributes shows every change late: what it has done before is no news.
        stale = min(max(STALE_SECONDS, 2 * self._slowest), MAX_STALE_SECONDS)
        return "stale" if self.unchanged(now) >= stale else ""

    def _take_in(self, snapshot: Snapshot, now: float) -> None:
        job = snapshot.job
        sign, process = (job.phase, job.heartbeat, job.host, job.pid), _Process(job.host, job.pid)
        if sign != self._sign:
            known, self._sign = self._sign is not None, sign
            if self.queued and snapshot.running and process != self._former:
                self._start(process, now)
            elif not self.queued and known:
                self._slowest = max(self._slowest, self.unchanged(now))
            self.changed = now
        if self.queued or not snapshot.running:
            return
        self._tell_of_restart(process)
        self.seen = dict(self.seen, host=job.host, pid=job.pid)
        if job.begun and job.begun != self._begun:
            self._begun = job.begun
            self._began = now - max(0.0, seconds_of(job.heartbeat) - seconds_of(job.begun))
        start = job.log_offset
        if start != self.log_start:
            self.log_start, self._size = start, 0
        elif snapshot.size >= self._size:
            self._size = snapshot.size
            self.progress = snapshot.progress or self.progress

    def _tell_of_restart(self, process: _Process) -> None:
        """Tell that a job which builds already has another supervisor: it has started again."""
        if self.seen.get("job_id") and process != _process_of(self.seen):
            self.news.append("%s  job %s started again on %s" % (self.name, self.seen["job_id"], process.host))

    def _start(self, process: _Process, now: float) -> None:
        """Take in that the job has left the queue, and that this is its supervisor."""
        host, pid = process
        job_id = self.seen["queue"].get("job_id") or self.seen.get("job_id") or ""
        self.news.append("%s  job %s started on %s" % (self.name, job_id, host))
        self.queued, self.seen = False, dict(self.seen, queue=None, host=host, pid=pid)
        self.progress, self._began, self._begun = {}, now, None
        self.interval, self.gap = FIRST_INTERVAL, DOUBT.first
        self._printer, self._queue_printer = ProgressPrinter(self.name, self._cadence), QueuePrinter(self.name)

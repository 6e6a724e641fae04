# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write what an operator reads while a step waits in a batch system's queue, and decide how often."""

from __future__ import annotations

import time
from typing import Any, Mapping

from ..core.clock import seconds_of

FIRST_PAUSE = 30.0
"""Seconds after which a queue that only moved on deserves its second line."""

MAX_PAUSE = 900.0
"""Seconds between two such lines in the end: four an hour."""

PAUSE_GROWTH = 2.0

SETTLING = 5.0
"""Seconds that a job which nothing keeps back is given to start before its waiting deserves a line."""


def describe_start(estimate: str, today: str) -> str:
    """Say shortly when a job is to start, by the operator's clock; what is no time of :func:`.utc` stays as it is."""
    try:
        date, clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds_of(estimate))).split()
    except ValueError:
        return estimate
    return clock if date == today else "%s %s" % (date, clock)


def queue_line(name: str, queue: Mapping[str, Any], today: str) -> str:
    """Write one line: ``name job 4711 pending (Priority), position 3 of 17, starts about 14:20``.

    The queue is that of :func:`..batch.scheduler.queue_of`.
    """
    job = " ".join(filter(None, ["job", str(queue.get("job_id") or "")]))
    where = " on %s" % queue["node"] if queue.get("node") else ""
    if queue.get("former"):
        return "%s  %s started again%s and waits until its former build on %s is surely gone" % (
            name, job, where, queue["former"])
    reason = " (%s)" % queue["reason"] if queue.get("reason") else ""
    parts = ["%s %s%s%s" % (job, queue.get("state") or "pending", where, reason)]
    if queue.get("position"):
        parts.append("position %d" % queue["position"] + (" of %d" % queue["of"] if queue.get("of") else ""))
    if queue.get("estimated_start"):
        parts.append("starts about " + describe_start(str(queue["estimated_start"]), today))
    return "%s  %s" % (name, ", ".join(parts))


class QueuePrinter:
    """Decide which answers of the scheduler deserve a line.

    What is new is shown at once, but for a job that may start at any moment. A queue that only moves on, or a
    reason that comes and goes, is shown at growing intervals: seventeen minutes of queue are six lines, and a day
    is a hundred.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.known: set[tuple[object, ...]] = set()
        self.advised = {""}
        self.shown_at = 0.0
        self.seen_at: float | None = None
        self.pause = FIRST_PAUSE

    def lines(self, queue: Mapping[str, Any], now: float, today: str) -> list[str]:
        """Return the lines to print: at most one about the queue, and advice that was not given yet."""
        if self.seen_at is None:
            self.seen_at = now
        kept = any(queue.get(key) for key in ("reason", "advice", "former"))
        kept = kept or queue.get("state") not in (None, "pending", "starting")
        if not kept and now - self.seen_at < SETTLING:
            return []
        news = tuple(queue.get(key) for key in ("job_id", "state", "reason", "node", "former"))
        if news in self.known:
            if now - self.shown_at < self.pause:
                return []
            self.pause = min(self.pause * PAUSE_GROWTH, MAX_PAUSE)
        self.known.add(news)
        self.shown_at = now
        line, advice = queue_line(self.name, queue, today), queue.get("advice") or ""
        if advice in self.advised:
            return [line]
        self.advised.add(advice)
        return [line, "%s  %s" % (self.name, advice)]

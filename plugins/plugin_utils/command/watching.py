# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Look at a rollout again and again, aside, so that a slow file system or batch system delays no line."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any, Callable, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import StepFiles
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import JobRecord

from . import expectation, progress, releases, terminal, view
from .expectation import Expected
from .places import CommandError
from .releases import Release

LOOK_SECONDS = 1.0
"""Between two looks at the records of a release."""

SHARE = 0.1
"""Of the time, that looking takes at most: a slow file system is looked at less often."""

ASK_SECONDS = 30.0
"""Between two questions to a batch system."""

DRAW_SECONDS = 1.0
"""Between two drawings, where nothing is written in between."""


class Memory:
    """Remembers what is slow to find out, for one rollout."""

    def __init__(self) -> None:
        self._expected: Expected | None = None
        self._of = ""
        self._jobs: dict[str, tuple[str, float, tuple[str, str]]] = {}

    @property
    def sources(self) -> progress.Sources:
        """Whom to ask, see :func:`.progress.look`."""
        return progress.Sources(self.expected, self.job)

    def expected(self, release: Release) -> Expected | None:
        """Take what is expected from the first look at which the release has its resolved file."""
        name = release.files.release if release.resolved else ""
        if not name or self._of != name:
            self._expected, self._of = expectation.expected(release), name
        return self._expected

    def job(self, files: StepFiles) -> tuple[str, str]:
        """Ask for a job on this machine each time, and for one in a batch system now and then."""
        job = JobRecord.read(files)
        if job is None or job.is_local:
            return progress.ask(files)
        # Its supervisor begins: that is news.
        sign = "%s %s %s" % (job.nonce, job.phase, job.host)
        known = self._jobs.get(files.name)
        if known is None or known[0] != sign or time.monotonic() - known[1] > ASK_SECONDS:
            known = (sign, time.monotonic(), progress.ask(files))
            self._jobs[files.name] = known
        return known[2]


class Watch(threading.Thread):
    """Looks again and again, until it is told to end."""

    def __init__(self, gather: Callable[[], dict[str, Any] | None]) -> None:
        """Prepare it.

        Args:
            gather: returns what :func:`.progress.look` does, or None while there is nothing to show.
        """
        super().__init__(daemon=True)
        self._gather = gather
        self._end = threading.Event()
        self.found: Mapping[str, Any] | None = None

    def run(self) -> None:
        """Look; what cannot be read now is as it was before."""
        while not self._end.is_set():
            began = time.monotonic()
            with contextlib.suppress(CommandError, StackError, OSError, ValueError):
                self.found = self._gather()
            self._end.wait(max(LOOK_SECONDS, (time.monotonic() - began) / SHARE))

    def end(self) -> None:
        """Let it end after the look that it is at."""
        self._end.set()


def drawing_of(found: Mapping[str, Any] | None, task: Mapping[str, Any] | None = None) -> terminal.Drawing | None:
    """Make the view of a look as it is now; None where there is nothing to show yet."""
    if found is None:
        return None
    return lambda columns, lines: view.drawing(found, time.time(), columns, lines, task)


def follow(root: str, name: str) -> dict[str, Any]:
    """Show a rollout until it has ended, and return the last look; without a terminal a line for each change."""
    memory = Memory()

    def gather() -> dict[str, Any]:
        return progress.look(releases.read(root, name), sources=memory.sources)

    first = gather()
    # The release has its lock until all is done: it is accepted and published once it is frozen.
    if not first["holder"]:
        return first
    try:
        if terminal.usable():
            _draw(gather)
        else:
            _print(gather, first)
    except KeyboardInterrupt:
        print("This only watched the rollout, and has not stopped it.", file=sys.stderr)
        raise
    return gather()


def _draw(gather: Callable[[], dict[str, Any]]) -> None:
    watch, screen = Watch(gather), terminal.Screen()
    watch.start()
    try:
        while watch.found is None or watch.found["holder"]:
            screen.put(drawing=drawing_of(watch.found))
            time.sleep(DRAW_SECONDS)
    finally:
        watch.end()
        screen.close()


def _print(gather: Callable[[], dict[str, Any]], found: Mapping[str, Any]) -> None:
    before = None
    while found["holder"]:
        sign = (found["done"], [one["name"] for one in found["running"]], [one["name"] for one in found["failed"]])
        if sign != before:
            print("\n".join(progress.lines(found)))
            sys.stdout.flush()
        before = sign
        time.sleep(LOOK_SECONDS)
        found = gather()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of who runs a step (job.json), and what it says about a job: running, elsewhere, silent, killed, ...

A process id means something on one host in one boot only. From any other host a job is followed by its heartbeat, and
a silent one is never taken for dead: the operator decides. The clocks of two hosts may differ by hours, so that a
heartbeat is old only when it does not change while somebody watches.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Callable, NamedTuple

from ..batch.outcomes import TITLES
from ..core.errors import StackError
from ..core.files import read_json
from ..core.processes import Here
from .step import (
    StepFiles,
    is_stamped,
    seconds_of,
    step_files,
)
from .step_results import still_stands

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

GLIMPSE_SECONDS = 3 * HEARTBEAT_SECONDS
"""How long to watch where nothing depends on it but a message."""

NEXT = ".next"
"""Suffix of a record that is being written in place."""

LIVE = ("running", "elsewhere", "queued")
"""Standings of a job that one follows."""


class Standing(NamedTuple):
    """How a job stands."""

    word: str
    """In the words of :func:`judge`, and for a batch job those of :mod:`.launcher_batch`."""
    queue: dict | None = None
    """How it waits in a batch system, for the result."""
    end: dict | None = None
    """How its scheduler says that it ended, as the record of an outcome."""
    error: StackError | None = None
    """Why nobody could say how it stands."""


def read_record(path: str) -> dict | None:
    """The record in ``path``, or None where there is none.

    Raises:
        StackError: the file is there and is not a record.
    """
    try:
        record = read_json(path)
    except (ValueError, UnicodeDecodeError):
        record = {}
    if record is not None and not (isinstance(record, dict) and record):
        raise StackError(
            "%s is not a record of a build step." % path, "records", "Look at it, then remove it.", path
        )
    return record


def outcome_of(job: dict | None, outcome: dict | None) -> dict | None:
    """``outcome`` if it is about this very job, else None."""
    return outcome if job is not None and outcome is not None and outcome["nonce"] == job["nonce"] else None


def judge(
    job: dict | None,
    outcome: dict | None,
    here: Here,
    now: float,
    alive: Callable[[int | None, int | None], bool],
    remains: Callable[[dict], bool],
    changes: Callable[[], bool] = lambda: False,
) -> str:
    """How a job stands.

    Args:
        job: its record, if there is one.
        outcome: the record of an end, of this job or of an older one.
        here: this machine in this boot.
        now: seconds since 1970.
        alive: tells whether a process id with a start time still works on this machine.
        remains: tells whether processes of a job without supervisor are left on this machine.
        changes: tells whether the heartbeat changes while one watches it; asked only where it looks old, or younger
            than it can be.

    Returns:
        * ``none``: there never was one.
        * ``finished``: it ended and said how.
        * ``starting``: announced just now, its supervisor has not reported yet.
        * ``running``: its supervisor works on this machine.
        * ``elsewhere``: it has a fresh heartbeat from another machine.
        * ``silent``: it belongs to another machine, its last heartbeat is older than :data:`SILENT_SECONDS`, and it
          does not change.
        * ``rebooted``: this machine has been booted since.
        * ``killed``: its supervisor died without a word, and nothing of it is left.
        * ``leftover``: its supervisor died or gave up, and its script or some of its children still work.
    """
    if job is None:
        return "none"
    end = outcome_of(job, outcome)
    if job["host"] != here.host:
        if end is not None:
            return "finished"
        fresh = abs(now - seconds_of(job["heartbeat"])) <= SILENT_SECONDS
        return "elsewhere" if fresh or changes() else "silent"
    if job["boot_id"] != here.boot_id:
        return "finished" if end is not None else "rebooted"
    if end is not None and end["reason"] != "done":
        return "leftover" if remains(job) else "finished"
    if job["phase"] == "starting" and now - seconds_of(job["heartbeat"]) <= STARTING_SECONDS:
        return "starting"
    if alive(job.get("pid"), job.get("start_time")):
        return "running"
    if remains(job):
        return "leftover"
    return "finished" if end is not None else "killed"


def foundation_of(files: StepFiles, needs: dict[str, str]) -> dict[str, str | None]:
    """The attempt by which each needed step has its stamp; None where that has another result than the one asked for.

    Args:
        files: the step that needs them.
        needs: what it is judged by of each.
    """
    top = os.path.dirname(files.directory)
    stamps = {name: read_record(step_files(top, name).stamp) for name in needs}
    return {
        name: stamp["nonce"] if stamp is not None and still_stands(stamp, needs[name]) else None
        for name, stamp in stamps.items()
    }


def heartbeat_changes(path: str, seconds: float) -> bool:
    """Watch whether the heartbeat in ``path``, or who writes it, changes; at most for ``seconds``."""
    keys = ("nonce", "heartbeat", "host", "pid", "phase")
    first = read_record(path)
    deadline, pause = time.monotonic() + seconds, min(0.5, seconds / 10)
    while first is not None and time.monotonic() < deadline:
        time.sleep(pause)
        record = read_record(path)
        if record is not None and any(record.get(key) != first.get(key) for key in keys):
            return True
    return False


def refuse_other_build(files: StepFiles, job: dict, digest: str) -> None:
    """Say that an older build of the step, with other inputs, is still running."""
    if job["launcher"] != "local":
        raise StackError(
            "Step %s is being built with other inputs by a job of %s (started %s, log %s)."
            % (files.name, TITLES[job["launcher"]], job["started"], files.log),
            "start", "Wait for it and run this again, or cancel it with 'state: cancelled'.", files.directory,
            running_digest=job["digest"], digest=digest,
        )
    raise StackError(
        "Step %s is being built with other inputs on host %s (pid %s, started %s, log %s)."
        % (files.name, job["host"], job["pid"], job["started"], files.log),
        "start",
        "Wait for it and run this again, or stop it with 'kill %s' on %s." % (job["pid"], job["host"]),
        files.directory,
        running_digest=job["digest"],
        digest=digest,
    )


def refuse_silent(files: StepFiles, job: dict) -> None:
    """Say that a job of another host has gone silent, and that nobody here can know whether it is dead."""
    raise StackError(
        "Step %s belongs to a build on host %s (pid %s, started %s), whose last heartbeat was at %s."
        % (files.name, job["host"], job.get("pid") or "unknown", job["started"], job["heartbeat"]),
        "start",
        "Run this on %s, which can tell whether the build is alive; if that host is gone for good, remove %s and run "
        "this again: a build that comes back without that file stops itself." % (job["host"], files.job),
        files.job,
    )


def decide(
    files: StepFiles, digest: str, stamp: dict | None, missing: list[str], standing: str, job: dict | None
) -> str:
    """What is to be done about a step: ``unchanged``, ``attach``, ``wait``, ``refuse`` or ``run``.

    Args:
        files: the step.
        digest: digest of the inputs asked for.
        stamp: the record of the last success.
        missing: paths of ``creates`` that do not exist.
        standing: see :func:`judge`.
        job: the record of the last job.

    Raises:
        StackError: an older build with other inputs is running, or nobody here can know whether it is.
    """
    if is_stamped(stamp, digest) and not missing:
        return "unchanged"
    if stamp is not None and job is not None and stamp["nonce"] == job["nonce"]:
        # The supervisor writes the stamp last: if it is still seen alive, it is on its way out.
        return "run"
    if standing in LIVE and job is not None:
        if job["digest"] != digest:
            refuse_other_build(files, job, digest)
        return "attach"
    if standing == "silent" and job is not None:
        refuse_silent(files, job)
    if standing == "requeue" and job is not None and job["digest"] == digest:
        return "attach"
    return {"starting": "wait", "unasked": "refuse"}.get(standing, "run")


def write_in_place(path: str, record: dict) -> None:
    """Replace a record without flushing it to disk: for a heartbeat, which is worth nothing after a crash."""
    temporary = path + NEXT
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=2, sort_keys=True)
            stream.write("\n")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""One short call at a time: find that a step is done, attach to its build, start it, look at it, forget it.

No call waits for a build. The records in the step's directory are the only memory between two calls.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from typing import Mapping

from ..core.errors import StackError
from ..core.files import (
    readable_by_all,
    write_atomic,
    write_json,
)
from ..core.processes import Here, here, read_process
from .batch_claim import PREFIX, still_there
from .batch_records import SCRIPT, SUBMISSION
from .job import (
    NEXT,
    decide,
    outcome_of,
)
from .launcher import ARCHIVE, supervisor_archive
from .launcher_registry import records_of, runner_of
from .lock import CLAIM, StepLock, own_announcement
from .results import stamped_result
from .status import look, refused_submission
from .step import (
    Request,
    StepFiles,
    created_paths,
    is_stamped,
    render_script,
    resume_reason,
    step_record,
    utc,
)

LOCK_SECONDS = 60.0
"""How long to wait for another starter; longer than a job may be announced without a process, or looked for after a
submission without an answer."""

FIRST_LOOK_SECONDS = 0.5
"""A step that ends within this time needs no second call."""


def missing_of(paths: list[str]) -> list[str]:
    """The paths that do not exist; a dangling link exists."""
    return [path for path in paths if not os.path.lexists(path)]


def begin(
    request: Request, digest: str, needs: dict[str, str], expected: dict, limits: dict, cache: str | None,
    launcher: str, options: Mapping | None = None,
) -> dict:
    """Start a step that has no stamp for this digest, or attach to the build that is running.

    Args:
        request: the step.
        digest: its digest.
        needs: what it is judged by of each step that it needs.
        expected: ``result`` and ``ground``, as far as they are known before it runs (see :mod:`.step_results`).
        limits: timeout, no_output_timeout, grace (seconds) and hang_signal.
        cache: directory of the cache.
        launcher: one of :data:`.job_options.LAUNCHERS`.
        options: what it is to ask its batch system for, as :func:`.job_options.check_options` returns it.

    Returns:
        The module's result; ``state`` is ``running``, or ``done`` or ``cached`` for a short step, or ``unchanged``
        when somebody else finished it meanwhile.

    Raises:
        StackError: see :func:`.jobs.decide` and :class:`.steplock.StepLock`; or the step has failed already; or its
            records cannot be written.
    """
    files = request.files
    try:
        with readable_by_all():
            return _begin(request, digest, needs, expected, limits, cache, launcher, options)
    except OSError as error:
        # The error of a write has no file's name.
        raise StackError(
            "The records of step %s cannot be written: %s: %s."
            % (files.name, error.filename or files.directory, error.strerror),
            "records",
            "Make sure that this account can write there and that there is space, and run this again.",
            files.directory,
        ) from error


def _begin(
    request: Request, digest: str, needs: dict[str, str], expected: dict, limits: dict, cache: str | None,
    launcher: str, options: Mapping | None,
) -> dict:
    files, created = request.files, created_paths(request)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        stamp, job, outcome = records_of(files)
        missing = missing_of(created)
        runner = runner_of(job, launcher, options)
        view = runner.standing(files, job, outcome)
        action = decide(files, digest, stamp, missing, view.word, job)
        if action == "unchanged" and stamp is not None:
            return stamped_result(files, stamp, False, "unchanged")
        if action == "attach" and job is not None:
            return dict(look(files, job["nonce"]), attached=True)
        if action == "refuse" and view.error is not None:
            raise view.error
        if action in ("run", "wait"):
            os.makedirs(files.directory, exist_ok=True)
            place = here()
            lock = StepLock(files, place)
            if lock.acquire():
                try:
                    # Somebody else may have finished or started it between the first look and the lock.
                    stamp, job, outcome = records_of(files)
                    view = runner_of(job, launcher, options).standing(files, job, outcome)
                    if view.word == "starting" and job is not None:
                        view = runner_of(job).settle(files, job, lock)
                    standing = view.word
                    if decide(files, digest, stamp, missing_of(created), standing, job) != "run":
                        continue
                    if standing == "leftover" and job is not None:
                        runner_of(job).clear(files, job)
                    gone = missing if is_stamped(stamp, digest) else []
                    resumed = resume_reason(files.name, standing, job, view.end or outcome_of(job, outcome), gone)
                    nonce, warnings = start(
                        request, digest, needs, expected, limits, cache, launcher, options, lock, job)
                finally:
                    lock.withdraw()
                result = first_look(files, nonce) if launcher == "local" else look(files, nonce)
                return dict(result, resumed=resumed, warnings=[*warnings, *result.get("warnings", [])])
        if time.monotonic() > deadline:
            raise StepLock(files, here()).refusal()
        time.sleep(0.05)


def remove_litter(files: StepFiles, place: Here) -> None:
    """Remove what killed processes were writing; called with the step's lock held, and no build running.

    Announcements of other hosts are left alone, and those of living processes.
    """
    records = (files.script, files.inputs, files.log, files.exit, files.stamp, files.result, files.job, files.again,
               files.path(ARCHIVE), files.path(SUBMISSION), files.path(SCRIPT))
    temporary = re.compile(
        r"\.(?:%s)\.[a-z0-9_]{8}\Z" % "|".join(re.escape(os.path.basename(path)) for path in records)
    )
    announcement = os.path.basename(own_announcement(files.path(CLAIM), place.host, 0))[:-1]
    for name in os.listdir(files.directory):
        owner = name[len(announcement):] if name.startswith(announcement) else ""
        dead = owner.isdigit() and read_process(int(owner)) is None
        old = name in (os.path.basename(files.job) + NEXT, SUBMISSION, SCRIPT) or name.startswith(PREFIX)
        if dead or old or temporary.match(name):
            with contextlib.suppress(OSError):
                os.unlink(files.path(name))


def start(
    request: Request, digest: str, needs: dict[str, str], expected: dict, limits: dict, cache: str | None,
    launcher: str, options: Mapping | None, lock: StepLock, last: dict | None,
) -> tuple[str, list[str]]:
    """Replace what the last attempt has left by what the supervisor needs, the announcement last, and launch it.

    Returns:
        The new job's nonce, and warnings.
    """
    files, place = request.files, here()
    nonce, now = secrets.token_hex(16), utc(time.time())
    former = still_there(files, last["nonce"]) if last else None
    remove_litter(files, place)
    for path in (files.stamp, files.exit, files.result, files.own):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    write_atomic(files.script, render_script(request, digest, needs).encode("utf-8"), 0o755)
    write_json(files.inputs, step_record(request, digest, needs))
    write_atomic(files.path(ARCHIVE), supervisor_archive())
    job = {
        "attempt": (last["attempt"] if last else 0) + 1,
        "boot_id": place.boot_id,
        "cache": cache,
        "child_pid": None,
        "child_start_time": None,
        "digest": digest,
        "former": former,
        "foundation": request.foundation,
        "ground": expected["ground"],
        "heartbeat": now,
        "host": place.host,
        "last_nonce": last["nonce"] if last else None,
        "launcher": launcher,
        "limits": limits,
        "log_offset": os.path.getsize(files.log) if os.path.exists(files.log) else 0,
        "needs": needs,
        "nonce": nonce,
        "options": dict(options or {}),
        "phase": "starting",
        "pid": None,
        "result": expected["result"],
        "secrets": list(request.secrets),
        "start_time": None,
        "started": now,
    }
    write_json(files.job, job)
    try:
        return nonce, runner_of(job).launch(files, job, lock)
    except (StackError, OSError) as error:
        if isinstance(error, StackError) and error.failed_step == "scheduler":
            # Nobody knows whether there is a job: the next run asks again, before it submits another one.
            raise
        if isinstance(error, StackError) and error.failed_step == "submit":
            raise refused_submission(files, job, error) from error
        end = {"reason": "error", "error": str(error), "nonce": nonce, "finished": utc(time.time())}
        with contextlib.suppress(OSError):
            write_json(files.exit, end)
        raise


def first_look(files: StepFiles, nonce: str) -> dict:
    """Look at a job that has just begun, for a moment, so that a short step is done in one call."""
    deadline = time.monotonic() + FIRST_LOOK_SECONDS
    while True:
        result = look(files, nonce)
        if result["state"] != "running" or time.monotonic() > deadline:
            return result
        time.sleep(0.02)

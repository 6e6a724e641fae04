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
import tempfile
import time
from typing import Iterator

from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import write_atomic, write_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.jobs import (
    LIVE,
    NEXT,
    decide,
    outcome_of,
    read_record,
    refuse_silent,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.launcher import (
    ARCHIVE,
    Launcher,
    supervisor_archive,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.launcher_local import LocalLauncher
from ansible_collections.hpcml.torchstack.plugins.module_utils.processes import Here, here, read_process
from ansible_collections.hpcml.torchstack.plugins.module_utils.progress import (
    last_lines,
    parse_progress,
    progress_line,
    read_end,
    stated_error,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steplock import CLAIM, StepLock, own_announcement
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import (
    Request,
    StepFiles,
    describe_outcome,
    is_stamped,
    render_script,
    resume_reason,
    seconds_of,
    step_facts,
    utc,
)

LAUNCHERS: dict[str, type[Launcher]] = {"local": LocalLauncher}
"""Every way to run a step, by the name that the module's option ``launcher`` gives it."""

LOCK_SECONDS = 25.0
"""How long to wait for another starter; longer than a job may be announced without a process."""

FIRST_LOOK_SECONDS = 0.5
"""A step that ends within this time needs no second call."""


def records_of(files: StepFiles) -> tuple[dict | None, dict | None, dict | None]:
    """The step's stamp, job and outcome records."""
    return read_record(files.stamp), read_record(files.job), read_record(files.exit)


def runner_of(job: dict | None, launcher: str = "local") -> Launcher:
    """The launcher that knows a job: the one that started it, or ``launcher`` where there is no job."""
    return LAUNCHERS[job["launcher"] if job else launcher]()


def missing_of(paths: list[str]) -> list[str]:
    """The paths that do not exist; a dangling link exists."""
    return [path for path in paths if not os.path.lexists(path)]


@contextlib.contextmanager
def readable_by_all() -> Iterator[None]:
    """Create files and directories as everybody may read them, whatever umask the caller has."""
    previous = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(previous)


def begin(
    request: Request, digest: str, needs: dict[str, str], created: list[str], limits: dict, cache: str | None,
    launcher: str,
) -> dict:
    """Start a step that has no stamp for this digest, or attach to the build that is running.

    Args:
        request: the step.
        digest: its digest.
        needs: digests of the steps it needs.
        created: paths that have to exist afterwards.
        limits: timeout, no_output_timeout, grace (seconds) and hang_signal.
        cache: directory of the cache.
        launcher: a key of :data:`LAUNCHERS`.

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
            return _begin(request, digest, needs, created, limits, cache, launcher)
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
    request: Request, digest: str, needs: dict[str, str], created: list[str], limits: dict, cache: str | None,
    launcher: str,
) -> dict:
    files = request.files
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        stamp, job, outcome = records_of(files)
        missing = missing_of(created)
        action = decide(files, digest, stamp, missing, runner_of(job, launcher).standing(job, outcome), job)
        if action == "unchanged" and stamp is not None:
            return stamped_result(files, stamp, False, "unchanged")
        if action == "attach" and job is not None:
            return dict(look(files, job["nonce"]), attached=True)
        if action in ("run", "wait"):
            os.makedirs(files.directory, exist_ok=True)
            place = here()
            lock = StepLock(files, place)
            if lock.acquire():
                try:
                    # Somebody else may have finished or started it between the first look and the lock.
                    stamp, job, outcome = records_of(files)
                    standing = runner_of(job, launcher).standing(job, outcome)
                    if standing == "starting" and job is not None and lock.exclusive and job["host"] == place.host:
                        # Who announced it held this lock, and would have handed it to a supervisor.
                        standing = "killed"
                    if decide(files, digest, stamp, missing_of(created), standing, job) != "run":
                        continue
                    if standing == "leftover" and job is not None:
                        runner_of(job).clear(files, job)
                    remove_litter(files, place)
                    gone = missing if is_stamped(stamp, digest) else []
                    resumed = resume_reason(files.name, standing, job, outcome_of(job, outcome), gone)
                    nonce, warnings = start(request, digest, needs, limits, cache, launcher, lock, job)
                finally:
                    lock.withdraw()
                result = first_look(files, nonce)
                return dict(result, resumed=resumed, warnings=[*warnings, *result.get("warnings", [])])
        if time.monotonic() > deadline:
            raise StepLock(files, here()).refusal()
        time.sleep(0.05)


def remove_litter(files: StepFiles, place: Here) -> None:
    """Remove what killed processes were writing; called with the step's lock held, and no build running.

    Announcements of other hosts are left alone, and those of living processes.
    """
    records = (files.script, files.inputs, files.log, files.exit, files.stamp, files.job, files.path(ARCHIVE))
    temporary = re.compile(
        r"\.(?:%s)\.[a-z0-9_]{8}\Z" % "|".join(re.escape(os.path.basename(path)) for path in records)
    )
    announcement = os.path.basename(own_announcement(files.path(CLAIM), place.host, 0))[:-1]
    for name in os.listdir(files.directory):
        owner = name[len(announcement):] if name.startswith(announcement) else ""
        dead = owner.isdigit() and read_process(int(owner)) is None
        if dead or temporary.match(name) or name == os.path.basename(files.job) + NEXT:
            with contextlib.suppress(OSError):
                os.unlink(files.path(name))


def start(
    request: Request, digest: str, needs: dict[str, str], limits: dict, cache: str | None, launcher: str,
    lock: StepLock, last: dict | None,
) -> tuple[str, list[str]]:
    """Write what the supervisor needs, the announcement last, and launch it.

    Returns:
        The new job's nonce, and warnings.
    """
    files, place = request.files, here()
    nonce, now = secrets.token_hex(16), utc(time.time())
    for path in (files.stamp, files.exit):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    write_atomic(files.script, render_script(request, digest, needs).encode("utf-8"), 0o755)
    write_json(files.inputs, {"digest": digest, "facts": step_facts(request, needs), "needs": needs})
    write_atomic(files.path(ARCHIVE), supervisor_archive())
    job = {
        "attempt": (last["attempt"] if last else 0) + 1,
        "boot_id": place.boot_id,
        "cache": cache,
        "child_pid": None,
        "child_start_time": None,
        "digest": digest,
        "heartbeat": now,
        "host": place.host,
        "launcher": launcher,
        "limits": limits,
        "log_offset": os.path.getsize(files.log) if os.path.exists(files.log) else 0,
        "needs": needs,
        "nonce": nonce,
        "phase": "starting",
        "pid": None,
        "start_time": None,
        "started": now,
    }
    write_json(files.job, job)
    try:
        return nonce, runner_of(job).launch(files, job, lock)
    except (StackError, OSError) as error:
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


def look(files: StepFiles, nonce: str) -> dict:
    """How a job is getting on.

    Returns:
        The module's result with ``state`` ``running``, ``done`` or ``cached``.

    Raises:
        StackError: it failed, was killed, went silent, or has been replaced by another one.
    """
    job = read_record(files.job)
    if job is None:
        raise StackError(
            "The records of step %s are gone: there is no %s." % (files.name, files.job), "follow",
            "Run this again: the build without them stops itself, and the step is run anew.", files.job,
        )
    if job["nonce"] != nonce:
        raise StackError(
            "Another run has started step %s anew." % files.name, "follow", "Run this again to follow that build.",
            files.directory,
        )
    standing = runner_of(job).standing(job, read_record(files.exit))
    # The records are read after the standing: what ended in between has left them.
    stamp, outcome = read_record(files.stamp), read_record(files.exit)
    end = outcome_of(job, outcome)
    if stamp is not None and stamp["nonce"] == nonce:
        return dict(
            stamped_result(files, stamp, True, "cached" if stamp["from_cache"] else "done"),
            progress=progress_of(files, job, stamp["seconds"]),
            warnings=(end or {}).get("notes", []),
        )
    if end is not None and end["reason"] != "done":
        raise failure(files, job, describe_outcome(files.name, end), end)
    if standing == "silent":
        refuse_silent(files, job)
    if standing in (*LIVE, "starting"):
        return running_result(files, job)
    if standing == "rebooted":
        raise failure(files, job, "the machine rebooted while step %s was running" % files.name, {"reason": standing})
    obstacle = obstacle_in(files.directory)
    if obstacle:
        sentence = "step %s could not be recorded: %s cannot be written: %s" % (files.name, files.directory, obstacle)
        raise failure(files, job, sentence, {"reason": "error"})
    raise failure(
        files, job, "step %s was killed without a word from its supervisor (pid %s)" % (files.name, job["pid"]),
        {"reason": "killed"},
    )


def obstacle_in(directory: str) -> str | None:
    """Why no record can be written in a directory: a supervisor that met this could not say so."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".exit.", dir=directory) as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error.strerror
    return None


def stamped_result(files: StepFiles, stamp: dict, changed: bool, state: str) -> dict:
    """The module's result for a step that has its stamp."""
    return {
        "changed": changed,
        "digest": stamp["digest"],
        "from_cache": stamp["from_cache"],
        "log": files.log,
        "script": files.script,
        "seconds": stamp["seconds"],
        "started": stamp["started"],
        "state": state,
        "step": files.name,
    }


def running_result(files: StepFiles, job: dict) -> dict:
    """The module's result for a step that is being built."""
    seconds = max(0.0, time.time() - seconds_of(job["started"]))
    return {
        "changed": True,
        "digest": job["digest"],
        "from_cache": False,
        "host": job["host"],
        "log": files.log,
        "log_offset": os.path.getsize(files.log) if os.path.exists(files.log) else 0,
        "nonce": job["nonce"],
        "pid": job["pid"],
        "progress": progress_of(files, job, seconds),
        "script": files.script,
        "seconds": round(seconds, 1),
        "started": job["started"],
        "state": "running",
        "step": files.name,
    }


def progress_of(files: StepFiles, job: dict, seconds: float) -> dict:
    """The progress marks at the end of the attempt's log, and the line that shows them."""
    progress = parse_progress(read_end(files.log, job["log_offset"]))
    return dict(progress or {}, text=progress_line(files.name, progress, seconds))


def failure(files: StepFiles, job: dict, sentence: str, end: dict) -> StackError:
    """The error for an attempt that did not succeed."""
    tail = read_end(files.log, job["log_offset"])
    cause = stated_error(tail)
    remedy = "The log is %s; run this again to resume, or repeat the step by hand with: %s" % (files.log, files.by_hand)
    if end["reason"] == "error":
        remedy = "Make sure that this account can write %s and that there is space. %s" % (files.directory, remedy)
    return StackError(
        sentence[0].upper() + sentence[1:] + (": %s." % cause if cause else "."),
        end["reason"] if end["reason"] in ("creates", "needs") else "run",
        remedy,
        files.script,
        attempt=job["attempt"],
        digest=job["digest"],
        exit_code=end.get("code"),
        log=files.log,
        log_tail=last_lines(tail),
        missing=end.get("missing", []),
        reason=end["reason"],
        retry=files.by_hand,
        script=files.script,
        seconds=end.get("seconds"),
        started=job["started"],
        step=files.name,
    )


def forget(files: StepFiles, check: bool) -> dict:
    """Remove a step's stamp, so that it runs again; everything else stays.

    Args:
        files: the step.
        check: only say whether there is a stamp.

    Raises:
        StackError: the step is being built, and would be stamped after this.
    """
    stamp, job, outcome = records_of(files)
    standing = runner_of(job).standing(job, outcome)
    if stamp is None and job is not None and standing in (*LIVE, "starting", "silent"):
        raise StackError(
            "Step %s is being built on host %s (pid %s), and will be stamped when it succeeds."
            % (files.name, job["host"], job["pid"]),
            "forget",
            "Wait for it, or stop it with 'kill %s' on %s, and run this again." % (job["pid"], job["host"]),
            files.directory,
        )
    if stamp is not None and not check:
        os.unlink(files.stamp)
    return {
        "changed": stamp is not None,
        "log": files.log,
        "script": files.script,
        "state": "absent",
        "step": files.name,
    }

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the module's result for a step that is done, being built, waiting or failed."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import Any, Mapping

from ..batch.registry import title_of
from ..core.clock import seconds_of
from ..core.errors import StackError
from ..core.processes import Here
from ..logs.errors import find_attempt_errors, kind_of
from ..logs.remedies import free_space, remedy_of
from .files import StepFiles
from .job_state import JobState
from .network_refusals import refused_sentence, refused_warnings
from .outcome import Outcome, describe_outcome
from .progress import last_lines, progress_in, read_end
from .records import JobRecord, Stamp, Submission


def obstacle_in(directory: str) -> str | None:
    """Find out why no record can be written in a directory: a supervisor that met this could not say so."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".exit.", dir=directory) as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error.strerror
    return None


def stamped_result(files: StepFiles, stamp: Stamp, changed: bool, state: str) -> dict[str, Any]:
    """Return the module's result for a step that has its stamp."""
    return {
        "changed": changed, "digest": stamp.digest, "from_cache": stamp.from_cache, "ground": stamp.ground,
        "log": files.log, "result": stamp.result, "script": files.script, "seconds": stamp.seconds,
        "started": stamp.started, "state": state, "step": files.name, "taken_over": stamp.taken_over,
    }


def finished_result(files: StepFiles, stamp: Stamp, job: JobRecord, end: Outcome | None) -> dict[str, Any]:
    """Return the module's result for a step whose job has just written its stamp."""
    tail = read_end(files.log, job.log_offset)
    return dict(
        stamped_result(files, stamp, True, "cached" if stamp.from_cache else "done"),
        progress=progress_in(files.log, job.log_offset, files.name, stamp.seconds),
        warnings=[*end.facts.get("notes", []), *refused_warnings(files, job.needs, end.facts, tail)] if end else [],
        **job_keys(files, job),
    )


def _seconds_so_far(job: JobRecord) -> float:
    """Tell how long the build has been going on: both times are from the clock of the machine that builds."""
    return max(0.0, seconds_of(job.heartbeat) - seconds_of(job.begun)) if job.begun else 0.0


def running_result(files: StepFiles, job: JobRecord, place: Here, state: JobState) -> dict[str, Any]:
    """Return the module's result for a step that is being built, or waits to be."""
    here = job.is_local and job.host == place.host
    seconds = max(0.0, time.time() - seconds_of(job.started)) if here else _seconds_so_far(job)
    return {
        "changed": True, "digest": job.digest, "from_cache": False, "host": job.host, "log": files.log,
        "log_offset": os.path.getsize(files.log) if os.path.exists(files.log) else 0, "nonce": job.nonce,
        "pid": job.pid, "progress": progress_in(files.log, job.log_offset, files.name, seconds), "script": files.script,
        "seconds": round(seconds, 1), "started": job.started, "state": "running", "step": files.name,
        **job_keys(files, job, state.queue),
    }


def job_keys(files: StepFiles, job: JobRecord, queue: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a result says about the job of a batch system; nothing where there is none."""
    submission = Submission.read(files, job)
    if submission is None:
        return {}
    node = queue["node"] or None if queue else job.host if job.phase == "running" else None
    job_id = (queue or {}).get("job_id") or submission.job_id or (job.batch and job.batch.job_id)
    return {"job_id": job_id, "job_name": submission.job_name, "node": node, "queue": queue}


def failure(files: StepFiles, job: JobRecord, end: Outcome, sentence: str = "") -> StackError:
    """Make the error for an attempt that did not succeed; a sentence describes an end that does not tell by itself."""
    facts, sentence = end.facts, sentence or describe_outcome(files.name, end)
    tail = read_end(files.log, job.log_offset)
    refused = refused_sentence(files.name, job.needs, end.facts, tail)
    found = find_attempt_errors(files.log, job.log_offset, end.as_json())
    message = [sentence[0].upper() + sentence[1:] + (": %s." % refused if refused else ":" if found else ".")]
    message += ["log line %d: %s" % line for error in found for line in error.lines]
    message.append("The log is %s." % files.log)
    kind = "" if refused else kind_of(end.as_json(), found)
    free = free_space(files.directory, tempfile.gettempdir()) if kind in ("disk_full", "quota") else None
    remedy = "%s By hand: %s" % (remedy_of(end.as_json(), kind, free), files.by_hand)
    if end.reason == "error":
        remedy = "Make sure that this account can write %s and that there is space. %s" % (files.directory, remedy)
    return StackError(
        "\n".join(message), end.reason if end.reason in ("creates", "needs") else "run", remedy, files.script,
        attempt=job.attempt, digest=job.digest,
        errors=[{"kind": error.kind, "line": error.lines[0].number} for error in found], exit_code=facts.get("code"),
        log=files.log, **({} if found else {"log_tail": last_lines(tail)}), missing=facts.get("missing", []),
        notes=facts.get("notes", []), refused=facts.get("refused", []), reason=end.reason, retry=files.by_hand,
        script=files.script, seconds=end.seconds, stacks=facts.get("stacks", []), started=job.started, step=files.name,
        **{**job_keys(files, job), **{key: facts[key] for key in ("job_id", "node") if facts.get(key)}, "queue": None},
    )


def refused_submission(files: StepFiles, job: JobRecord, error: StackError) -> StackError:
    """Record that the scheduler has refused a job, which ends this attempt, and make the error for that."""
    end = Outcome.of("rejected", words=error.message, scheduler=title_of(job.launcher), advice=error.remedy)
    with contextlib.suppress(OSError):
        end.write(files, job.nonce)
    failed = failure(files, job, end)
    failed.failed_step = "submit"
    return failed


def in_short(failed: dict[str, Any]) -> dict[str, Any]:
    """Shorten the result of a failure: its first line as ``msg``, and the whole message as ``told``.

    Since 2.19 Ansible shows ``msg`` twice; the action plugin puts the whole one back, so that it is seen once.
    """
    if "errors" not in failed:
        return failed
    first = failed["msg"].partition("\n")[0].rstrip(":.")
    return dict(failed, msg=first + ".", told=failed["msg"])

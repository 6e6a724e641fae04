# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the module says of a step: done, being built, waiting, failed."""

from __future__ import annotations

import os
import tempfile
import time

from ..core.errors import StackError
from ..core.processes import Here
from ..logs.errors import explained, kind_of
from ..logs.remedies import free_space, remedy_of
from .batch_records import submission_of
from .job import Standing
from .network_guard import RECORD, refused_sentence
from .progress import (
    last_lines,
    parse_progress,
    progress_line,
    read_end,
)
from .step import StepFiles, seconds_of
from .step_results import stamped


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
    result, ground = stamped(stamp)
    return {
        "changed": changed,
        "digest": stamp["digest"],
        "from_cache": stamp["from_cache"],
        "ground": ground,
        "log": files.log,
        "result": result,
        "script": files.script,
        "seconds": stamp["seconds"],
        "started": stamp["started"],
        "state": state,
        "step": files.name,
        "taken_over": stamp.get("taken_over"),
    }


def seconds_so_far(job: dict) -> float:
    """How long the build has been going on: both times are from the clock of the machine that builds."""
    return max(0.0, seconds_of(job["heartbeat"]) - seconds_of(job["begun"])) if job.get("begun") else 0.0


def running_result(files: StepFiles, job: dict, place: Here, standing: Standing) -> dict:
    """The module's result for a step that is being built, or waits to be."""
    here = job["launcher"] == "local" and job["host"] == place.host
    seconds = max(0.0, time.time() - seconds_of(job["started"])) if here else seconds_so_far(job)
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
        **job_keys(files, job, standing.queue),
    }


def job_keys(files: StepFiles, job: dict, queue: dict | None = None) -> dict:
    """What a result says about the job of a batch system; nothing where there is none."""
    submission = submission_of(files, job)
    if submission is None:
        return {}
    node = queue["node"] or None if queue else job["host"] if job["phase"] == "running" else None
    job_id = (queue or {}).get("job_id") or submission["job_id"] or job.get("job_id")
    return {"job_id": job_id, "job_name": submission["job_name"], "node": node, "queue": queue}


def progress_of(files: StepFiles, job: dict, seconds: float) -> dict:
    """The progress marks at the end of the attempt's log, and the line that shows them."""
    progress = parse_progress(read_end(files.log, job["log_offset"]))
    return dict(progress or {}, text=progress_line(files.name, progress, seconds))


def refused_warnings(files: StepFiles, job: dict, end: dict) -> list[str]:
    """What an operator should know of a step that ended well although it was refused the network."""
    cause = refused_sentence(files.name, job["needs"], end, read_end(files.log, job["log_offset"]))
    return [
        "%s%s. It ended well all the same, but what it made may differ from what it would be with that; %s has all."
        % (cause[0].upper(), cause[1:], files.path(RECORD))
    ] if cause else []


def failure(files: StepFiles, job: dict, sentence: str, end: dict) -> StackError:
    """The error for an attempt that did not succeed."""
    tail = read_end(files.log, job["log_offset"])
    refused = refused_sentence(files.name, job["needs"], end, tail)
    found = explained(files.log, job["log_offset"], end)
    message = [sentence[0].upper() + sentence[1:] + (": %s." % refused if refused else ":" if found else ".")]
    message += ["log line %d: %s" % line for error in found for line in error.lines]
    message.append("The log is %s." % files.log)
    kind = "" if refused else kind_of(end, found)
    free = free_space(files.directory, tempfile.gettempdir()) if kind in ("disk_full", "quota") else None
    remedy = "%s By hand: %s" % (remedy_of(end, kind, free), files.by_hand)
    if end["reason"] == "error":
        remedy = "Make sure that this account can write %s and that there is space. %s" % (files.directory, remedy)
    return StackError(
        "\n".join(message),
        end["reason"] if end["reason"] in ("creates", "needs") else "run",
        remedy,
        files.script,
        attempt=job["attempt"],
        digest=job["digest"],
        errors=[{"kind": error.kind, "line": error.lines[0].number} for error in found],
        exit_code=end.get("code"),
        log=files.log,
        **({} if found else {"log_tail": last_lines(tail)}),
        missing=end.get("missing", []),
        notes=end.get("notes", []),
        refused=end.get("refused", []),
        reason=end["reason"],
        retry=files.by_hand,
        script=files.script,
        seconds=end.get("seconds"),
        stacks=end.get("stacks", []),
        started=job["started"],
        step=files.name,
        **{**job_keys(files, job), **{key: end[key] for key in ("job_id", "node") if end.get(key)}, "queue": None},
    )


def in_short(failed: dict) -> dict:
    """The result of a failure with its first line as ``msg``, and the whole message as ``told``.

    Since 2.19 Ansible shows ``msg`` twice, before the result and in it. The action plugin puts the whole one back, so
    that what a log says is on the screen once.
    """
    if "errors" not in failed:
        return failed
    first = failed["msg"].partition("\n")[0].rstrip(":.")
    return dict(failed, msg=first + ".", told=failed["msg"])

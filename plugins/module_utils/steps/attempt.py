# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Prepare an attempt at a step, and launch it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from typing import Any, Mapping, NamedTuple

from ..core.clock import utc
from ..core.errors import StackError
from ..core.files import write_atomic, write_json
from ..core.processes import Here, here, read_process
from .files import StepFiles
from .inputs import step_record
from .json_record import NEXT
from .launcher import supervisor_archive
from .launcher_registry import launcher_of
from .lock import CLAIM, StepLock, own_announcement
from .outcome import Outcome
from .records import JobRecord, Limits
from .request import Request
from .results import refused_submission
from .script import render_script
from .turn_records import PREFIX, still_there


class Order(NamedTuple):
    """How a step is to be run, when it has to be."""

    digest: str
    needs: Mapping[str, str]
    """What it is judged by of each step that it needs."""
    result: str | None = None
    """What others judge it by, as far as that is known before it runs (see :mod:`.needs`)."""
    ground: str | None = ""
    """What it is made on, likewise."""
    limits: Limits = Limits()
    cache: str | None = None
    launcher: str = "local"
    """One of :data:`.LAUNCHERS`."""
    options: Mapping[str, Any] = {}
    """What to ask the batch system for, as :func:`.registry.check_options` returns it."""


def launch_attempt(request: Request, order: Order, lock: StepLock, last: JobRecord | None) -> tuple[str, list[str]]:
    """Write what the supervisor needs in place of what the last attempt has left, the announcement last, and launch it.

    Return the new job's nonce, and warnings. StackError: no launch, or a refusal; OSError: a record cannot be written.
    """
    files = request.files
    job = _announcement(request, order, last)
    if request.private_logs and request.secrets:
        # Before anything is written there. The freeze and the archive of logs know such a step by this.
        os.chmod(files.directory, 0o700)
    _remove_litter(files, lock.here)
    for path in (files.stamp, files.exit, files.result, files.own):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    write_atomic(files.script, render_script(request, order.digest, order.needs).encode("utf-8"), 0o755)
    write_json(files.inputs, step_record(request, order.digest, order.needs))
    write_atomic(files.archive, supervisor_archive())
    job.write(files)
    try:
        return job.nonce, launcher_of(job).launch(files, job, lock)
    except (StackError, OSError) as error:
        if isinstance(error, StackError) and error.failed_step == "scheduler":
            # Nobody knows whether there is a job: the next run asks again, before it submits another one.
            raise
        if isinstance(error, StackError) and error.failed_step == "submit":
            raise refused_submission(files, job, error) from error
        with contextlib.suppress(OSError):
            Outcome.of("error", error=str(error)).write(files, job.nonce)
        raise


def _announcement(request: Request, order: Order, last: JobRecord | None) -> JobRecord:
    """Make the record of a job that is about to start."""
    files, place, now = request.files, here(), utc(time.time())
    return JobRecord(
        secrets.token_hex(16), order.digest, order.launcher, place.host, place.boot_id, now, now, "starting",
        attempt=last.attempt + 1 if last else 1, cache=order.cache,
        former=still_there(files, last.nonce) if last else None, foundation=request.foundation, ground=order.ground,
        last_nonce=last.nonce if last else None, limits=order.limits,
        log_offset=os.path.getsize(files.log) if os.path.exists(files.log) else 0, needs=order.needs,
        options=order.options, result=order.result, secrets=request.secrets,
    )


def _remove_litter(files: StepFiles, place: Here) -> None:
    """Remove what killed processes were writing: not announcements of other hosts, nor those of living processes."""
    records = (files.script, files.inputs, files.log, files.exit, files.stamp, files.result, files.job, files.again,
               files.archive, files.submission, files.batch_script)
    temporary = re.compile(
        r"\.(?:%s)\.[a-z0-9_]{8}\Z" % "|".join(re.escape(os.path.basename(path)) for path in records)
    )
    announcement = os.path.basename(own_announcement(files.path(CLAIM), place.host, 0))[:-1]
    for name in os.listdir(files.directory):
        owner = name[len(announcement):] if name.startswith(announcement) else ""
        dead = owner.isdigit() and read_process(int(owner)) is None
        old = files.path(name) in (files.job + NEXT, files.submission, files.batch_script) or name.startswith(PREFIX)
        if dead or old or temporary.match(name):
            with contextlib.suppress(OSError):
                os.unlink(files.path(name))

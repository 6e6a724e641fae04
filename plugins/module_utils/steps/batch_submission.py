# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Submit a step to its batch system so that no lost answer ever leads to a second job."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Mapping

from ..batch.scheduler import BatchSystem, current_job
from ..core.clock import utc
from ..core.errors import StackError
from ..core.files import write_atomic
from .files import StepFiles
from .launcher import supervisor_command
from .lock import StepLock
from .records import JobRecord, Submission

RECONCILE_SECONDS = 35.0
"""How long a submission without an answer is looked for before there is another one. A request may be on its way for as
long as a command of Slurm waits for its answer (10 s; ``MessageTimeout``, slurm.conf(5)), or as a hook of PBS may take
to let a job in (30 s; ``alarm``, pbs_hook_attributes(7B))."""


def job_name(step: str, digest: str, nonce: str, requeues: int) -> str:
    """Return a name that no other submission has: ``ts-pytorch-6f1ed002-9c0a11d4``, then ``...-r1``."""
    return "ts-%s-%s-%s%s" % (step, digest[:8], nonce[:8], "-r%d" % requeues if requeues else "")


def submit(
    system: BatchSystem, options: Mapping[str, Any], step: StepFiles, job: JobRecord, lock: StepLock, requeues: int = 0
) -> None:
    """Submit a job for the ``requeues``-th time after the first; its name is on disk before, its identifier afterwards.

    StackError, ``failed_step="submit"``: the job was refused; ``"scheduler"``: nobody knows, and the next run asks.
    """
    name = job_name(step.name, job.digest, job.nonce, requeues)
    variables = [*filter(None, (system.job_id_variable, system.restarts_variable))]
    command = supervisor_command(step, job.nonce, python=options.get("python", ""), variables=variables)
    script = system.script(name, options, step.log, command)
    write_atomic(step.batch_script, script.encode("utf-8"), 0o755)
    intent = Submission(job.nonce, name, None, requeues, step.batch_script, utc(time.time()))
    intent.write(step)
    try:
        job_id = system.submit(step.batch_script, options, [lock.descriptor], job.secrets)
    except StackError as error:
        if error.failed_step != "scheduler":
            raise
        found = _find_submitted(system, name)
        if found is None:
            raise
        job_id = found
    intent._replace(job_id=job_id).write(step)


def _find_submitted(system: BatchSystem, name: str) -> str | None:
    """Find the job of a submission whose answer was lost; None where the scheduler knows none, or does not answer."""
    deadline = time.monotonic() + RECONCILE_SECONDS
    while True:
        with contextlib.suppress(StackError):
            status = current_job(system.find(name))
            if status is not None:
                return status.job_id
        if time.monotonic() > deadline:
            return None
        time.sleep(1.0)

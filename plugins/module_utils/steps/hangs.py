# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A job that has fallen silent: where its processes hang, then the site's own commands. It is stopped elsewhere."""

from __future__ import annotations

import os
import signal
from typing import Callable, Mapping, MutableMapping, Sequence

from ..core.processes import Process
from . import hang_actions
from . import stack_dumps as stacks
from .step import StepFiles


def prepare(environment: MutableMapping[str, str], limits: Mapping) -> None:
    """Give a job that may be found silent what its Python processes need to say where they are.

    Args:
        environment: that of the job's script.
        limits: as the job's record has them.
    """
    if limits["no_output_timeout"] and limits["hang_signal"] != "none":
        stacks.prepare(environment)


def examine(
    files: StepFiles, job: Mapping, log: int, members: Callable[[], list[Process]], note: Callable[[str], None],
    tick: Callable[[], None], environment: Mapping[str, str], secrets: Sequence[str] = (),
) -> dict:
    """Have a silent job say where it hangs, and tell the site.

    Args:
        files: the step.
        job: the job's record.
        log: descriptor of the log.
        members: the living processes of the job.
        note: writes a line of our own into the log.
        tick: called while waiting, for whoever has children to reap and a heartbeat to write.
        environment: variables of the site's commands.
        secrets: what must not be seen of what programs print.

    Returns:
        For the record of the end: ``stacks``, what the processes said, and ``notes``, which commands failed.
    """
    limits = job["limits"]
    start = os.fstat(log).st_size
    signum = None if limits["hang_signal"] == "none" else getattr(signal, "SIG" + limits["hang_signal"])
    stacks.StackDump(members, signum, log, note, tick, secrets).run()
    facts = {
        "step": files.name, "host": job["host"], "log": files.log, "pid": str(os.getpid()),
        "job_id": str(job.get("job_id") or ""),
    }
    said = stacks.read_stacks(files.log, start)
    notes = hang_actions.run_actions(limits.get("on_hang") or {}, facts, log, note, environment, secrets)
    return {"stacks": said, "notes": notes}

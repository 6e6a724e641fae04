# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do what the options of a module ask of ranks: plan it, run it here, give the step of its job, or judge that."""

from __future__ import annotations

import shlex
from typing import Any, Callable, Mapping, NamedTuple

from . import batch_run, local_run, planning, script
from .records import Files
from .run import Conclude, Run


class Kind(NamedTuple):
    """What is asked of the ranks: its name for people, how its output is judged, and how its record is described."""

    title: str
    conclude: Conclude
    describe: Callable[[Any], dict[str, Any]]


def plan(
    kind: Kind, params: Mapping[str, Any], files: Files, question: Mapping[str, Any], reason: str, check: bool
) -> dict[str, Any]:
    """Return the result as far as it is known before anything runs; ``passed`` where the record answers.

    Raises:
        StackError: there is no release that could be asked about.
    """
    last, words = files.last(), [*question["launcher"], params["python"], script.PROGRAM]
    result = {
        "changed": bool(reason), "reason": reason, "record": files.record, "log": files.log,
        "command": " ".join(map(shlex.quote, words)),
        "diff": planning.plan_diff(kind.title, last, params["subject"], reason),
    }
    missing = planning.find_obstacle(question["prefix"], params["subject"])
    if missing and not check:
        raise missing
    if not reason:
        return dict(result, **kind.describe(last))
    return dict(result, passed=None, **({"planned_after": "freeze"} if missing else {}))


def carry_out(
    kind: Kind, params: Mapping[str, Any], files: Files, question: Mapping[str, Any], limits: Run, program: bytes,
    result: dict[str, Any], check: bool,
) -> dict[str, Any]:
    """Complete the planned result, by the ranks, by the step of their job, or by what that has left.

    Raises:
        StackError: it did not pass, or could not be tried.
    """
    job, judged = params["job"], params["state"] == "judged"
    if job and not judged:
        if not result["reason"]:
            return dict(result, needed=False)
        ask = batch_run.plan_job if check else batch_run.request_job
        return dict(result, changed=False, needed=True, **ask(files, question, limits, program, job))
    if check or not result["reason"]:
        return result
    if judged:
        record = batch_run.conclude_job(files, question, limits, program, params["wait"], kind.conclude)
    else:
        record = local_run.run_locally(files, question, limits, program, kind.conclude)
    return dict(result, **kind.describe(record))

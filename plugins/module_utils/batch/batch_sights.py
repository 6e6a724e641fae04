# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a scheduler shows of a job, as the module's result and the record of an end have it. Pure."""

from __future__ import annotations

from .scheduler import (
    DONE,
    FAILED,
    PENDING,
    Sight,
)


def queue_of(sight: Sight, submission: dict, former: str = "") -> dict:
    """How a job waits.

    Args:
        sight: the job; ``starting`` is one that has nodes, and whose supervisor has not reported.
        submission: the record of its submission.
        former: where an earlier supervisor of the step may still be, which this one waits for.
    """
    if sight.state != PENDING:
        state = "starting"
    elif sight.held:
        state = "held"
    else:
        state = "requeued" if sight.restarts or submission["requeues"] else "pending"
    return {
        "advice": sight.advice,
        "estimated_start": sight.estimated_start,
        "former": former if state == "starting" else "",
        "job_id": sight.job_id,
        "node": sight.nodes if state == "starting" else "",
        "of": sight.of,
        "partition": sight.partition,
        "position": sight.position,
        "reason": sight.reason,
        "state": state,
    }


def end_of_job(sight: Sight, title: str) -> dict:
    """How a job ended, as the record of an end.

    Args:
        sight: the job, which is over.
        title: what an operator calls the scheduler.
    """
    end: dict = {
        "reason": sight.end,
        "advice": sight.advice,
        "detail": sight.reason,
        "job_id": sight.job_id,
        "node": sight.nodes,
        "scheduler": title,
        "words": sight.words,
    }
    if sight.end in (DONE, FAILED):
        # Only here does the exit code say something: whatever ends a job, its script ends somehow.
        end.update(reason="killed", code=sight.exit_code, signal=sight.signal)
    return end

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe how a job of a batch system ended, for the operator. Pure."""

from __future__ import annotations

from typing import Any, Mapping

MEANINGS = {
    "boot_failed": "was given up because its nodes could not be started",
    "cancelled": "was cancelled",
    "killed": "ended, and its supervisor has recorded nothing",
    "lost": "is gone: neither the queue nor the accounting knows it, and its heartbeat has stopped",
    "never_started": "was taken, and then given up before it could start",
    "node_failed": "lost its node",
    "out_of_memory": "ran out of memory",
    "preempted": "was preempted",
    "time_limit": "reached its time limit",
}
"""What the reasons that only a scheduler can give mean."""

OVERRULING = (
    "boot_failed", "cancelled", "never_started", "node_failed", "out_of_memory", "preempted", "time_limit")
"""What a scheduler says about the end of a job that explains why its script ended."""


def describe_end(name: str, end: Mapping[str, Any]) -> str:
    """Describe the end of a job as the beginning of a sentence.

    It has ``reason``, ``job_id``, ``scheduler`` (title), ``words``, maybe ``node``, ``detail``, ``code``, ``signal``.
    """
    if end["reason"] == "rejected":
        return "the job of step %s was not accepted: %s" % (name, end["words"].rstrip("."))
    if end["reason"] == "cancelled" and not end.get("job_id"):
        return "step %s was cancelled %s" % (name, end["words"])
    if end["reason"] == "requeued":
        return "job %s of step %s was not started again: it has been put back %d times, and requeue allows %d" % (
            end["job_id"], name, end["count"], end["limit"])
    facts = ["%s: %s" % (end["scheduler"], end["words"])] if end.get("words") else [end["scheduler"]]
    if end.get("detail"):
        facts.append("reason %s" % end["detail"])
    if end.get("node"):
        facts.append("node %s" % end["node"])
    if end.get("signal"):
        facts.append("signal %d" % end["signal"])
    elif end.get("code") is not None:
        facts.append("exit code %d" % end["code"])
    return "job %s of step %s %s (%s)" % (end["job_id"], name, MEANINGS[end["reason"]], ", ".join(facts))

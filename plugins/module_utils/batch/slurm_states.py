# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Translate states, reasons and refusals of Slurm, with what an operator can do about them. Pure.

States are those of "JOB STATE CODES" in squeue(1), reasons those of "JOB REASON CODES" there.
"""

from __future__ import annotations

from .scheduler import (
    BOOT_FAILED,
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    NODE_FAILED,
    OUT_OF_MEMORY,
    PENDING,
    PREEMPTED,
    RUNNING,
    TIME_LIMIT,
    advice_for,
)

_ENDS = {
    "BOOT_FAIL": BOOT_FAILED, "CANCELLED": CANCELLED, "COMPLETED": DONE, "DEADLINE": TIME_LIMIT, "FAILED": FAILED,
    "LAUNCH_FAILED": FAILED, "NODE_FAIL": NODE_FAILED, "OUT_OF_MEMORY": OUT_OF_MEMORY, "PREEMPTED": PREEMPTED,
    "REVOKED": CANCELLED, "TIMEOUT": TIME_LIMIT,
}

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_HELD_STATES = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")

_PENDING_ADVICE = (
    ("jobheldadmin", "An administrator holds it: ask the site."),
    ("held", "It is held: 'scontrol release {job_id}' lets it go on."),
    ("partitiondown", "The partition is down and starts nothing: wait until the site brings it up, or choose another."),
    ("partitioninactive", "The partition starts nothing: wait until the site activates it, or choose another."),
    ("partitiontimelimit", "The partition allows less time than it asks for: cancel it, and shorten walltime."),
    ("partitionnodelimit", "It asks for more nodes than the partition has or allows: cancel it, and ask for fewer."),
    ("partitionconfig", "The partition has less than it asks for: cancel it, and ask for less."),
    ("badconstraints", "No node has what it asks for: cancel it, and correct directives, cores, memory or gpus."),
    ("invalidaccount", "The account is not valid: cancel it, and correct account."),
    ("invalidqos", "The QOS is not valid: cancel it, and correct qos."),
    ("down, drained", "Nodes that it needs are down or drained: 'sinfo -R' says why; wait for them, or choose others."),
    ("reqnodenotavail", "Nodes that it needs are down, drained or reserved: 'sinfo -R' says why."),
    ("dependencyneversatisfied", "It waits for a job that failed: cancel it."),
)

_REFUSAL_ADVICE = (
    ("account", "Correct account, or ask the site for access; 'sacctmgr show associations user=$USER' lists yours."),
    ("qos", "Correct qos; 'sacctmgr show associations user=$USER format=account,partition,qos' lists yours."),
    ("partition name", "Correct partition; 'sinfo -s' lists them."),
    ("partition specified", "Correct partition; 'sinfo -s' lists them."),
    ("partition not available", "The partition takes no jobs: wait until the site activates it, or choose another."),
    ("time limit", "Ask for a shorter walltime; 'scontrol show partition' names the longest."),
    ("node count", "Ask for fewer nodes; 'scontrol show partition' names the most."),
    ("configuration is not available", "No node has so many cores, gpus or so much memory; 'sinfo -Nl' shows them."),
    ("generic resource", "Correct gpus: 'sinfo -o \"%P %G\"' lists what the partitions have."),
    ("feature", "Correct the constraint in directives: 'sinfo -o \"%P %f\"' lists the features."),
    ("policy", "A limit of the site is in the way; the words say which, 'sacctmgr show associations' what it is."),
)

_END_ADVICE = (
    ("TIMEOUT", "Ask for a longer walltime; what was compiled is kept, and the next run goes on from there."),
    ("DEADLINE", "Its deadline has passed: correct directives."),
    ("PREEMPTED", "Choose a partition or QOS that is not preempted, or allow requeue."),
    ("NODE_FAIL", "The node failed: 'sinfo -R' says why; run this again, or allow requeue."),
    ("OUT_OF_MEMORY", "Ask for more memory, or let the build use fewer processes."),
    ("BOOT_FAIL", "The nodes could not be started: run this again, or tell the site."),
)

LOG_NOT_OPENED = 53
"""The signal that slurmstepd puts into the exit code of a job whose output file it could not open."""


def state_of(word: str) -> str:
    """Return PENDING, RUNNING or ENDED for a state of Slurm; one that is not known is taken for a job that goes on."""
    if word in _ENDS:
        return ENDED
    return PENDING if word in _WAITING else RUNNING


def end_of(word: str) -> str:
    """Return one of :data:`.scheduler.ENDS` for a state in which a job is over."""
    return _ENDS[word]


def is_held(word: str, reason: str) -> bool:
    """Tell whether a job waits until somebody releases it."""
    return word in _HELD_STATES or "held" in reason.lower()


def advice_on_waiting(job_id: str, word: str, reason: str) -> str:
    """Advise what to do about a job that waits for this reason; empty where waiting is all."""
    words = reason + (" held" if word in _HELD_STATES else "")
    return advice_for(words, _PENDING_ADVICE).format(job_id=job_id)


def advice_on_end(word: str, reason: str, signal: int | None) -> str:
    """Advise what to do about a job that ended like this; empty where its log says more."""
    if signal == LOG_NOT_OPENED or "JobLaunchFailure" in reason:
        return "The node could not open the log: make sure that the step's directory is mounted and writable there."
    return next((advice for state, advice in _END_ADVICE if word.startswith(state)), "")


def advice_on_refusal(words: str) -> str:
    """Advise what to do about a refusal of sbatch."""
    return advice_for(words, _REFUSAL_ADVICE, "Correct launcher_options.")

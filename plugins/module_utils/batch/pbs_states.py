# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Translate states, exit statuses, comments and refusals of PBS, with what to do about them. Pure.

States are those of ``job_state`` in pbs_job_attributes(7B). ``Exit_status`` is explained in the PBS administrator's and
reference guides ("Job Exit Codes"); its negative values are the ``JOB_EXEC_`` constants of src/include/job.h of
OpenPBS, and the substates the ``JOB_SUBSTATE_`` ones there.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple

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

TERMINATED = 91
"""Substate of a finished job that was deleted (JOB_SUBSTATE_TERMINATED)."""

PREEMPTING = "terminated by Scheduler@"
"""In the comment of a job that was deleted to make room (``preempt_order`` with D, pbs_sched_attributes(7B))."""

FINISHED = 92
"""Substate of a finished job that ended by itself with success; also of a moved one that is over elsewhere."""

LOG_NOT_OPENED = 73
"""Exit code of the batch script when it cannot open the log: EX_CANTCREAT of sysexits(3)."""

SIGNALLED = 256
"""An Exit_status above this is the signal that ended the batch script, plus this."""

_WAITING = {"H": "held", "M": "moved", "Q": "queued", "T": "in transit", "W": "waiting for its time"}
_WORKING = {
    "B": "begun", "E": "exiting", "R": "running", "S": "suspended by the server", "U": "suspended, its node is in use",
}
_OVER = {"F": "finished", "X": "finished"}
STATES = dict(_WAITING, **_WORKING, **_OVER)
"""What each letter of job_state means."""


_CTIME = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d) (\d{4})\Z")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Special(NamedTuple):
    """A negative Exit_status: the job did not end by itself."""

    end: str
    meaning: str


SPECIAL = {
    -1: Special(BOOT_FAILED, "PBS could not start it, before it set up its files"),
    -2: Special(BOOT_FAILED, "PBS could not start it, after it set up its files"),
    -3: Special(BOOT_FAILED, "PBS could not start it, and would have tried again"),
    -4: Special(NODE_FAILED, "pbs_mom of its node was started anew"),
    -5: Special(NODE_FAILED, "pbs_mom of its node was started anew"),
    -6: Special(NODE_FAILED, "pbs_mom of its node was started anew"),
    -7: Special(BOOT_FAILED, "it could not be restarted from its checkpoint"),
    -10: Special(BOOT_FAILED, "the node does not know its user or group"),
    -11: Special(NODE_FAILED, "it was put back to run again"),
    -12: Special(PREEMPTED, "it was checkpointed and ended"),
    -13: Special(BOOT_FAILED, "its user could not be authenticated on the node"),
    -14: Special(NODE_FAILED, "another of its nodes failed"),
    -15: Special(PREEMPTED, "it was put back to be restarted from its checkpoint"),
    -16: Special(BOOT_FAILED, "a hook of the site rejected it"),
    -17: Special(BOOT_FAILED, "a hook of the site rejected and deleted it"),
    -18: Special(PREEMPTED, "a hook of the site put it back"),
    -19: Special(CANCELLED, "a hook of the site deleted it"),
    -20: Special(NODE_FAILED, "the connection to its first node was lost"),
    -21: Special(BOOT_FAILED, "its temporary directory on the node is not safe"),
    -22: Special(BOOT_FAILED, "a hook of the site failed"),
    -23: Special(BOOT_FAILED, "it has no Kerberos credentials"),
    -24: Special(FAILED, "it used more cores than it asked for (burst)"),
    -25: Special(FAILED, "it used more cores than it asked for (sum)"),
    -26: Special(OUT_OF_MEMORY, "it used more vmem than it asked for"),
    -27: Special(OUT_OF_MEMORY, "it used more mem than it asked for"),
    -28: Special(TIME_LIMIT, "it used more CPU time (cput) than it asked for"),
    -29: Special(TIME_LIMIT, "it ran longer than its walltime"),
    -30: Special(BOOT_FAILED, "its nodes could not join"),
}
"""What the negative values of Exit_status mean."""


class End(NamedTuple):
    """How a job ended."""

    end: str
    exit_code: int | None
    signal: int | None


def state_of(job: Mapping[str, Any]) -> str:
    """Return PENDING, RUNNING or ENDED; a state that is not known here is taken for a job that goes on."""
    letter = str(job.get("job_state", ""))
    if letter in _OVER or (letter == "M" and job.get("substate") == FINISHED):
        return ENDED
    return PENDING if letter in _WAITING else RUNNING


def end_of(job: Mapping[str, Any]) -> End:
    """Tell how a job ended that is over.

    One that was deleted is cancelled, or preempted where the scheduler did it, whatever its processes made of their
    signal, and whatever Exit_status an earlier run has left. One without Exit_status never ran, or its node went away
    and it was not to be run again (``T_MOM_DOWN`` in src/server/node_manager.c of OpenPBS).
    """
    status = job.get("Exit_status")
    if not isinstance(status, int) or isinstance(status, bool):
        status = None
    code = status if status is not None and 0 <= status < SIGNALLED else None
    signal = status - SIGNALLED if status is not None and status > SIGNALLED else None
    if job.get("substate") == TERMINATED:
        return End(PREEMPTED if PREEMPTING in str(job.get("comment", "")) else CANCELLED, code, signal)
    if status in SPECIAL:
        return End(SPECIAL[status].end, None, None)
    if status is None:
        return End(DONE if job.get("substate") == FINISHED else NODE_FAILED, None, None)
    return End(DONE if status == 0 else FAILED, code, signal)


def nodes_of(job: Mapping[str, Any]) -> str:
    """Return a job's hosts in order, of an ``exec_host`` as ``nid1/0*64+nid2/0*64`` (pbs_job_attributes(7B))."""
    hosts = (chunk.partition("/")[0] for chunk in str(job.get("exec_host", "")).split("+"))
    return ",".join(dict.fromkeys(hosts))


def start_of(job: Mapping[str, Any]) -> str:
    """Return when PBS expects to start a job, in UTC as the records spell it; empty where it does not say.

    qstat writes it as ctime(3) does, in the zone of its environment, which is UTC (:mod:`.commands`).
    """
    estimated = job.get("estimated")
    found = _CTIME.match(str(estimated.get("start_time", ""))) if isinstance(estimated, dict) else None
    if found is None or found.group(1) not in _MONTHS:
        return ""
    month, day, clock, year = found.groups()
    return "%s-%02d-%02dT%sZ" % (year, _MONTHS.index(month) + 1, int(day), clock)


def describe_state(job: Mapping[str, Any]) -> str:
    """Describe the state of a job as PBS does: ``job_state F, substate 93, Exit_status -29 (...)``.

    While a job that was put back waits or runs, its Exit_status is that of its last run.
    """
    letter = str(job.get("job_state", ""))
    if state_of(job) != ENDED:
        return "job_state %s%s" % (letter, " (%s)" % STATES[letter] if letter in STATES else "")
    parts = ["job_state %s" % letter, "substate %s" % job.get("substate", "unknown")]
    status = job.get("Exit_status")
    if isinstance(status, int) and status in SPECIAL:
        parts.append("Exit_status %d (%s)" % (status, SPECIAL[status].meaning))
    elif status is not None:
        parts.append("Exit_status %s" % status)
    return ", ".join(parts)


_HOLDS = (
    ("p", "It is held as its password was refused: ask the site."),
    ("s", "The site or PBS itself holds it, also after too many failed starts: ask the site."),
    ("o", "An operator holds it: ask the site."),
    ("u", "It is held: 'qrls {job_id}' lets it go on."),
)
"""Letters of Hold_Types, the one that the owner cannot lift first (pbs_job_attributes(7B))."""

_WAITING_ADVICE = (
    ("can never run", "It can never start like this: cancel it, and correct what the comment names."),
    ("queue not started", "The queue starts nothing: wait until the site starts it, or choose another."),
    ("not started", "The queue starts nothing: wait until the site starts it, or choose another."),
    ("dedicated", "Dedicated time comes before its end: ask for a shorter walltime, or wait."),
    ("limit", "A limit of the site is in the way; the comment says which."),
)

_END_ADVICE = {
    TIME_LIMIT: "Ask for a longer walltime; what was compiled is kept, and the next run goes on from there.",
    OUT_OF_MEMORY: "Ask for more memory, or let the build use fewer processes.",
    NODE_FAILED: "The node failed: 'pbsnodes -l' lists such nodes; run this again, or allow requeue.",
    PREEMPTED: "Choose a queue that is not preempted, or allow requeue.",
    BOOT_FAILED: "It did not start: run this again, or tell the site its job id and Exit_status.",
}

_REFUSAL_ADVICE = (
    ("unknown queue", "Correct queue; 'qstat -Q' lists the queues."),
    ("queue is not enabled", "The queue takes no jobs: wait until the site enables it, or choose another."),
    ("not enabled", "The queue takes no jobs: wait until the site enables it, or choose another."),
    ("access to queue", "Choose a queue that you may use; 'qstat -Qf' shows who may."),
    ("unauthorized", "Ask the site for the right to submit, or choose another queue."),
    ("account", "Correct account, or ask the site for access to it."),
    ("project", "Correct account, or ask the site for access to it."),
    ("unknown resource", "Correct the resource in directives: 'qmgr -c \"list resource\"' lists what there is."),
    ("queue and/or server resource limits", "Ask for less, or for a shorter walltime; 'qstat -Qf' shows the limits."),
    ("resource", "Correct cores, memory, gpus, nodes, walltime or directives: the words say which."),
    ("would exceed", "You have as many jobs as the site allows: wait until some end."),
    ("requested id already exists", "The server counts its jobs anew, as it may after a crash, and meets old ones: run "
     "this again, as each try takes it further, and tell the site."),
    ("job name", "PBS does not take this job name; versions before 13 allow 15 characters only and are not supported."),
)


def is_held(job: Mapping[str, Any]) -> bool:
    """Tell whether a job waits until somebody releases it."""
    return job.get("job_state") == "H"


def advice_on_waiting(job_id: str, job: Mapping[str, Any]) -> str:
    """Advise what to do about a job that waits; empty where waiting is all."""
    if is_held(job):
        holds = str(job.get("Hold_Types", ""))
        return next((advice for letter, advice in _HOLDS if letter in holds), "").format(job_id=job_id)
    return advice_for(str(job.get("comment", "")), _WAITING_ADVICE)


def advice_on_end(end: End) -> str:
    """Advise what to do about a job that ended like this; empty where its log says more."""
    if end.exit_code == LOG_NOT_OPENED and end.end == FAILED:
        return "The node could not open the log: make sure that the step's directory is mounted and writable there."
    return _END_ADVICE.get(end.end, "")


def advice_on_refusal(words: str) -> str:
    """Advise what to do about a refusal of qsub."""
    return advice_for(words, _REFUSAL_ADVICE, "Correct launcher_options.")

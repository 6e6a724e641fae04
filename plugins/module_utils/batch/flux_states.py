# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Translate states, results, exceptions and refusals of Flux, with what an operator can do about them. Pure.

A job is what ``flux jobs --json`` shows of it (flux-jobs(1)): states are those of RFC 21, exceptions those of its
"Exception Event", whose first fatal one says why a job has ended before its script did.
"""

from __future__ import annotations

import time
from typing import Any, Mapping, NamedTuple

from ..core.lenient_json import mapping, sequence
from .scheduler import (
    BOOT_FAILED,
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    NEVER_STARTED,
    NODE_FAILED,
    PENDING,
    RUNNING,
    TIME_LIMIT,
    advice_for,
)

YEAR_10000 = 253402300800
"""Seconds since 1970 from which on no time is shown."""

LOG_NOT_OPENED = 73
"""Exit code of the batch script when it cannot open the log: EX_CANTCREAT of sysexits(3)."""

SIGNALLED = 128
"""An exit code above this is the signal that ended the batch script, plus this."""

_WAITING = ("NEW", "DEPEND", "PRIORITY", "SCHED")

_RESULTS = {"CANCELED": CANCELLED, "COMPLETED": DONE, "TIMEOUT": TIME_LIMIT}
"""What each result says but FAILED, which needs the exception."""

_EXCEPTIONS = {"cancel": CANCELLED, "node-failure": NODE_FAILED, "prolog": BOOT_FAILED, "timeout": TIME_LIMIT}

LOST = ("node failure", "lost contact")
"""What the note of an exception of the type exec says of a lost node (src/modules/job-exec of flux-core)."""

_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class End(NamedTuple):
    """How a job ended."""

    end: str
    exit_code: int | None
    signal: int | None


def f58(number: int) -> str:
    """Return a job's identifier as users know it, in ASCII: ``f2oLkTLb`` (RFC 19, F58 with the prefix f)."""
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return "f" + (text or _DIGITS[0])


def state_of(job: Mapping[str, Any]) -> str:
    """Return PENDING, RUNNING or ENDED; a state that is not known here is taken for a job that goes on."""
    state = job.get("state")
    if state == "INACTIVE":
        return ENDED
    return PENDING if state in _WAITING else RUNNING


def exception_of(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return type and note of the exception that has ended a job; both empty where none has."""
    found = mapping(job.get("exception"))
    if not found.get("occurred") or found.get("severity") != 0:
        return "", ""
    return str(found.get("type") or ""), str(found.get("note") or "")


def end_of(job: Mapping[str, Any]) -> End:
    """Tell how a job ended that is over."""
    code = job.get("returncode")
    code = code if isinstance(code, int) and not isinstance(code, bool) and "t_run" in job else None
    signal = -code if code is not None and code < 0 else None
    if code is not None and code > SIGNALLED:
        signal = code - SIGNALLED
    code = None if signal is not None else code
    result = str(job.get("result", ""))
    if result in _RESULTS:
        return End(_RESULTS[result], code, signal)
    kind, note = exception_of(job)
    if "t_run" not in job:
        return End(NEVER_STARTED, None, None)
    if kind == "exec" and any(words in note.lower() for words in LOST):
        kind = "node-failure"
    return End(_EXCEPTIONS.get(kind, FAILED), code, signal)


def describe_state(job: Mapping[str, Any]) -> str:
    """Describe the state of a job as Flux does: ``SCHED``, or over ``FAILED, exception exec, returncode 1``."""
    if state_of(job) != ENDED:
        return str(job.get("state", ""))
    kind, _note = exception_of(job)
    parts = [str(job.get("result", ""))]
    if kind and kind not in ("cancel", "timeout"):
        parts.append("exception " + kind)
    if "t_run" in job and job.get("returncode") not in (None, 0, ""):
        parts.append("returncode %s" % job["returncode"])
    return ", ".join(parts)


def is_held(job: Mapping[str, Any]) -> bool:
    """Tell whether a job waits until somebody releases it; at the priority 0 the site's plugin holds it."""
    return job.get("urgency") == 0 or (job.get("state") == "SCHED" and job.get("priority") == 0)


def reason_of(job: Mapping[str, Any]) -> str:
    """Say why a job waits, or what Flux adds to how it ended, in its own words; empty where it does not say."""
    if state_of(job) == ENDED:
        return exception_of(job)[1]
    if job.get("urgency") == 0:
        return "urgency 0"
    state = job.get("state")
    if state == "DEPEND":
        return "depends on " + ", ".join(map(str, sequence(job.get("dependencies")) or ["something"]))
    if state == "PRIORITY":
        return "waits for its priority"
    if state == "SCHED" and job.get("priority") == 0:
        return "priority 0"
    return str(_sched(job).get("reason_pending") or "")


def start_of(job: Mapping[str, Any]) -> str:
    """Return when the scheduler expects to start a job, in UTC as the records spell it; empty where it does not say."""
    estimate = _sched(job).get("t_estimate")
    if not isinstance(estimate, (int, float)) or isinstance(estimate, bool) or not 0 < estimate < YEAR_10000:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(estimate))


def _sched(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(job.get("annotations")).get("sched"))


_END_ADVICE = {
    TIME_LIMIT: "Ask for a longer walltime; what was compiled is kept, and the next run goes on from there.",
    NODE_FAILED: "The node failed: 'flux resource status' and 'flux resource drain' show it; run this again, or allow "
                 "requeue.",
    BOOT_FAILED: "It did not start: run this again, or tell the site its job id and the exception.",
}

_EXCEPTION_ADVICE = (
    ("alloc", "No nodes have what it asks for: correct nodes, cores, gpus or constraint; 'flux resource list' shows "
              "what there is."),
    ("dependency", "What it depends on will not be: correct the dependency in directives."),
)

_REFUSAL_ADVICE = (
    ("invalid queue", "Correct queue; 'flux queue list' lists the queues."),
    ("no queue", "Name a queue; 'flux queue list' lists the queues."),
    ("is disabled", "No jobs are taken: wait until the site enables submission, or choose another queue."),
    ("bank", "Correct account, or ask the site for access to the bank."),
    ("duration", "Ask for a shorter walltime; 'flux queue list' shows the longest."),
    ("expiration", "Ask for a shorter walltime: it would last longer than this instance of Flux."),
    ("unsatisfiable", "No nodes have what it asks for; 'flux resource list' shows what there is."),
    ("requires", "Correct constraint; 'flux resource list -o properties' lists the properties of nodes."),
    ("size limit", "It asks for more or fewer nodes, cores or gpus than allowed; 'flux queue list' shows the limits."),
    ("limit", "A limit of the site is in the way; the words say which."),
)


def advice_on_waiting(job_id: str, job: Mapping[str, Any]) -> str:
    """Advise what to do about a job that waits; empty where waiting is all."""
    if job.get("urgency") == 0:
        return "It is held: 'flux job urgency %s default' lets it go on." % job_id
    if is_held(job):
        return "The site gives it the priority 0, so that it does not start: ask the site."
    return ""


def advice_on_end(job: Mapping[str, Any], end: End) -> str:
    """Advise what to do about a job that ended like this; empty where its log says more."""
    if end.exit_code == LOG_NOT_OPENED and end.end == FAILED:
        return "The node could not open the log: make sure that the step's directory is mounted and writable there."
    return _END_ADVICE.get(end.end, "") or advice_for(exception_of(job)[0], _EXCEPTION_ADVICE)


def advice_on_refusal(words: str) -> str:
    """Advise what to do about a refusal of flux batch."""
    return advice_for(words, _REFUSAL_ADVICE, "Correct launcher_options.")

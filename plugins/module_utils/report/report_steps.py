# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The steps of a release for a report: what each did, when, and how it ended. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.lenient_json import (
    kept,
    mapping,
    moment,
    number,
    text,
    whole,
)
from ..steps.step import describe_outcome


def steps(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The steps, in the order in which they began.

    Args:
        found: name -> records of the step: ``job``, ``exit``, ``stamp``, ``submission``, and of one that failed
            ``failure``.

    Returns:
        ``name``, ``state`` (done, cached, failed, begun), ``started``, ``finished``, ``seconds``, ``host``,
        ``launcher``, ``job_id``, ``attempt``, ``digest`` and ``outcome`` of each; null for what is not known. Of one
        that failed also ``errors``, the lines of its log that say why, the path of that ``log``, and a ``remedy``.
    """
    rows = [_step(name, records) for name, records in found.items()]
    return sorted(rows, key=lambda row: (row["started"] or "9999", row["finished"] or "9999", row["name"]))


def _step(name: str, records: Mapping[str, Any]) -> dict[str, Any]:
    job, end, stamp, submission = (mapping(records.get(key)) for key in ("job", "exit", "stamp", "submission"))
    # A step that was begun again after its success has another digest.
    done = bool(stamp) and (not job or stamp.get("digest") == job.get("digest"))
    ended = end if not job or end.get("nonce") == job.get("nonce") else {}
    last = stamp if done else ended
    outcome = ""
    if not done and ended and ended.get("reason") not in (None, "done"):
        try:
            outcome = describe_outcome(name, ended) + "."
        except (KeyError, TypeError, ValueError):
            outcome = "step %s failed." % name
    state = "done" if done else "failed" if outcome else "begun"
    if done and stamp.get("from_cache") is True:
        state = "cached"
    return {
        "name": name,
        "state": state,
        "started": _time(last.get("started") or job.get("started")),
        "finished": _time(last.get("finished")),
        "seconds": number(last.get("seconds")),
        "host": text(last.get("host") or job.get("host")),
        "launcher": text(job.get("launcher")),
        "job_id": text(job.get("job_id") or submission.get("job_id")),
        "attempt": whole(last.get("attempt") or job.get("attempt")),
        "digest": text(last.get("digest") or job.get("digest")),
        "outcome": outcome[:1].upper() + outcome[1:],
        **kept(ended, "code", "signal"),
        **(mapping(records.get("failure")) if state == "failed" else {}),
    }


def _time(value: object) -> str | None:
    return text(value) if moment(value) is not None else None

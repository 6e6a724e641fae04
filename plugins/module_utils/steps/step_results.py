# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What steps are judged by of those that they need: what these have made, and what they were made on. Pure.

A step that produces files has them for its result, whatever it was made of; one that installs what another step has
produced stands for that one's; any other one has its inputs. Below all that is installed lies a *foundation*, such as a
prefix that each of its runs empties: what is installed on it has to be installed again then. What is produced need not.
"""

from __future__ import annotations

from ..core.canonical import digest_of
from .step import SCHEMA, Request, step_digest


def counted(request: Request, result: str, ground: str) -> str:
    """What a step is judged by of one that it needs.

    Args:
        request: the step that needs it.
        result: what that one has made.
        ground: what that one was made on. What produces does without, as its result is of use elsewhere, too.
    """
    return result if request.produces or not ground else "%s on %s" % (result, ground)


def result_of(request: Request, results: dict[str, str]) -> str | None:
    """What others are judged by of this step as far as it is known before the step runs; else None.

    Args:
        request: the step.
        results: those of the steps it needs, by name.
    """
    if request.produces:
        return None
    if request.judged_by:
        return digest_of({"judged_by": sorted(results[name] for name in request.judged_by)})
    return step_digest(request, results)


def ground_of(grounds: list[str], nonce: str = "") -> str:
    """What a step was made on: each run of a foundation below it, which takes away what was there.

    Args:
        grounds: of the steps it needs.
        nonce: of this run, where the step is a foundation itself.
    """
    parts = sorted({part for ground in grounds for part in ground.split("+") if part} | ({nonce} if nonce else set()))
    return "+".join(parts)


def stamp_record(job: dict, end: dict, produced: str, taken_over: dict | None) -> dict:
    """The record of a success.

    Args:
        job: its record.
        end: the record of its end.
        produced: digest of what it has produced; empty where it produces nothing.
        taken_over: of whom, where it did not run.
    """
    kept = {key: job[key] for key in ("digest", "nonce", "needs", "attempt", "started", "host")}
    return dict(
        kept, schema=SCHEMA, finished=end["finished"], seconds=end["seconds"], from_cache=taken_over is not None,
        result=produced or job["result"], taken_over=taken_over,
        ground=None if produced else ground_of([job["ground"]], job["nonce"] if job["foundation"] else ""),
    )


def stamped(stamp: dict) -> tuple[str, str | None]:
    """Result and ground of a step that has succeeded; of one from before there were results, its digest.

    What was produced has no ground of its own, which is None.
    """
    return stamp.get("result", stamp["digest"]), stamp.get("ground", "")


def still_stands(stamp: dict | None, need: str) -> bool:
    """Whether a needed step has its stamp for what the step that needs it was judged by (see :func:`counted`)."""
    if stamp is None:
        return False
    result, ground = stamped(stamp)
    made, _on, asked = need.partition(" on ")
    return made == result and (not asked or ground is None or asked == ground)


def took_over(origin: dict) -> str:
    """That something was taken over, and from whom, as the rest of a sentence about the step.

    Args:
        origin: see :func:`.artefacts.origin_of`.
    """
    whom = "release %s" % origin["release"] if origin.get("release") else "an earlier run"
    return "taken over from %s: same inputs, built %s%s" % (
        whom, origin.get("finished") or "at an unknown time",
        " in %.0f s" % origin["seconds"] if isinstance(origin.get("seconds"), (int, float)) else "")

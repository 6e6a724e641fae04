# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judge a step by what the steps that it needs have made, and by what these were made on.

A step that produces files has them for its result, whatever it was made of; one that installs what another step has
produced stands for that one's; any other one has its inputs. Below all that is installed lies a *foundation*, such as a
prefix that each of its runs empties: what is installed on it has to be installed again then. What is produced need not.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from .files import StepFiles, step_files
from .outcome import Outcome
from .records import JobRecord, Stamp


def ground_of(grounds: list[str], nonce: str = "") -> str:
    """Return what a step was made on: each run of a foundation below it, and this one where it is one itself."""
    parts = sorted({part for ground in grounds for part in ground.split("+") if part} | ({nonce} if nonce else set()))
    return "+".join(parts)


def stamp_of(job: JobRecord, end: Outcome, produced: str, taken_over: Mapping[str, Any] | None) -> Stamp:
    """Make the record of a success, which was taken over of somebody where the step did not run."""
    own_ground = ground_of([job.ground or ""], job.nonce if job.foundation else "")
    return Stamp(
        job.digest, job.nonce, job.attempt, end.finished, taken_over is not None, None if produced else own_ground,
        job.host, job.needs, produced or job.result or "", seconds=end.seconds or 0.0, started=job.started,
        taken_over=taken_over,
    )


def still_stands(stamp: Stamp | None, need: str) -> bool:
    """Tell whether a needed step has its stamp for what another was judged by (see :func:`.need_value`)."""
    if stamp is None:
        return False
    made, _on, asked = need.partition(" on ")
    return made == stamp.result and (not asked or stamp.ground is None or asked == stamp.ground)


def foundation_of(files: StepFiles, needs: Mapping[str, str]) -> dict[str, str | None]:
    """Find the attempt by which each needed step has its stamp; None where that has another result than asked for."""
    top = os.path.dirname(files.directory)
    stamps = {name: Stamp.read(step_files(top, name)) for name in needs}
    return {
        name: stamp.nonce if stamp is not None and still_stands(stamp, needs[name]) else None
        for name, stamp in stamps.items()
    }


def took_over(origin: Mapping[str, Any]) -> str:
    """Say that something was taken over, and from whom, as the rest of a sentence about the step."""
    whom = "release %s" % origin["release"] if origin.get("release") else "an earlier run"
    return "taken over from %s: same inputs, built %s%s" % (
        whom, origin.get("finished") or "at an unknown time",
        " in %.0f s" % origin["seconds"] if isinstance(origin.get("seconds"), (int, float)) else "")

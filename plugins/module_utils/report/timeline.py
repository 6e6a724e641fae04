# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute the positions of a rollout's steps in time, for a page of any width. Pure."""

from __future__ import annotations

import collections
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.lenient_json import moment

PAUSE = 0.04
"""A time in which nothing ran is cut to this part of the time in which something did, where it is longer."""


class Stretch(NamedTuple):
    """Hold a time without a pause, in seconds since 1970, and where it begins on the page, in seconds."""

    begun: float
    ended: float
    shown: float


def make_timeline(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compute where each step lies, with long pauses cut out.

    Returns:
        ``rows`` (``step``, ``left`` and ``width`` in parts of a hundred; null where its time is not known), ``pauses``
        (``at``, ``seconds``), ``busy`` (seconds), ``host`` (of most), ``first`` and ``last``.
    """
    spans = [_step_span(step) for step in steps]
    stretches, pauses = _cut_pauses([span for span in spans if span])
    whole = (stretches[-1].shown + stretches[-1].ended - stretches[-1].begun if stretches else 0.0) or 1.0

    def part(seconds: float) -> float:
        return round(100 * seconds / whole, 2)

    rows: list[dict[str, Any]] = []
    for step, span in zip(steps, spans):
        around = next((one for one in stretches if span and one.begun <= span[0] <= one.ended), None)
        if span is None or around is None:
            rows.append({"step": step, "left": None, "width": None})
        else:
            left = around.shown + span[0] - around.begun
            rows.append({"step": step, "left": part(left), "width": part(span[1] - span[0])})
    hosts = collections.Counter(step["host"] for step in steps if step["host"])
    return {
        "rows": rows, "pauses": [{"at": part(shown), "seconds": seconds} for shown, seconds in pauses],
        "busy": sum(one.ended - one.begun for one in stretches),
        "host": max(sorted(hosts), key=hosts.__getitem__, default=""),
        "first": min((step["started"] for step in steps if step["started"]), default=None),
        "last": max((step["finished"] for step in steps if step["finished"]), default=None),
    }


def _step_span(step: Mapping[str, Any]) -> tuple[float, float] | None:
    begun, ended = moment(step["started"]), moment(step["finished"])
    if begun is None:
        return None
    return begun, max(begun, ended if ended is not None else begun + (step["seconds"] or 0))


def _cut_pauses(spans: Sequence[tuple[float, float]]) -> tuple[list[Stretch], list[tuple[float, float]]]:
    """Find the times in which something ran, and the pauses that were cut: position and length."""
    runs: list[list[float]] = []
    for begun, ended in sorted(spans):
        if runs and begun <= runs[-1][1]:
            runs[-1][1] = max(runs[-1][1], ended)
        else:
            runs.append([begun, ended])
    longest = max(PAUSE * sum(ended - begun for begun, ended in runs), 1.0)
    stretches: list[Stretch] = []
    pauses = []
    for begun, ended in runs:
        shown = 0.0
        if stretches:
            last = stretches[-1]
            end, pause = last.shown + last.ended - last.begun, begun - last.ended
            shown = end + min(pause, longest)
            if pause > longest:
                pauses.append((end + longest / 2, pause))
        stretches.append(Stretch(begun, ended, shown))
    return stretches, pauses

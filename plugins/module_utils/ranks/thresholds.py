# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether ranks talk as fast as they have to, and with right values. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from .units import (
    counted,
    parse_size,
    show_size,
)


def judge(
    measurements: Sequence[Mapping[str, Any]], latency: Sequence[Mapping[str, Any]], floors: Mapping[str, Any]
) -> list[str]:
    """What is wrong with what was measured, one sentence each: wrong values, what a floor asks for and is not there.

    Args:
        measurements: sets of rows.
        latency: rows.
        floors: ``bandwidth`` and ``latency``, lists; a floor that names ``ranks`` or ``nodes`` is of such runs only.
    """
    found = []
    for group in measurements:
        for line in group["rows"]:
            if not line["verified"]:
                found.append("%s of %s gave wrong values: %s." % (
                    _which(group), show_size(line["bytes"]), line.get("wrong") or "it is not said which"))
    for line in latency:
        if not line.get("verified", True):
            found.append("The messages of %s over %s carried wrong values: %s." % (
                show_size(line["bytes"]), line["backend"], line.get("wrong") or "it is not said which"))
    for floor in _meant(measurements, floors.get("bandwidth")):
        found += _below(measurements, floor)
    for floor in _meant(measurements, floors.get("latency")):
        found += _above(latency, floor)
    return found


def not_judged(measurements: Sequence[Mapping[str, Any]], floors: Mapping[str, Any]) -> list[str]:
    """The floors that are of other numbers of ranks or nodes, and say nothing about this run; one sentence each."""
    found = []
    for kind in ("bandwidth", "latency"):
        every = list(floors.get(kind) or [])
        for floor in every:
            if floor not in _meant(measurements, every):
                shape = " and ".join("%s %s" % (floor[key], key) for key in ("ranks", "nodes") if key in floor)
                found.append("The floor of %s over %s at %s is of %s, which this run was not." % (
                    floor.get("operation", "latency"), floor["backend"], show_size(parse_size(floor["bytes"])), shape))
    return found


def _meant(
    measurements: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]] | None
) -> list[Mapping[str, Any]]:
    """The floors for as many ranks and nodes as there were."""
    shape = measurements[0] if measurements else {}
    return [
        floor for floor in floors or []
        if all(key not in floor or int(floor[key]) == shape.get(key, int(floor[key])) for key in ("ranks", "nodes"))
    ]


def _below(measurements: Sequence[Mapping[str, Any]], floor: Mapping[str, Any]) -> Iterator[str]:
    size, least = parse_size(floor["bytes"]), float(floor["busbw"])
    groups = [
        group for group in measurements
        if (group["backend"], group["operation"]) == (floor["backend"], floor["operation"])
    ]
    lines = [(group, line) for group in groups for line in group["rows"] if line["bytes"] == size]
    for group, line in lines:
        if line["busbw"] < least:
            yield "%s reached %.4g GB/s of bus bandwidth at %s over %d ranks on %s; the floor is %.4g GB/s%s." % (
                _which(group), line["busbw"], show_size(size), group["ranks"], counted(group["nodes"], "node"), least,
                _source(floor))
    if not lines:
        reasons = ["; " + group["left_out"].rstrip(".") for group in groups if group["left_out"]]
        yield "%s over %s at %s was not measured, and there is a floor of %.4g GB/s for it%s%s." % (
            floor["operation"], floor["backend"], show_size(size), least, _source(floor), "".join(reasons[:1]))


def _above(latency: Sequence[Mapping[str, Any]], floor: Mapping[str, Any]) -> Iterator[str]:
    size, most = parse_size(floor["bytes"]), float(floor["microseconds"])
    lines = [line for line in latency if (line["backend"], line["bytes"]) == (floor["backend"], size)]
    for line in lines:
        if line["microseconds"]["median"] > most:
            yield "A message of %s over %s (%s) from %s to %s took %.4g microseconds; at most %.4g are allowed%s." % (
                show_size(size), line["backend"], line["provider"], line["hosts"][0], line["hosts"][1],
                line["microseconds"]["median"], most, _source(floor))
    if not lines:
        yield "The latency over %s at %s was not measured, and at most %.4g microseconds are allowed%s." % (
            floor["backend"], show_size(size), most, _source(floor))


def _which(group: Mapping[str, Any]) -> str:
    return "%s over %s (%s)" % (group["operation"], group["backend"], group["provider"])


def _source(floor: Mapping[str, Any]) -> str:
    return " (%s)" % floor["source"] if floor.get("source") else ""

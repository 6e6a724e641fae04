# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare a benchmark's results with floors and ceilings, and find wrong values. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from .units import counted, format_size, parse_size


def find_violations(
    measurements: Sequence[Mapping[str, Any]], latency: Sequence[Mapping[str, Any]], floors: Mapping[str, Any]
) -> list[str]:
    """Describe wrong values, and floors that are not met or not measured, one sentence each.

    Args:
        floors: ``bandwidth`` and ``latency``, lists; a floor that names ``ranks`` or ``nodes`` is of such runs only.
    """
    found = [
        "%s of %s gave wrong values: %s." % (_describe(group), format_size(line["bytes"]), _wrong_values(line))
        for group in measurements for line in group["rows"] if not line["verified"]]
    found += [
        "The messages of %s over %s carried wrong values: %s." % (
            format_size(line["bytes"]), line["backend"], _wrong_values(line))
        for line in latency if not line.get("verified", True)]
    for floor in _applicable(measurements, floors.get("bandwidth")):
        found += _bandwidth_violations(measurements, floor)
    for floor in _applicable(measurements, floors.get("latency")):
        found += _latency_violations(latency, floor)
    return found


def _wrong_values(line: Mapping[str, Any]) -> str:
    return line.get("wrong") or "it is not said which"


def find_unchecked(measurements: Sequence[Mapping[str, Any]], floors: Mapping[str, Any]) -> list[str]:
    """Describe the floors that are for other numbers of ranks or nodes, one sentence each."""
    found = []
    for kind in ("bandwidth", "latency"):
        every = list(floors.get(kind) or [])
        for floor in every:
            if floor not in _applicable(measurements, every):
                shape = " and ".join("%s %s" % (floor[key], key) for key in ("ranks", "nodes") if key in floor)
                size = format_size(parse_size(floor["bytes"]))
                found.append("The floor of %s over %s at %s is of %s, which this run was not." % (
                    floor.get("operation", "latency"), floor["backend"], size, shape))
    return found


def _applicable(
    measurements: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]] | None
) -> list[Mapping[str, Any]]:
    """Select the floors for as many ranks and nodes as there were."""
    shape = measurements[0] if measurements else {}
    return [
        floor for floor in floors or []
        if all(key not in floor or int(floor[key]) == shape.get(key, int(floor[key])) for key in ("ranks", "nodes"))
    ]


def _bandwidth_violations(measurements: Sequence[Mapping[str, Any]], floor: Mapping[str, Any]) -> Iterator[str]:
    size, least = parse_size(floor["bytes"]), float(floor["busbw"])
    groups = [
        group for group in measurements
        if (group["backend"], group["operation"]) == (floor["backend"], floor["operation"])
    ]
    lines = [(group, line) for group in groups for line in group["rows"] if line["bytes"] == size]
    for group, line in lines:
        if line["busbw"] < least:
            yield "%s reached %.4g GB/s of bus bandwidth at %s over %d ranks on %s; the floor is %.4g GB/s%s." % (
                _describe(group), line["busbw"], format_size(size), group["ranks"],
                counted(group["nodes"], "node"), least, _cite(floor))
    if not lines:
        reasons = ["; " + group["left_out"].rstrip(".") for group in groups if group["left_out"]]
        yield "%s over %s at %s was not measured, and there is a floor of %.4g GB/s for it%s%s." % (
            floor["operation"], floor["backend"], format_size(size), least, _cite(floor), "".join(reasons[:1]))


def _latency_violations(latency: Sequence[Mapping[str, Any]], floor: Mapping[str, Any]) -> Iterator[str]:
    size, most = parse_size(floor["bytes"]), float(floor["microseconds"])
    lines = [line for line in latency if (line["backend"], line["bytes"]) == (floor["backend"], size)]
    for line in lines:
        if line["microseconds"]["median"] > most:
            yield "A message of %s over %s (%s) from %s to %s took %.4g microseconds; at most %.4g are allowed%s." % (
                format_size(size), line["backend"], line["provider"], line["hosts"][0], line["hosts"][1],
                line["microseconds"]["median"], most, _cite(floor))
    if not lines:
        yield "The latency over %s at %s was not measured, and at most %.4g microseconds are allowed%s." % (
            floor["backend"], format_size(size), most, _cite(floor))


def _describe(group: Mapping[str, Any]) -> str:
    return "%s over %s (%s)" % (group["operation"], group["backend"], group["provider"])


def _cite(floor: Mapping[str, Any]) -> str:
    return " (%s)" % floor["source"] if floor.get("source") else ""

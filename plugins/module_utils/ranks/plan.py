# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and complete the plan of a measurement, as a site or an operator writes it. Pure."""

from __future__ import annotations

import math
import re
from typing import Any, Iterator, Mapping, Sequence

from .units import BACKENDS, FACTORS, ITEM_BYTES, format_size, parse_size

DEFAULTS: dict[str, Any] = {
    "operations": ["all_reduce"], "smallest": 32 << 10, "largest": 16 << 30, "warmups": 5, "trials": 20, "seconds": 0.0,
    "blocking": False, "stability": False, "also": [], "latency": {},
}
"""A plan that says nothing else: sizes and numbers of what sites use to compare networks."""

ITERATIONS = 1000
"""Round trips that a latency is taken from."""


def resolve_plan(measure: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a plan: sizes in bytes, also those with floors, and all defaults; ValueErrors are sentences about it."""
    trouble = problem(measure)
    if trouble:
        raise ValueError(trouble)
    made = {key: measure.get(key, default) for key, default in DEFAULTS.items()}
    floors = measure.get("floors") or {}
    for key in ("smallest", "largest"):
        made[key] = parse_size(made[key])
    also = [*made["also"], *(floor["bytes"] for floor in floors.get("bandwidth") or [])]
    made["also"] = sorted({parse_size(size) for size in also})
    made["operations"] = list(dict.fromkeys(made["operations"]))
    made.update({key: int(made[key]) for key in ("warmups", "trials")}, seconds=float(made["seconds"]))
    latency = made["latency"] or {}
    wanted = [*latency.get("bytes", []), *(floor["bytes"] for floor in floors.get("latency") or [])]
    made["latency"] = {}
    if wanted:
        trips = int(latency.get("iterations", ITERATIONS))
        made["latency"] = {"bytes": sorted({parse_size(size) for size in wanted}), "iterations": trips}
    return made


def problem(measure: object) -> str:
    """Describe the first thing in ``measure`` that cannot be used; empty where all can."""
    return next(_problems(measure), "")


def _problems(measure: object) -> Iterator[str]:
    if not isinstance(measure, Mapping):
        yield "measure is %r, not a dictionary." % (measure,)
        return
    known = {*DEFAULTS, "backends", "floors"}
    for key in sorted(set(measure).difference(known)):
        yield "measure has the key %s; known are %s." % (key, ", ".join(sorted(known)))
    for key, choices in (("operations", tuple(FACTORS)), ("backends", BACKENDS)):
        given = measure.get(key, [])
        if not isinstance(given, (list, tuple)):
            yield "measure.%s is %r, not a list." % (key, given)
            return
        for name in given:
            if name not in choices:
                yield "measure.%s has %s; known are %s." % (key, name, ", ".join(choices))
    for key in ("smallest", "largest"):
        yield from _size_problems("measure." + key, measure.get(key, DEFAULTS[key]))
    for key, least in (("warmups", 0), ("trials", 1)):
        yield from _count_problems("measure." + key, measure.get(key, DEFAULTS[key]), least)
    yield from _number_problems("measure.seconds", measure.get("seconds", DEFAULTS["seconds"]))
    for key in ("blocking", "stability"):
        if not isinstance(measure.get(key, False), bool):
            yield "measure.%s is %r, neither true nor false." % (key, measure[key])
    latency, floors = measure.get("latency") or {}, measure.get("floors") or {}
    parts = ("latency", latency, ("bytes", "iterations")), ("floors", floors, ("bandwidth", "latency"))
    for name, part, keys in parts:
        if not isinstance(part, Mapping) or set(part).difference(keys):
            yield "measure.%s is %r; it is a dictionary with %s." % (name, part, " and ".join(keys))
            return
    yield from _count_problems("measure.latency.iterations", latency.get("iterations", ITERATIONS), 1)
    for name, given in (("measure.latency.bytes", latency.get("bytes", [])), ("measure.also", measure.get("also", []))):
        if not isinstance(given, (list, tuple)):
            yield "%s is %r, not a list." % (name, given)
            return
        for size in given:
            yield from _size_problems(name, size)
    yield from _floor_problems(floors, measure.get("operations", DEFAULTS["operations"]))
    low, high = (parse_size(measure.get(key, DEFAULTS[key])) for key in ("smallest", "largest"))
    if low > high:
        yield "measure.smallest, %s, is more than measure.largest, %s." % (format_size(low), format_size(high))


def _floor_problems(floors: Mapping[str, Any], operations: Sequence[str]) -> Iterator[str]:
    for kind, figure in (("bandwidth", "busbw"), ("latency", "microseconds")):
        given = floors.get(kind) or []
        if not isinstance(given, (list, tuple)):
            yield "measure.floors.%s is %r, not a list." % (kind, given)
            return
        for number, floor in enumerate(given):
            where = "measure.floors.%s[%d]" % (kind, number)
            needed = ["backend", "bytes", figure] + ["operation"] * (kind == "bandwidth")
            lacking = [key for key in needed if not isinstance(floor, Mapping) or key not in floor]
            if lacking:
                yield "%s lacks %s." % (where, ", ".join(lacking))
                return
            for key in sorted(set(floor).difference([*needed, "source", "ranks", "nodes"])):
                yield "%s has the key %s, which means nothing there." % (where, key)
            if floor["backend"] not in BACKENDS:
                yield "%s.backend is %s; known are %s." % (where, floor["backend"], ", ".join(BACKENDS))
            if kind == "bandwidth" and floor["operation"] not in operations:
                yield "%s is of %s, which is not among measure.operations." % (where, floor["operation"])
            yield from _size_problems(where + ".bytes", floor["bytes"])
            yield from _number_problems("%s.%s" % (where, figure), floor[figure])
            for key in ("ranks", "nodes"):
                yield from _count_problems("%s.%s" % (where, key), floor.get(key, 1), 1)


def _size_problems(name: str, given: object) -> Iterator[str]:
    try:
        count = parse_size(given)
        if count % ITEM_BYTES:
            yield "%s is %r, which is not a multiple of %d bytes." % (name, given, ITEM_BYTES)
    except ValueError as reason:
        yield "%s is %r, which %s." % (name, given, reason)


def _number_problems(name: str, given: Any) -> Iterator[str]:
    try:
        good = not isinstance(given, bool) and 0 <= float(given) < math.inf
    except (TypeError, ValueError):
        good = False
    if not good:
        yield "%s is %r, not a number from 0 on." % (name, given)


def _count_problems(name: str, given: Any, least: int) -> Iterator[str]:
    if isinstance(given, bool) or not re.fullmatch(r"\d{1,9}", str(given)) or int(given) < least:
        yield "%s is %r, not a whole number from %d on." % (name, given, least)


def plan_sizes(asked: Mapping[str, Any]) -> list[int]:
    """List the sizes of a plan in bytes: doubling from the smallest, and those with floors."""
    found, size = set(asked["also"]), asked["smallest"]
    while size <= asked["largest"]:
        found.add(size)
        size *= 2
    return sorted(found)

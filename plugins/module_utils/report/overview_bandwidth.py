# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the bandwidths that the acceptances and pair sweeps of several releases have measured. Pure.

Bandwidths are bus bandwidths in GB/s of 10^9 bytes, sizes in bytes.
"""

from __future__ import annotations

import statistics
from typing import Any, Mapping, Sequence

OPERATION = "all_reduce"
"""What is compared, where a backend was asked for it."""

ALIKE = ("partition", "backend", "provider", "operation", "ranks", "nodes", "bytes")
"""In what two measurements agree that can be compared."""

MAX_PAIRS, MAX_SWEEPS = 20, 6
"""Of the table of pairs of nodes: rows, and sweeps beside each other."""


def series_over_time(acceptances: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Arrange what acceptances have measured at their largest size, as series of what can be compared.

    Args:
        acceptances: see :func:`.acceptance.summarise`, each with its ``release`` and ``partition``.

    Returns:
        of each series what it agrees in and ``points`` in the order of time: ``release``, ``started``, ``busbw``,
        ``spread``, ``noisy``, and ``change`` against the last one before that is not noisy, as a part of it.
    """
    series: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in sorted(acceptances, key=lambda run: str(run["started"])):
        for entry in _of_operation(run["bandwidth"]):
            key = {name: run["partition"] if name == "partition" else entry[name] for name in ALIKE}
            points = series.setdefault(tuple(key.values()), {**key, "points": []})["points"]
            before = next((point["busbw"] for point in reversed(points) if not point["noisy"]), None)
            steady = before and not entry["noisy"]
            points.append({
                "release": run["release"], "started": run["started"], "busbw": entry["busbw"], "noisy": entry["noisy"],
                "spread": entry["spread"], "change": entry["busbw"] / before - 1 if steady else None})
    return sorted(series.values(), key=lambda one: (one["partition"], -max(point["busbw"] for point in one["points"])))


def _of_operation(measured: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Select one measurement of each backend and provider."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for entry in measured:
        key = (entry["backend"], entry["provider"])
        if key not in found or (entry["operation"] == OPERATION and found[key]["operation"] != OPERATION):
            found[key] = entry
    return list(found.values())


def compare_pairs(sweeps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare the pairs of nodes that the last sweeps of releases have measured.

    Args:
        sweeps: see :func:`.nodes.describe_sweep`, each with its ``release`` and ``partition``.

    Returns:
        ``sweeps`` in the order of time, with the ``median``, the ``slowest`` pair and how many nodes and links are
        slow; and ``rows``, the pairs that are slowest against the median of the sweep that measured them last, with
        the ``speeds`` of each sweep, null where it has not measured the pair. ``measured`` counts all pairs.
    """
    ordered = sorted(sweeps, key=lambda sweep: str(sweep["started"]))[-MAX_SWEEPS:]
    speeds = [_speeds(sweep) for sweep in ordered]
    medians = [statistics.median(found.values()) if found else None for found in speeds]
    rows = []
    for pair in sorted(set().union(*speeds)):
        own = [found.get(pair) for found in speeds]
        last = max(place for place, speed in enumerate(own) if speed is not None)
        rows.append({"hosts": list(pair), "speeds": own, "share": (own[last] or 0.0) / (medians[last] or 1.0)})
    return {
        "sweeps": [_describe(*one) for one in zip(ordered, speeds, medians)], "measured": len(rows),
        "rows": sorted(rows, key=lambda row: (row["share"], row["hosts"]))[:MAX_PAIRS],
    }


def _speeds(sweep: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Take the speed of each pair of nodes, by their names in order."""
    hosts = sweep["hosts"]
    found = {}
    for row, values in enumerate(sweep["pairs"]):
        for column, speed in enumerate(values):
            if speed is not None:
                one, other = sorted((hosts[row + 1], hosts[column]))
                found[(one, other)] = speed
    return found


def _describe(
    sweep: Mapping[str, Any], speeds: Mapping[tuple[str, str], float], median: float | None
) -> dict[str, Any]:
    slowest = min(speeds.items(), key=lambda item: item[1], default=None)
    return {
        **{key: sweep[key] for key in ("release", "partition", "started", "backend", "operation", "bytes", "passed")},
        "nodes": len(sweep["hosts"]), "pairs": len(speeds), "median": median,
        "slowest": {"hosts": list(slowest[0]), "speed": slowest[1]} if slowest else None,
        "slow_nodes": [entry["host"] for entry in sweep["slow_nodes"]], "slow_links": len(sweep["slow_links"]),
    }

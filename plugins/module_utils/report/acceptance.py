# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the acceptances of a release and their measurements for a report. Pure.

Bandwidths are in GB/s of 10^9 bytes, latencies in microseconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ..core.lenient_json import (
    kept,
    mapping,
    mappings,
    number,
    sequence,
    text,
    texts,
    whole,
)
from ..ranks.placement import busy_hosts, parse_ranges
from ..ranks.units import parse_size

NOISY = 1.0
"""From this spread on (the longest trial less the shortest, as a part of the median) a figure says little."""


def is_noisy(spread: float | None) -> bool:
    """Tell whether the trials of a bandwidth differ by more than it; not where the spread is not known."""
    return (spread or 0.0) >= NOISY


def describe_acceptance(record: object) -> dict[str, Any] | None:
    """Describe an acceptance; None where there is no record."""
    if not isinstance(record, Mapping):
        return None
    asked = mapping(record.get("question"))
    floors = mapping(mapping(asked.get("measure")).get("floors"))
    busy = busy_hosts(mappings(record.get("ranks")))
    measurements = [_describe_measurement(entry, bool(busy)) for entry in mappings(record.get("measurements"))]
    latency = [_describe_latency(entry) for entry in mappings(record.get("latency"))]
    ranks = [_describe_rank(row) for row in mappings(record.get("ranks"))]
    return {
        **describe_run(record), **select_texts(record, "user", "through", "module"),
        "ordinary_user": record.get("ordinary_user") is True, "launcher": texts(record.get("launcher")),
        "hosts": list(dict.fromkeys(row["host"] for row in ranks)), "ranks": ranks,
        "checks": [_describe_check(entry) for entry in mappings(record.get("checks"))],
        "failures": [select_texts(entry, "check", "message", "remedy") for entry in mappings(record.get("failures"))],
        "remarks": texts(record.get("remarks")), "not_checked": texts(record.get("not_checked")),
        "transports": _group_transports(mappings(record.get("transports"))),
        "import_seconds": _describe_imports(mapping(record.get("import_seconds"))),
        "import_ceiling": number(asked.get("import_ceiling")) or None, "measurements": measurements, "latency": latency,
        "busy": [one._asdict() for one in busy],
        "floors": [
            *(_describe_bandwidth_floor(floor, measurements) for floor in mappings(floors.get("bandwidth"))),
            *(_describe_latency_floor(floor, latency) for floor in mappings(floors.get("latency"))),
        ],
    }


def select_texts(record: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """Select texts of a record, empty where it has none."""
    return {key: text(record.get(key)) for key in keys}


def describe_run(record: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what the records of an acceptance, a sweep and a look at nodes have in common."""
    return {"passed": record.get("passed") is True, **select_texts(record, "subject", "started"),
            "seconds": number(record.get("seconds"))}


def summarise(record: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise one acceptance of a release's history, with the speed at the largest size of each measurement."""
    ranks = mappings(record.get("ranks"))
    busy = bool(busy_hosts(ranks))
    measured = [_describe_measurement(entry, busy) for entry in mappings(record.get("measurements"))]
    return {
        **select_texts(record, "started", "user"), "passed": record.get("passed") is True,
        "seconds": number(record.get("seconds")), "ranks": len(ranks),
        "hosts": len({text(row.get("host")) for row in ranks}),
        "first_failure": text(next(iter(mappings(record.get("failures"))), {}).get("message")),
        "bandwidth": [
            {**kept(entry, "backend", "provider", "operation"), "ranks": entry["ranks"], "nodes": entry["nodes"],
             **{key: entry["rows"][-1][key] for key in ("bytes", "busbw", "spread", "noisy")}}
            for entry in measured if entry["rows"]],
    }


def _describe_check(entry: Mapping[str, Any]) -> dict[str, Any]:
    lacks = {str(operation): text(why) for operation, why in mapping(entry.get("lacks")).items()}
    return {**select_texts(entry, "name", "status", "note"), "seconds": number(entry.get("seconds")), "lacks": lacks}


def _describe_rank(row: Mapping[str, Any]) -> dict[str, Any]:
    device = mapping(row.get("device_facts"))
    own: set[int] = _parsed(parse_ranges, text(device.get("numa"))) or set()
    near = text(device.get("gpu_numa"))
    return {
        "rank": whole(row.get("rank")), "local_rank": whole(row.get("local_rank")),
        **select_texts(row, "host", "device"), **select_texts(device, "kind", "numa"),
        "cores": text(device.get("cpus")), "gpu_numa": near,
        "far": near.isdigit() and bool(own) and int(near) not in own}


def _parsed(parse: Callable[[Any], Any], value: object) -> Any:
    """Parse a value; None where it is no such value."""
    try:
        return parse(value)
    except ValueError:
        return None


def _describe_measurement(entry: Mapping[str, Any], busy: bool) -> dict[str, Any]:
    rows = [_describe_row(row, busy) for row in mappings(entry.get("rows"))]
    return {
        **select_texts(entry, "backend", "provider", "operation", "device", "dtype", "left_out"),
        "ranks": whole(entry.get("ranks")), "nodes": whole(entry.get("nodes")),
        "rows": sorted((row for row in rows if row), key=lambda row: row["bytes"]),
    }


def _describe_row(row: Mapping[str, Any], busy: bool) -> dict[str, Any]:
    """Describe one size, of ``busy`` hosts or others; empty where it says neither how large nor how fast."""
    size, bus = whole(row.get("bytes")), number(row.get("busbw"))
    if not size or size < 0 or bus is None:
        return {}
    times = mapping(row.get("microseconds"))
    return {
        "bytes": size, "busbw": bus, "algbw": number(row.get("algbw")), "trials": whole(row.get("trials")),
        "spread": number(row.get("spread")), "noisy": busy or is_noisy(number(row.get("spread"))),
        "verified": row.get("verified") is True, "wrong": text(row.get("wrong")),
        "microseconds": {key: number(times.get(key)) for key in ("min", "median", "mean", "max")},
    }


def _describe_latency(entry: Mapping[str, Any]) -> dict[str, Any]:
    times = mapping(entry.get("microseconds"))
    return {
        **select_texts(entry, "backend", "provider"), "bytes": whole(entry.get("bytes")),
        "hosts": texts(entry.get("hosts")), "ranks": [whole(rank) for rank in sequence(entry.get("ranks"))],
        "iterations": whole(entry.get("iterations")), "bandwidth": number(entry.get("bandwidth")),
        "microseconds": {key: number(times.get(key)) for key in ("min", "median", "p99", "max")},
    }


def _describe_bandwidth_floor(floor: Mapping[str, Any], measurements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    backend, operation = text(floor.get("backend")), text(floor.get("operation"))
    size = _parsed(parse_size, floor.get("bytes"))
    found = (
        row["busbw"] for entry in measurements
        if (entry["backend"], entry["operation"]) == (backend, operation) and _is_applicable(floor, entry)
        for row in entry["rows"] if row["bytes"] == size)
    return _describe_floor("bandwidth", floor, operation, size, number(floor.get("busbw")), min(found, default=None))


def _describe_latency_floor(floor: Mapping[str, Any], latency: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    backend, size = text(floor.get("backend")), _parsed(parse_size, floor.get("bytes"))
    found = (
        entry["microseconds"]["median"] for entry in latency
        if (entry["backend"], entry["bytes"]) == (backend, size) and entry["microseconds"]["median"] is not None)
    limit = number(floor.get("microseconds"))
    return _describe_floor("latency", floor, "ping-pong", size, limit, max(found, default=None))


def _describe_floor(
    kind: str, floor: Mapping[str, Any], operation: str, size: int | None, limit: float | None, measured: float | None
) -> dict[str, Any]:
    held = None
    if measured is not None and limit is not None:
        held = measured >= limit if kind == "bandwidth" else measured <= limit
    return {
        "kind": kind, "backend": text(floor.get("backend")), "operation": operation, "bytes": size,
        "bytes_asked": text(floor.get("bytes")), "limit": limit, "measured": measured, "held": held,
        "ranks": whole(floor.get("ranks")), "nodes": whole(floor.get("nodes")), "source": text(floor.get("source")),
    }


def _is_applicable(floor: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Tell whether a floor is for runs of this shape."""
    return all(floor.get(key) in (None, entry[key]) for key in ("ranks", "nodes"))


def _group_transports(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group ranks by what NCCL says it uses."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        said = select_texts(row, "network", "plugin", "provider", "version")
        entry = found.setdefault(tuple(said.values()), {**said, "ranks": [], "channels": {}})
        entry["ranks"].append(whole(row.get("rank")))
        for name, count in mapping(row.get("channels")).items():
            entry["channels"][text(name)] = entry["channels"].get(text(name), 0) + (whole(count) or 0)
    return list(found.values())


def _describe_imports(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name, entry in sorted(record.items()):
        last = mapping(mapping(entry).get("slowest"))
        slowest = {"rank": whole(last.get("rank")), "host": text(last.get("host")),
                   "seconds": number(last.get("seconds"))}
        found.append({"module": name, "median": number(mapping(entry).get("median")), "slowest": slowest})
    return found

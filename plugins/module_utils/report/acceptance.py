# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the acceptances of a release have shown and measured, for a report. Pure.

Bandwidths are in GB/s of 10^9 bytes, latencies in microseconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..core.lenient_json import (
    mapping,
    mappings,
    number,
    sequence,
    text,
    texts,
    whole,
)
from ..ranks.placement import expand
from ..ranks.units import parse_size


def acceptance(record: object) -> dict[str, Any] | None:
    """An acceptance; None where there is no record.

    Args:
        record: ``acceptance.json``, of any schema.
    """
    if not isinstance(record, Mapping):
        return None
    asked = mapping(record.get("question"))
    floors = mapping(mapping(asked.get("measure")).get("floors"))
    measurements = [_measurement(entry) for entry in mappings(record.get("measurements"))]
    latency = [_latency(entry) for entry in mappings(record.get("latency"))]
    ranks = [_rank(row) for row in mappings(record.get("ranks"))]
    return {
        "passed": record.get("passed") is True,
        "subject": text(record.get("subject")),
        "started": text(record.get("started")),
        "seconds": number(record.get("seconds")),
        "user": text(record.get("user")),
        "ordinary_user": record.get("ordinary_user") is True,
        "through": text(record.get("through")),
        "module": text(record.get("module")),
        "launcher": texts(record.get("launcher")),
        "hosts": list(dict.fromkeys(row["host"] for row in ranks)),
        "ranks": ranks,
        "checks": [_check(entry) for entry in mappings(record.get("checks"))],
        "failures": [
            {key: text(entry.get(key)) for key in ("check", "message", "remedy")}
            for entry in mappings(record.get("failures"))
        ],
        "remarks": texts(record.get("remarks")),
        "not_checked": texts(record.get("not_checked")),
        "transports": _transports(mappings(record.get("transports"))),
        "import_seconds": _imports(mapping(record.get("import_seconds"))),
        "import_ceiling": number(asked.get("import_ceiling")) or None,
        "measurements": measurements,
        "latency": latency,
        "floors": [
            *(_bandwidth_floor(floor, measurements) for floor in mappings(floors.get("bandwidth"))),
            *(_latency_floor(floor, latency) for floor in mappings(floors.get("latency"))),
        ],
    }


def in_short(record: Mapping[str, Any]) -> dict[str, Any]:
    """One acceptance of a release's history."""
    ranks = mappings(record.get("ranks"))
    return {
        "started": text(record.get("started")),
        "passed": record.get("passed") is True,
        "seconds": number(record.get("seconds")),
        "user": text(record.get("user")),
        "ranks": len(ranks),
        "hosts": len({text(row.get("host")) for row in ranks}),
        "first_failure": text(next(iter(mappings(record.get("failures"))), {}).get("message")),
    }


def _check(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": text(entry.get("name")), "status": text(entry.get("status")), "seconds": number(entry.get("seconds")),
        "note": text(entry.get("note")),
        "lacks": {str(operation): text(why) for operation, why in mapping(entry.get("lacks")).items()},
    }


def _rank(row: Mapping[str, Any]) -> dict[str, Any]:
    device = mapping(row.get("device_facts"))
    own, near = text(device.get("numa")), text(device.get("gpu_numa"))
    return {
        "rank": whole(row.get("rank")),
        "local_rank": whole(row.get("local_rank")),
        "host": text(row.get("host")),
        "device": text(row.get("device")),
        "kind": text(device.get("kind")),
        "cores": text(device.get("cpus")),
        "numa": own,
        "gpu_numa": near,
        "far": near.isdigit() and bool(_members(own)) and int(near) not in _members(own),
    }


def _members(ranges: str) -> set[int]:
    """The numbers of ``0-3,8``; none where it is no such text."""
    try:
        return set(expand(ranges))
    except ValueError:
        return set()


def _measurement(entry: Mapping[str, Any]) -> dict[str, Any]:
    rows = [_row(row) for row in mappings(entry.get("rows"))]
    return {
        **{key: text(entry.get(key)) for key in ("backend", "provider", "operation", "device", "dtype", "left_out")},
        "ranks": whole(entry.get("ranks")), "nodes": whole(entry.get("nodes")),
        "rows": sorted((row for row in rows if row), key=lambda row: row["bytes"]),
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """One size; empty where it says neither how large nor how fast."""
    size, bus = whole(row.get("bytes")), number(row.get("busbw"))
    if not size or size < 0 or bus is None:
        return {}
    times = mapping(row.get("microseconds"))
    return {
        "bytes": size, "busbw": bus, "algbw": number(row.get("algbw")), "trials": whole(row.get("trials")),
        "spread": number(row.get("spread")), "verified": row.get("verified") is True, "wrong": text(row.get("wrong")),
        "microseconds": {key: number(times.get(key)) for key in ("min", "median", "mean", "max")},
    }


def _latency(entry: Mapping[str, Any]) -> dict[str, Any]:
    times = mapping(entry.get("microseconds"))
    return {
        "backend": text(entry.get("backend")), "provider": text(entry.get("provider")),
        "bytes": whole(entry.get("bytes")), "hosts": texts(entry.get("hosts")),
        "ranks": [whole(rank) for rank in sequence(entry.get("ranks"))],
        "iterations": whole(entry.get("iterations")), "bandwidth": number(entry.get("bandwidth")),
        "microseconds": {key: number(times.get(key)) for key in ("min", "median", "p99", "max")},
    }


def _bandwidth_floor(floor: Mapping[str, Any], measurements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    backend, operation, size = text(floor.get("backend")), text(floor.get("operation")), _size(floor.get("bytes"))
    found = (
        row["busbw"] for entry in measurements
        if (entry["backend"], entry["operation"]) == (backend, operation) and _meant(floor, entry)
        for row in entry["rows"] if row["bytes"] == size
    )
    return _floor("bandwidth", floor, operation, size, number(floor.get("busbw")), min(found, default=None))


def _latency_floor(floor: Mapping[str, Any], latency: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    backend, size = text(floor.get("backend")), _size(floor.get("bytes"))
    found = (
        entry["microseconds"]["median"] for entry in latency
        if (entry["backend"], entry["bytes"]) == (backend, size) and entry["microseconds"]["median"] is not None
    )
    return _floor("latency", floor, "ping-pong", size, number(floor.get("microseconds")), max(found, default=None))


def _floor(
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


def _size(value: object) -> int | None:
    try:
        return parse_size(value)
    except ValueError:
        return None


def _meant(floor: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether a floor is of runs of this shape."""
    return all(floor.get(key) in (None, entry[key]) for key in ("ranks", "nodes"))


def _transports(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What NCCL says it uses, with the ranks that say the same."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        said = tuple(text(row.get(key)) for key in ("network", "plugin", "provider", "version"))
        entry = found.setdefault(said, {
            "network": said[0], "plugin": said[1], "provider": said[2], "version": said[3], "ranks": [], "channels": {},
        })
        entry["ranks"].append(whole(row.get("rank")))
        for name, count in mapping(row.get("channels")).items():
            entry["channels"][text(name)] = entry["channels"].get(text(name), 0) + (whole(count) or 0)
    return list(found.values())


def _imports(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name, entry in sorted(record.items()):
        slowest = mapping(mapping(entry).get("slowest"))
        found.append({
            "module": name, "median": number(mapping(entry).get("median")),
            "slowest": {"rank": whole(slowest.get("rank")), "host": text(slowest.get("host")),
                        "seconds": number(slowest.get("seconds"))},
        })
    return found

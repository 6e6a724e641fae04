# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The facts of a report as the tables of its page have them: grouped, sorted, and not too long. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping

SLOWEST = 20
"""So many of the slowest pairs and nodes are in a table."""

KEY_LIBRARIES = re.compile(
    r"lib(mpi|mpi_\w+|mpicxx|nccl|rccl|nccl-net|torch|torch_cpu|torch_cuda|torch_hip|c10|c10_cuda|cuda|cudart|cudnn"
    r"|cublas|amdhip64|fabric|gomp|iomp5|stdc\+\+|mkl_rt|openblas|hdf5)[.\d-]*(\.so.*)?$"
)
"""Libraries that stacks are broken by when they come from the wrong place."""


def libraries(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The providers, those that matter most apart, each with the word for where it lies."""
    if found is None:
        return None
    rows = [dict(provider, place=_place(provider["path"])) for provider in found["providers"]]
    reasons: dict[str, list[str]] = {}
    for entry in found["allowed"]:
        reasons.setdefault(entry["reason"], []).append(entry["name"])
    return {
        "objects": found["objects"],
        "key": [row for row in rows if KEY_LIBRARIES.match(row["name"])],
        "others": [row for row in rows if not KEY_LIBRARIES.match(row["name"])],
        "allowed": reasons,
    }


def _place(path: str) -> str:
    if not path.startswith("/"):
        return "this release"
    return "the system" if re.match(r"/(usr/)?lib(32|64)?/", path) else "the site"


def bandwidth(accepted: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What was measured, by backend: measurements, floors, and a table of sizes and operations."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in (accepted or {}).get("measurements", []):
        groups.setdefault((entry["backend"], entry["provider"]), []).append(entry)
    floors = [floor for floor in (accepted or {}).get("floors", []) if floor["kind"] == "bandwidth"]
    found = []
    for (backend, provider), entries in groups.items():
        speeds = {(row["bytes"], position): row for position, entry in enumerate(entries) for row in entry["rows"]}
        found.append({
            "backend": backend,
            "name": "bandwidth of %s by %s" % (backend, provider),
            "measurements": entries,
            "floors": [floor for floor in floors if floor["backend"] == backend],
            "sizes": [
                {"bytes": size, "rows": [speeds.get((size, position)) for position in range(len(entries))]}
                for size in sorted({size for size, _position in speeds})
            ],
            "verified": all(row["verified"] for entry in entries for row in entry["rows"]),
        })
    return found


def slowest(sweep: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of a sweep what goes into tables: the slowest pairs, the nodes by their medians, and how far it came."""
    if sweep is None:
        return None
    hosts = sweep["hosts"]
    pairs = sorted(
        (speed, hosts[row + 1], hosts[column])
        for row, speeds in enumerate(sweep["pairs"]) for column, speed in enumerate(speeds) if speed is not None
    )
    nodes = sorted((node for node in sweep["nodes"] if node["pairs"]), key=lambda node: (node["median"], node["host"]))
    return {
        "measured": len(pairs), "all": len(hosts) * (len(hosts) - 1) // 2,
        "pairs": [{"hosts": sorted([one, other]), "speed": speed} for speed, one, other in pairs[:SLOWEST]],
        "nodes": nodes[:SLOWEST],
        "median": pairs[len(pairs) // 2][0] if pairs else None,
    }

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Derive what the acceptance of a release runs from its parts, its site and its release file. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..ranks import plan as bandwidth_plan
from . import components

WHERE_POSSIBLE = ("torch_nccl", "torch_mpi", "cuda_graph_replay")
"""Checks of an acceptance that need not be possible; all but one of them are of GPUs."""

MEASURED: dict[str, Any] = {
    "operations": ["all_reduce"], "smallest": "32 KiB", "largest": "1 GiB", "warmups": 5, "trials": 20, "seconds": 20,
    "latency": {"bytes": [8], "iterations": 1000}}
"""What an acceptance measures of each backend, unless the site or the release file says otherwise."""


def plan_acceptance(definition: Mapping[str, Any], site: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Derive what is run: what the parts of a release allow, and what the site and the release file say instead.

    An empty ``definition`` is a release of which nothing is known, which is taken to have all. The result has
    ``imports``, ``checks``, ``where_possible``, ``measure``, ``transport`` and ``import_ceiling`` (seconds), as the
    role acceptance takes them; ``problem`` is what is wrong with ``measure``, as a sentence, or empty.
    """
    rows = components.present(definition)
    backend = (definition.get("pytorch") or {}).get("mpi_backend") or {}
    # By their names: the order of components is another one, and this one is in the records of acceptances.
    checks = ["imports", "devices", *sorted(name for row in rows for name in row.checks)]
    if backend.get("name") == "mpi":
        checks.append("torch_mpi")
    if definition.get("cuda"):
        # Where it may be left out, a driver that shows no GPU would pass, and no floor or transport would be judged.
        checks.append("torch_nccl")
    found = {
        "imports": ["torch", *(name for row in rows for name in row.imports)], "checks": [*checks, "torch_gloo"],
        "where_possible": [name for name in WHERE_POSSIBLE if name == "torch_mpi" or _may_use_gpus(definition)]}
    own = definition.get("acceptance") or {}
    found.update({key: list(own[key]) for key in found if own.get(key) is not None})
    checked = set(found["checks"])
    asked = [site or {}, own]
    measure = _measured(asked)
    return {
        **found, "where_possible": [name for name in found["where_possible"] if name not in checked],
        "measure": measure, "problem": bandwidth_plan.problem(measure),
        "transport": _overlay([part.get("transport") for part in asked]),
        "import_ceiling": _overlay(asked).get("import_ceiling", 0),
    }


def _may_use_gpus(definition: Mapping[str, Any]) -> bool:
    """Tell whether a release may use GPUs: what it is compiled for, or unknown, as in an image."""
    return not definition or components.in_image(definition) or "cuda" in definition


def _measured(asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is measured; empty where neither collectives nor latencies are."""
    parts = [MEASURED, *(part.get("measure") or {} for part in asked)]
    found = _overlay(parts)
    if not found.get("operations") and not found.get("latency"):
        return {}
    floors = _overlay([part.get("floors") for part in parts])
    return {**found, **({"floors": floors} if floors else {})}


def _overlay(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge mappings key by key; the later ones win, where they say anything."""
    return {key: value for part in parts for key, value in (part or {}).items() if value is not None}

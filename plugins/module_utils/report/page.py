# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render the page of a report from its facts. Runs on the control node."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pathlib
import re
from typing import Any, Mapping

from ..core.json_document import rendered
from . import formatting, partitions, plots, svg
from .pages import MARK
from .tiles import make_tiles
from .timeline import make_timeline

PAGE = "page.html.j2"

MAX_RANKS = 512
"""Largest number of ranks on the page; all of them are in the document with the facts."""

MAX_SLOWEST = 20
"""Largest number of slow pairs and nodes in a table."""

KEY_LIBRARIES = re.compile(
    r"lib(mpi|mpi_\w+|mpicxx|nccl|rccl|nccl-net|torch|torch_cpu|torch_cuda|torch_hip|c10|c10_cuda|cuda|cudart|cudnn"
    r"|cublas|amdhip64|fabric|gomp|iomp5|stdc\+\+|mkl_rt|openblas|hdf5)[.\d-]*(\.so.*)?$"
)
"""Libraries that stacks are broken by when they come from the wrong place."""


def digest_of(facts: Mapping[str, Any], templates: str) -> str:
    """Return the sha256 of all that a page is made from: facts, templates, this code and the libraries for plots."""
    made = hashlib.sha256(rendered(to_plain(facts)))
    for place in (templates, os.path.dirname(__file__)):
        for name in sorted(os.listdir(place)):
            if name.endswith((".j2", ".py")):
                made.update(pathlib.Path(place, name).read_bytes())
    # To look for it is enough: to load it takes longer than all else here.
    made.update(repr(importlib.util.find_spec("matplotlib") is not None).encode())
    return made.hexdigest()


def render_page(facts: Mapping[str, Any], templates: str, digest: str = "") -> str:
    """Render the page as one HTML document that needs nothing else; its last line says what it was made from."""
    import jinja2

    facts = to_plain(facts)
    return make_environment(templates).get_template(PAGE).render(
        facts=facts, places=_places(facts, jinja2), can_plot=svg.can_plot(), timeline=make_timeline(facts["steps"]),
        libraries=library_table(facts["libraries"]), ranks_shown=MAX_RANKS, tiles=make_tiles(facts),
    ) + MARK % (digest or digest_of(facts, templates))


def make_environment(templates: str) -> Any:
    """Make the environment of jinja2 that pages are rendered in, with the filters that put values into words."""
    import jinja2

    # Text of records is escaped; only the drawings are inserted as markup.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True)
    names = ("size", "duration", "speed", "moment", "numbers", "day", "short", "sentence", "age")
    environment.filters.update({name: getattr(formatting, name) for name in names}, counted=formatting.count)
    return environment


def _places(facts: Mapping[str, Any], jinja2: Any) -> list[dict[str, Any]]:
    """Prepare what is shown of the site as a whole or, where it names any, of each partition that is not left out."""
    found: list[tuple[str, Mapping[str, Any]]] = [
        (one["name"], partitions.at(facts, one)) for one in facts.get("partitions", []) if not one["left_out"]
    ]
    return [
        {"name": name, "id": "-" + name if name else "", "title": " on partition %s" % name if name else "",
         "records": partitions.place_of(name), "facts": here, "plots": _plots(here, jinja2, name),
         "bandwidth": bandwidth_tables(here["acceptance"]), "sweep": sweep_table(here["sweep"])}
        for name, here in found or [("", facts)]]


def to_plain(value: Any) -> Any:
    """Copy a value in plain types, without what Ansible keeps beside values."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(entry) for entry in value]
    if value is None or isinstance(value, bool):
        return value
    return next((kind(value) for kind in (str, int, float) if isinstance(value, kind)), None)


def _plots(facts: Mapping[str, Any], jinja2: Any, partition: str) -> dict[str, Any]:
    """Draw the plots by their names, as markup; none without matplotlib."""
    own = "-" + partition if partition else ""
    if not svg.can_plot():
        return {}
    found = {
        group["name"]: plots.plot_bandwidth(group["measurements"], group["floors"], "bandwidth%s-%d" % (own, position))
        for position, group in enumerate(bandwidth_tables(facts["acceptance"]))
    }
    if facts["sweep"]:
        found["sweep"] = plots.plot_heat_map(facts["sweep"], "sweep" + own)
    return {name: jinja2.utils.markupsafe.Markup(svg.to_element(plot)) for name, plot in found.items() if plot}


# --- tables ----------------------------------------------------------------------------------------------------------


def library_table(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Arrange the providers of libraries, the important ones apart, each with where it lies."""
    if found is None:
        return None
    rows = [dict(provider, place=_place(provider["path"])) for provider in found["providers"]]
    reasons: dict[str, list[str]] = {}
    for entry in found["allowed"]:
        reasons.setdefault(entry["reason"], []).append(entry["name"])
    return {
        "objects": found["objects"], "key": [row for row in rows if KEY_LIBRARIES.match(row["name"])],
        "others": [row for row in rows if not KEY_LIBRARIES.match(row["name"])], "allowed": reasons}


def _place(path: str) -> str:
    if not path.startswith("/"):
        return "this release"
    return "the system" if re.match(r"/(usr/)?lib(32|64)?/", path) else "the site"


def bandwidth_tables(accepted: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Group measurements by backend: measurements, floors, and a table of sizes and operations."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in (accepted or {}).get("measurements", []):
        groups.setdefault((entry["backend"], entry["provider"]), []).append(entry)
    floors = [floor for floor in (accepted or {}).get("floors", []) if floor["kind"] == "bandwidth"]
    found = []
    for (backend, provider), entries in groups.items():
        speeds = {(row["bytes"], position): row for position, entry in enumerate(entries) for row in entry["rows"]}
        found.append({
            "backend": backend, "name": "bandwidth of %s by %s" % (backend, provider), "measurements": entries,
            "floors": [floor for floor in floors if floor["backend"] == backend],
            "sizes": [
                {"bytes": size, "rows": [speeds.get((size, position)) for position in range(len(entries))]}
                for size in sorted({size for size, _position in speeds})
            ],
            "verified": all(row["verified"] for entry in entries for row in entry["rows"]),
        })
    return found


def sweep_table(sweep: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Select a sweep's slowest pairs and nodes, and how far it came."""
    if sweep is None:
        return None
    hosts = sweep["hosts"]
    pairs = sorted(
        (speed, hosts[row + 1], hosts[column])
        for row, speeds in enumerate(sweep["pairs"]) for column, speed in enumerate(speeds) if speed is not None)
    nodes = sorted((node for node in sweep["nodes"] if node["pairs"]), key=lambda node: (node["median"], node["host"]))
    return {
        "measured": len(pairs), "all": len(hosts) * (len(hosts) - 1) // 2,
        "pairs": [{"hosts": sorted([one, other]), "speed": speed} for speed, one, other in pairs[:MAX_SLOWEST]],
        "nodes": nodes[:MAX_SLOWEST], "median": pairs[len(pairs) // 2][0] if pairs else None,
    }

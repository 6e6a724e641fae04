# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the tiles at the top of a report's page: a name, a state, a note. Pure."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from . import partitions
from .formatting import count, size, speed
from .verdict import BAD, GOOD, UNKNOWN, WARNED

Facts = Mapping[str, Any]


class Tile(NamedTuple):
    """Hold a tile; ``section`` is the id of a part of the page."""

    name: str
    value: str
    tone: str
    section: str
    note: str


def make_tiles(facts: Facts) -> list[Tile]:
    """Make the tiles of a page; for bandwidth, health and sweep only where there is a record."""
    found = [_release_tile(facts["release"]), _users_tile(facts["release"])]
    for one in facts.get("partitions", []):
        found += [
            tile._replace(name="%s, %s" % (tile.name, one["name"]), section="%s-%s" % (tile.section, one["name"]))
            for tile in _tiles_at(partitions.at(facts, one)) if not one["left_out"]]
    found += [] if facts.get("partitions") else _tiles_at(facts)
    gaps = len(facts["not_checked"]) + len(facts["missing"])
    return [*found, Tile("Not checked", count(gaps, "remark") if gaps else "Nothing", UNKNOWN, "unchecked",
                         "what nobody has looked at")]


def _tiles_at(facts: Facts) -> list[Tile]:
    """Make the tiles of what happened on the nodes, of the site as a whole or of one partition."""
    return [tile for tile in (
        _acceptance_tile(facts["acceptance"]), _bandwidth_tile(facts["acceptance"]), _health_tile(facts["health"]),
        _sweep_tile(facts["sweep"])) if tile]


def _release_tile(release: Facts) -> Tile:
    if not release["frozen_at"]:
        return Tile("Release", "Not frozen", UNKNOWN, "versions", "it may still change")
    manifest = release["manifest"]
    note = "%s, %s" % (count(manifest["files"], "file"), size(manifest["bytes"])) if manifest else "without a manifest"
    return Tile("Release", "Frozen", GOOD, "versions", note)


def _users_tile(release: Facts) -> Tile:
    if release["visible"]:
        if release["said"] and not release["default"]:
            return Tile("Users", "Deprecated", WARNED, "module", release["module"])
        return Tile("Users", "Default" if release["default"] else "Visible", GOOD, "module", release["module"])
    word = "Retired" if release["gone"] else "Hidden"
    return Tile("Users", word, UNKNOWN, "module", release["module"] or "there is no module yet")


def _acceptance_tile(accepted: Facts | None) -> Tile:
    if accepted is None:
        return Tile("Acceptance", "Not run", UNKNOWN, "acceptance", "nothing is known of ranks")
    note = "%s on %s" % (count(len(accepted["ranks"]), "rank"), count(len(accepted["hosts"]), "host"))
    word, tone = ("Passed", GOOD) if accepted["passed"] else ("Failed", BAD)
    return Tile("Acceptance", word, tone, "acceptance", note)


def _bandwidth_tile(accepted: Facts | None) -> Tile | None:
    found = [
        (row["busbw"], row["bytes"], entry["backend"], row["noisy"])
        for entry in (accepted or {}).get("measurements", []) if entry["operation"] == "all_reduce"
        for row in entry["rows"]
    ]
    if accepted is None or not found:
        return None
    held = [floor["held"] for floor in accepted["floors"]]
    steady = [one for one in found if not one[3]]
    is_noisy = 2 * len(steady) <= len(found)
    tone = BAD if False in held else WARNED if None in held or is_noisy else GOOD
    if is_noisy:
        # One that came out even among many that did not is no figure of this machine.
        note = "trials differ by more than their median"
        for host in accepted["busy"][:1]:
            note = "%s had other work: load %.1f, %s" % (
                host["host"], host["load"], count(host["processors"], "processor"))
        return Tile("Bandwidth", "Noisy", tone, "bandwidth", note)
    fastest, largest, backend, _noisy = max(steady)
    note = "%s, all_reduce, %s" % (backend, size(largest))
    return Tile("Bandwidth", "%s GB/s" % speed(fastest), tone, "bandwidth", note)


def _health_tile(health: Facts | None) -> Tile | None:
    if health is None:
        return None
    found = [finding["severity"] for finding in health["findings"]]
    nodes = count(len(health["nodes"]), "node")
    for severity, tone in (("failure", BAD), ("warning", WARNED)):
        if severity in found:
            return Tile("Node health", count(found.count(severity), severity), tone, "health", nodes)
    word, tone = ("Healthy", GOOD) if health["passed"] and health["nodes"] else ("Not passed", BAD)
    return Tile("Node health", word, tone, "health", nodes)


def _sweep_tile(sweep: Facts | None) -> Tile | None:
    if sweep is None:
        return None
    nodes, links = len(sweep["slow_nodes"]), len(sweep["slow_links"])
    whole = count(len(sweep["hosts"]), "node")
    slow = "%d of %s, %s" % (nodes, whole, count(links, "link")) if nodes or links else whole
    tone = BAD if nodes or links else WARNED
    if not sweep["complete"]:
        return Tile("Pair sweep", "Not done", tone, "sweep", slow)
    if nodes or links:
        return Tile("Pair sweep", "%d slow" % (nodes + links), BAD, "sweep", slow)
    if sweep["undecided"]:
        return Tile("Pair sweep", "Undecided", WARNED, "sweep", whole)
    word, tone = ("Even", GOOD) if sweep["passed"] else ("Not passed", BAD)
    return Tile("Pair sweep", word, tone, "sweep", whole)

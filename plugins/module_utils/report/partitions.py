# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe how a release does on each partition of its site, and how it stands by all of them, for a report. Pure."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ..core.lenient_json import mapping, mappings, text
from ..modulefiles.layout import PARTITIONS
from . import acceptance, nodes

Facts = Mapping[str, Any]

ABSENT = (
    ("acceptance", "No acceptance was run on partition %s: nothing is known of its ranks, devices and bandwidth."),
    ("node_health", "The health of the nodes of partition %s was not looked at."),
    ("sweep", "No pair sweep was run on partition %s: a slow node or link can be among its nodes."),
)
"""Records of one partition, and what is not known without them."""


def describe_partitions(said: object, records: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Describe each partition, in the order of the site.

    Args:
        said: the record of why one is ``optional``, or ``left_out`` for this release.
        records: of each partition by its name, ``afterwards``, records by name, and ``acceptances``, all that were run.
    """
    found = []
    for name, reasons in mapping(said).items():
        after = mapping(mapping(records.get(name)).get("afterwards"))
        found.append({
            "name": name, **acceptance.select_texts(mapping(reasons), "optional", "left_out"),
            "acceptance": acceptance.describe_acceptance(after.get("acceptance")),
            "sweep": nodes.describe_sweep(after.get("sweep")),
            "health": nodes.describe_health(after.get("node_health")),
            "compute": mappings(mapping(after.get("compute")).get("findings")),
            "missing": [
                {"record": place_of(name) + record + ".json", "message": sentence % name}
                for record, sentence in ABSENT if record not in after and not text(mapping(reasons).get("left_out"))],
        })
    return found


def place_of(name: str) -> str:
    """Return the directory of a partition's records, with its slash; empty for the site as a whole."""
    return "%s/%s/" % (PARTITIONS, name) if name else ""


def acceptances_of(records: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarise all acceptances on all partitions, in the order in which they began."""
    found = [
        dict(acceptance.summarise(record), partition=name)
        for name, own in records.items() for record in own["acceptances"]]
    return sorted(found, key=lambda run: run["started"])


def at(facts: Facts, partition: Facts) -> dict[str, Any]:
    """Return the facts of a release as they are on one partition."""
    return {**facts, **{key: partition[key] for key in ("acceptance", "sweep", "health", "compute")}}


def decide_verdict(found: Facts, decide: Callable[[Facts], dict[str, Any]]) -> dict[str, Any]:
    """Decide how the release stands by its partitions; an optional one only adds its problems.

    Args:
        decide: decides it for the facts of one place.
    """
    build = decide({**found, "acceptance": None, "sweep": None, "health": None})
    verdicts = {
        one["name"]: decide({**at(found, one), "steps": []}) for one in found["partitions"] if not one["left_out"]}
    problems = [*build["problems"], *(
        dict(problem, of="partition %s, %s" % (name, problem["of"]))
        for name, verdict in verdicts.items() for problem in verdict["problems"])]
    optional = {one["name"] for one in found["partitions"] if one["optional"]}
    needed = {name: verdict for name, verdict in verdicts.items() if name not in optional}
    if build["tone"] == "bad" and not all(verdict["word"].startswith("Accepted") for verdict in needed.values()):
        return dict(build, problems=problems)
    for word in ("Not accepted", "Not accepted yet", "Accepted in another state"):
        names = [name for name, verdict in needed.items() if verdict["word"] == word]
        if names:
            return {"word": "%s on %s" % (word, ", ".join(names)), "tone": needed[names[0]]["tone"],
                    "problems": problems}
    if not needed:
        return {"word": "Not accepted yet", "tone": build["tone"], "problems": problems}
    word, tone = ("Accepted, with findings", "warning") if problems else ("Accepted", "good")
    return {"word": word, "tone": tone, "problems": problems}


def not_checked(partitions: Sequence[Facts], of_place: Callable[[Facts], list[dict[str, str]]]) -> list[dict[str, str]]:
    """List sentences about what was not checked on each partition; ``of_place`` lists those of one."""
    found = []
    for one in partitions:
        if one["left_out"]:
            found.append({"of": "partition %s" % one["name"], "sentence": "It is left out: %s" % one["left_out"]})
        found += [dict(row, of="%s on %s" % (row["of"], one["name"])) for row in of_place(one)]
    return found

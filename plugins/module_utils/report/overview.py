# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile the overview of all releases of a root from what is known of each. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..core.lenient_json import mapping, mappings, text, whole
from ..release.states import REMOVED
from . import overview_bandwidth
from .verdict import BAD, GOOD, UNKNOWN, WARNED

SCHEMA = 1

TOLD = ("deprecated", "hidden")
"""Stages of a retirement in which a release waits for the day that its users were told."""


class Known(NamedTuple):
    """What is known of one release."""

    row: Mapping[str, Any]
    """as ``torchstack list --json`` has it"""
    facts: Mapping[str, Any]
    """see :func:`.facts.compile_facts`"""
    looks: Mapping[str, Any]
    """the last comparison of each kind, as ``drift.json`` has them"""
    page: str = ""
    """of its report, as a relative address; empty where there is none"""


def compile_overview(root: str, known: Sequence[Known], broken: Mapping[str, str], now: str) -> dict[str, Any]:
    """Compile the overview.

    Args:
        broken: why a release cannot be described, by its name; a sentence each.
        now: the time that ages and days are told by, in UTC as in records.

    Returns:
        ``releases``, the newest first, each with ``drift_looks`` and ``retirement``; ``broken``; ``attention``, what
        somebody has to look at, the worst first; ``acceptances``, the last first; ``bandwidth`` and ``pairs``, see
        :mod:`.overview_bandwidth`.
    """
    newest_first = sorted(known, key=lambda one: text(one.row.get("since")), reverse=True)
    default = next((text(one.row.get("since")) for one in newest_first if one.row.get("default")), "")
    releases = [_describe(one, default, now) for one in newest_first]
    unreadable = [{"release": name, "message": sentence} for name, sentence in sorted(broken.items())]
    attention = [
        *({"tone": BAD, "of": entry["release"], "message": entry["message"], "remedy": ""} for entry in unreadable),
        *_missing_default(releases), *(problem for row in releases for problem in _problems(row))]
    acceptances = _acceptances(newest_first)
    return {
        "schema": SCHEMA, "root": root, "as_of": now, "releases": releases, "broken": unreadable,
        "sites": sorted({row["site"] for row in releases if row["site"]}),
        "attention": sorted(attention, key=lambda entry: (BAD, WARNED, UNKNOWN).index(entry["tone"])),
        "acceptances": acceptances, "bandwidth": overview_bandwidth.series_over_time(acceptances),
        "pairs": overview_bandwidth.compare_pairs(_sweeps(newest_first)),
    }


def _describe(one: Known, default: str, now: str) -> dict[str, Any]:
    """Describe a release; ``default`` is when the default of the root was frozen, empty where there is none."""
    own = mapping(one.facts["release"])
    return {
        **one.row, "title": text(own.get("title")), "page": one.page, "tone": one.facts["verdict"]["tone"],
        "problems": [{key: text(problem.get(key)) for key in ("of", "message", "remedy")}
                     for problem in mappings(one.facts["verdict"]["problems"])],
        "thawed": own.get("thawed"), "missing": [text(entry.get("message")) for entry in one.facts["missing"]
                                                 if text(entry.get("message")).count(" cannot be read: ")],
        "drift_looks": [_look(kind, mapping(look)) for kind, look in sorted(one.looks.items())],
        "retirement": _retirement(one.row, mapping(own.get("retired")), default, now[:10]),
    }


def _look(kind: str, look: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the last comparison of one kind: quick, full, or with the system of a host."""
    outcome = mapping(look.get("outcome"))
    first: Mapping[str, Any] = next(iter(mappings(outcome.get("findings"))), {})
    changed = [text(first.get(key)) for key in ("kind", "path")]
    return {
        "kind": kind, "since": text(look.get("since")),
        "same": outcome.get("matches") is True or outcome.get("passed") is True,
        "findings": whole(outcome.get("findings_total")) or 0,
        "first": text(first.get("message")) or " ".join(filter(None, changed)),
    }


def _retirement(row: Mapping[str, Any], retired: Mapping[str, Any], default: str, today: str) -> dict[str, Any] | None:
    """Say how far the retirement of a release is, and whether something is due; None where nothing is to be said."""
    stage, until, name = text(retired.get("state")), text(retired.get("until")), row["release"]
    if stage in TOLD:
        due = bool(until) and until <= today
        said = "Its users were told that it goes after %s." % until if until else "No day is recorded on which it goes."
        remedy = "torchstack retire %s --to removed" % name if due else ""
        return {"stage": stage, "until": until, "due": due, "message": said, "remedy": remedy}
    if stage in REMOVED:
        unfinished = stage != "removed"
        return {
            "stage": stage, "until": until, "due": unfinished, "remedy": "torchstack retire %s --to removed" % name
            if unfinished else "", "message": "Its removal has begun and is not complete." if unfinished
            else "It was removed%s." % (" on %s" % text(retired.get("since"))[:10] if retired.get("since") else "")}
    if row["state"] == "visible" and not row["default"] and default > text(row.get("since")):
        return {"stage": "", "until": "", "due": False, "message": "A newer release is the default, and its users were "
                "told nothing.", "remedy": "torchstack retire %s --to deprecated" % name}
    return None


def _missing_default(releases: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    if any(row["state"] == "visible" for row in releases) and not any(row["default"] for row in releases):
        yield {"tone": WARNED, "of": "the root", "message": "Users see releases, and none of them is the default.",
               "remedy": "torchstack publish RELEASE --to default"}


def _problems(row: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """List what somebody has to look at of one release; of one that users neither see nor wait for only a few things.

    Each has ``tone``, ``of``, ``message`` and ``remedy``.
    """
    gone = row["state"] in ("removed", "gone")
    first = next(iter(row["problems"]), {"message": row["verdict"], "remedy": ""})
    if row["state"] == "failed" or (row["tone"] == BAD and not gone):
        yield _problem(BAD, row, "%s: %s" % (row["verdict"], first["message"]), first["remedy"])
    elif row["default"] and row["tone"] != GOOD:
        yield _problem(row["tone"], row, "It is the default. %s: %s" % (row["verdict"], first["message"]),
                       first["remedy"] or "torchstack accept %s" % row["release"])
    if row["thawed"]:
        yield _problem(WARNED, row, "It is thawed: what may still change is not published.",
                       "torchstack freeze %s" % row["release"])
    for look in row["drift_looks"]:
        if not look["same"] and not gone:
            yield _problem(BAD, row, "It differs from what was recorded (%s, %d found, first: %s)." % (
                look["kind"], look["findings"], look["first"] or "not said"), "torchstack drift %s" % row["release"])
    if row["retirement"] and row["retirement"]["due"]:
        yield _problem(WARNED, row, row["retirement"]["message"], row["retirement"]["remedy"])
    for sentence in row["missing"]:
        yield _problem(WARNED, row, sentence, "")


def _problem(tone: str, row: Mapping[str, Any], message: str, remedy: str) -> dict[str, str]:
    return {"tone": tone, "of": row["release"], "message": message, "remedy": remedy}


def _acceptances(known: Sequence[Known]) -> list[dict[str, Any]]:
    """List the acceptances of all releases, the last first."""
    found = [dict(run, release=one.row["release"], partition=text(run.get("partition")))
             for one in known for run in one.facts["acceptances"]]
    return sorted(found, key=lambda run: text(run["started"]), reverse=True)


def _sweeps(known: Sequence[Known]) -> list[dict[str, Any]]:
    """List the last pair sweep of each release, on each partition."""
    places = [(one.row["release"], text(place.get("name")), place.get("sweep"))
              for one in known for place in [one.facts, *one.facts.get("partitions", [])]]
    return [dict(sweep, release=release, partition=partition) for release, partition, sweep in places if sweep]

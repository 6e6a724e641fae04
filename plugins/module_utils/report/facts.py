# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile the facts of a report from the records of a release, for programs and for the page. Pure.

The same records give the same facts, whenever and wherever: there is no time of the report itself in them.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from ..core.lenient_json import (
    kept,
    mapping,
    mappings,
    moment,
    number,
    sequence,
    shown,
    text,
    texts,
    whole,
)
from ..definition.bundles import entries, planned_bundles
from ..release.records import subject_of
from ..steps.outcome import Outcome, describe_outcome
from . import acceptance, nodes, partitions
from .records import Records
from .verdict import decide_verdict
from .versions import list_versions

SCHEMA = 1

ABSENT = (
    ("frozen", "The release is not frozen: it may still change."),
    ("modulefile", "No modulefile was verified."),
    ("acceptance", "No acceptance was run: nothing is known of ranks, devices, values and bandwidth."),
    ("node_health", "The health of the nodes was not looked at."),
    ("sweep", "No pair sweep was run: a slow node or link can be among the nodes."),
)
"""Records of what comes after the build, and what is not known without them."""

ABSENT_IN_BUILD = (
    ("verification", "The libraries of the release's objects were not verified."),
    ("imports", "The release's Python modules were not imported for verification."),
)


def compile_facts(records: Records, resolved: Mapping[str, Any] | None) -> dict[str, Any]:
    """Compile the report of a release."""
    resolved = mapping(resolved)
    after = records.afterwards
    found = {
        "schema": SCHEMA, "release": _describe_release(records, resolved), "versions": list_versions(records, resolved),
        "packages": [
            acceptance.select_texts(entry, "name", "version", "licence")
            for entry in [*mappings(mapping(resolved.get("definition")).get("packages")),
                          *planned_bundles(entries(resolved.get("definition")))]
        ],
        "patches": _describe_patches(records, resolved),
        "known_problems": [
            acceptance.select_texts(entry, "problem", "workaround", "url")
            for entry in mappings(mapping(after.get("notice")).get("known_problems"))
        ],
        "steps": describe_steps(records.steps), "libraries": _describe_libraries(records.build.get("verification")),
        "imports": _describe_imports(records.build.get("imports")),
        "modulefile": _describe_modulefile(after.get("modulefile")),
        "published": [kept(entry, "time", "action", "syntax", "version", "without_acceptance", "previous")
                      for entry in records.published],
        "compute": mappings(mapping(after.get("compute")).get("findings")),
        "acceptance": acceptance.describe_acceptance(after.get("acceptance")),
        "acceptances": [acceptance.summarise(record) for record in records.acceptances],
        "sweep": nodes.describe_sweep(after.get("sweep")), "health": nodes.describe_health(after.get("node_health")),
        "missing": _list_missing(records, resolved),
    }
    if records.partitions:
        found.update(_of_partitions(records, found))
    found["not_checked"] = _list_unchecked(found)
    found["verdict"] = decide_verdict(found)
    return found


def _of_partitions(records: Records, found: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a release that is accepted on each partition of its site: nothing is known of the site as a whole."""
    each = partitions.describe_partitions(records.afterwards.get("partitions"), records.partitions)
    of_site = {record + ".json" for record, _sentence in partitions.ABSENT}
    return {
        "partitions": each, "acceptance": None, "sweep": None, "health": None,
        "acceptances": partitions.acceptances_of(records.partitions),
        "missing": [row for row in found["missing"] if row["record"] not in of_site] + [
            row for one in each for row in one["missing"]],
    }


def _describe_release(records: Records, resolved: Mapping[str, Any]) -> dict[str, Any]:
    frozen = mapping(records.afterwards.get("frozen"))
    module = mapping(records.afterwards.get("modulefile"))
    manifest = mapping(frozen.get("manifest"))
    return {
        "name": records.release, "site": text(resolved.get("site")),
        "title": text(mapping(resolved.get("definition")).get("title")),
        "digest": text(frozen.get("digest") or resolved.get("digest")),
        "subject": subject_of(frozen) or text(resolved.get("digest")), "frozen_at": text(frozen.get("frozen_at")),
        "freezing": bool(records.afterwards.get("freezing")),
        "manifest": {
            "files": whole(manifest.get("files")), "bytes": whole(manifest.get("bytes")),
            "digest": text(manifest.get("digest")),
        } if manifest else None,
        "logs": kept(mapping(frozen.get("logs")), "archive", "commit"),
        "module": "%s/%s" % (module["name"], module["version"]) if {"name", "version"} <= set(module) else "",
        **{word: sorted(syntax for syntax, seen in records.seen.items() if seen == word)
           for word in ("visible", "hidden", "gone")},
        "default": sorted(syntax for syntax, seen in records.default.items() if seen), "said": records.said,
        "retired": _select_texts(records.afterwards.get("retired"), "state", "since", "until", "reason", "successor"),
        "thawed": _select_texts(records.afterwards.get("thawed"), "at", "who", "why"),
    }


def _select_texts(record: object, *keys: str) -> dict[str, str] | None:
    """Select texts of a record; None where there is none."""
    return acceptance.select_texts(record, *keys) if isinstance(record, Mapping) else None


def _describe_patches(records: Records, resolved: Mapping[str, Any]) -> list[dict[str, Any]]:
    wanted, asked = mapping(resolved.get("series")), mapping(resolved.get("definition"))
    found = []
    for component, patches in sorted(records.patches.items()):
        # A series that was replaced during the build is still there.
        own = [patch for patch in patches if text(wanted.get(component)) in ("", patch["series"])]
        part = mapping(asked.get(component))
        series = text(part.get("series") or mapping(part.get("source")).get("series"))
        patches = [{"file": patch["file"], "title": patch["title"]} for patch in own]
        if own:
            found.append({"component": component, "series": series, "patches": patches})
    return found


def _describe_libraries(summary: object) -> dict[str, Any] | None:
    if not isinstance(summary, Mapping):
        return None
    return {
        "objects": whole(summary.get("objects")) or 0,
        "providers": [
            dict(acceptance.select_texts(entry, "name", "path"), rules=texts(entry.get("rules")),
                 needed_by=whole(entry.get("needed_by")))
            for entry in mappings(summary.get("providers"))],
        "allowed": [
            dict(acceptance.select_texts(entry, "name", "reason"), needed_by=whole(entry.get("needed_by")))
            for entry in mappings(summary.get("allowed"))],
    }


def _describe_imports(summary: object) -> dict[str, Any] | None:
    if not isinstance(summary, Mapping):
        return None
    return {
        "modules": texts(summary.get("modules")), "mapped": whole(summary.get("mapped")),
        "reported": {text(key): shown(value) for key, value in mapping(summary.get("reported")).items()},
        "allowed": [kept(entry, "soname", "path", "reason") for entry in mappings(summary.get("allowed"))],
    }


def _describe_modulefile(record: object) -> dict[str, Any] | None:
    if not isinstance(record, Mapping):
        return None
    return {
        "passed": record.get("passed") is True,
        "checked": [kept(entry, "system", "version", "shell", "state") for entry in mappings(record.get("checked"))],
        "not_checked": [text(entry.get("why")) for entry in mappings(record.get("not_checked")) if entry.get("why")],
    }


def _list_missing(records: Records, resolved: Mapping[str, Any]) -> list[dict[str, str]]:
    """List records that are missing or unreadable, and what is not known without them."""
    there = {os.path.splitext(os.path.basename(path))[0] for path in records.unreadable}
    found = [] if resolved else [
        {"record": "release.yml", "message": "The release was never opened: it is not known what was asked for."}
    ]
    for names, known in ((ABSENT_IN_BUILD, records.build), (ABSENT, records.afterwards)):
        found += [{"record": name + ".json", "message": sentence} for name, sentence in names
                  if name not in known and name not in there]
    if not records.steps:
        found.append({"record": "steps", "message": "No step was begun."})
    return found + [{"record": path, "message": "%s cannot be read: %s." % (path, reason)}
                    for path, reason in sorted(records.unreadable.items())]


def _list_unchecked(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """List sentences about what was not checked, with their source."""
    rows = [*_list_unchecked_at(found), *partitions.not_checked(found.get("partitions", []), _list_unchecked_at)]
    unique: dict[str, dict[str, str]] = {}
    for row in rows:
        unique.setdefault(row["sentence"], row)
    return list(unique.values())


def _list_unchecked_at(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """List the same of the release as a whole, or of one partition."""
    parts = {"modulefile": "modulefile", "acceptance": "acceptance", "sweep": "pair sweep", "health": "node health"}
    rows = [{"of": name, "sentence": sentence} for key, name in parts.items()
            for sentence in sequence(mapping(found.get(key)).get("not_checked"))]
    # What each node could not show is the same on most of them.
    hosts: dict[str, list[str]] = {}
    for node in mappings(mapping(found.get("health")).get("nodes")):
        for sentence in node["not_seen"]:
            hosts.setdefault(sentence, []).append(node["host"])
    return rows + [
        {"of": "health of %s" % _list_names(names), "sentence": sentence} for sentence, names in hosts.items()]


def _list_names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else "%d nodes" % len(names)


def describe_steps(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Describe the steps, in the order in which they began, from the records of each.

    These are ``job``, ``exit``, ``stamp``, ``submission``, and of a step that failed ``failure``.

    Returns:
        ``name``, ``state`` (done, cached, failed, begun), ``started``, ``finished``, ``seconds``, ``host``,
        ``launcher``, ``job_id``, ``attempt``, ``digest`` and ``outcome`` of each; null for what is not known. Of one
        that failed also ``errors``, the lines of its log that say why, the path of that ``log``, and a ``remedy``.
    """
    rows = [_describe_step(name, records) for name, records in found.items()]
    return sorted(rows, key=lambda row: (row["started"] or "9999", row["finished"] or "9999", row["name"]))


def _describe_step(name: str, records: Mapping[str, Any]) -> dict[str, Any]:
    job, end, stamp, submission = (mapping(records.get(key)) for key in ("job", "exit", "stamp", "submission"))
    # A step that was begun again after its success has another digest.
    done = bool(stamp) and (not job or stamp.get("digest") == job.get("digest"))
    ended = end if not job or end.get("nonce") == job.get("nonce") else {}
    last = stamp if done else ended
    outcome = ""
    if not done and ended and ended.get("reason") not in (None, "done"):
        try:
            outcome = describe_outcome(name, Outcome.from_json(ended)) + "."
        except (KeyError, TypeError, ValueError):
            outcome = "step %s failed." % name
    state = "done" if done else "failed" if outcome else "begun"
    if done and stamp.get("from_cache") is True:
        state = "cached"
    return {
        "name": name, "state": state, "started": _valid_time(last.get("started") or job.get("started")),
        "finished": _valid_time(last.get("finished")), "seconds": number(last.get("seconds")),
        "host": text(last.get("host") or job.get("host")), "launcher": text(job.get("launcher")),
        "job_id": text(job.get("job_id") or submission.get("job_id")),
        "attempt": whole(last.get("attempt") or job.get("attempt")),
        "digest": text(last.get("digest") or job.get("digest")), "outcome": outcome[:1].upper() + outcome[1:],
        **kept(ended, "code", "signal"), **(mapping(records.get("failure")) if state == "failed" else {}),
    }


def _valid_time(value: object) -> str | None:
    return text(value) if moment(value) is not None else None

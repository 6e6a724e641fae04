# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The facts of a report: what the records of a release say, in one document for programs and for the page. Pure.

The same records give the same facts, whenever and wherever: there is no time of the report itself in them.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from ..core.lenient_json import (
    kept,
    mapping,
    mappings,
    sequence,
    shown,
    text,
    texts,
    whole,
)
from ..release.records import subject_of
from . import acceptance as report_acceptance
from . import nodes as report_fleet
from . import report_steps
from .records import Records

SCHEMA = 1

GOOD, BAD, WARNED, UNKNOWN = "good", "bad", "warning", "unknown"

ABSENT = (
    ("frozen", "The release is not frozen: it may still change."),
    ("modulefile", "No modulefile was verified."),
    ("acceptance", "No acceptance was run: nothing is known of ranks, devices, values and bandwidth."),
    ("node_health", "The health of the nodes was not looked at."),
    ("sweep", "No pair sweep was run: a slow node or link can be among the nodes."),
)
"""What it means that a record of what comes after the build is missing."""

ABSENT_IN_BUILD = (
    ("verification", "The libraries of the release's objects were not verified."),
    ("imports", "The release's Python modules were not imported for verification."),
)


def facts(records: Records, resolved: Mapping[str, Any] | None) -> dict[str, Any]:
    """The report of a release.

    Args:
        records: what was found on disk.
        resolved: the resolved release file; empty where there is none.

    Returns:
        plain data that JSON has a form for.
    """
    resolved = mapping(resolved)
    after = records.afterwards
    found = {
        "schema": SCHEMA,
        "release": _release(records, resolved),
        "versions": _versions(records, resolved),
        "packages": [
            {key: text(entry.get(key)) for key in ("name", "version", "licence")}
            for entry in mappings(mapping(resolved.get("definition")).get("packages"))
        ],
        "patches": _patches(records, resolved),
        "known_problems": [
            _texts(entry, "problem", "workaround", "url")
            for entry in mappings(mapping(records.afterwards.get("notice")).get("known_problems"))
        ],
        "steps": report_steps.steps(records.steps),
        "libraries": _libraries(records.build.get("verification")),
        "imports": _imports(records.build.get("imports")),
        "modulefile": _modulefile(after.get("modulefile")),
        "published": [kept(entry, "time", "action", "syntax", "version", "without_acceptance", "previous")
                      for entry in records.published],
        "compute": mappings(mapping(after.get("compute")).get("findings")),
        "acceptance": report_acceptance.acceptance(after.get("acceptance")),
        "acceptances": [report_acceptance.in_short(record) for record in records.acceptances],
        "sweep": report_fleet.sweep(after.get("sweep")),
        "health": report_fleet.health(after.get("node_health")),
        "missing": _missing(records, resolved),
    }
    found["not_checked"] = _not_checked(found)
    found["verdict"] = _verdict(found)
    return found


def _release(records: Records, resolved: Mapping[str, Any]) -> dict[str, Any]:
    frozen = mapping(records.afterwards.get("frozen"))
    module = mapping(records.afterwards.get("modulefile"))
    manifest = mapping(frozen.get("manifest"))
    return {
        "name": records.release,
        "site": text(resolved.get("site")),
        "title": text(mapping(resolved.get("definition")).get("title")),
        "digest": text(frozen.get("digest") or resolved.get("digest")),
        "subject": subject_of(frozen) or text(resolved.get("digest")),
        "frozen_at": text(frozen.get("frozen_at")),
        "freezing": bool(records.afterwards.get("freezing")),
        "manifest": {
            "files": whole(manifest.get("files")), "bytes": whole(manifest.get("bytes")),
            "digest": text(manifest.get("digest")),
        } if manifest else None,
        "logs": kept(mapping(frozen.get("logs")), "archive", "commit"),
        "module": "%s/%s" % (module["name"], module["version"]) if {"name", "version"} <= set(module) else "",
        **{word: sorted(syntax for syntax, seen in records.seen.items() if seen == word)
           for word in ("visible", "hidden", "gone")},
        "default": sorted(syntax for syntax, seen in records.default.items() if seen),
        "said": records.said,
        "retired": _texts(records.afterwards.get("retired"), "state", "since", "reason", "successor"),
        "thawed": _texts(records.afterwards.get("thawed"), "at", "who", "why"),
    }


WITHOUT_GPUS = "of PyTorch's wheel; nothing else here is built for GPUs"
"""What is said of CUDA in a release whose file has none."""


def _texts(record: object, *keys: str) -> dict[str, str] | None:
    """These texts of a record; None where there is none."""
    return {key: text(record.get(key)) for key in keys} if isinstance(record, Mapping) else None


def _versions(records: Records, resolved: Mapping[str, Any]) -> list[dict[str, str]]:
    """Name, version and origin of each part, as the records of the build have them, else as the release file asked."""
    build, asked = records.build, mapping(resolved.get("definition"))
    reported = mapping(mapping(build.get("imports")).get("reported"))
    base, mpi, python = (mapping(resolved.get(key)) for key in ("base", "mpi", "python"))
    torch, horovod, nccl = (mapping(build.get(key)) for key in ("pytorch", "horovod", "nccl"))
    cuda, wanted = mapping(asked.get("cuda")), mapping(asked.get("nccl"))
    plugin, image = mapping(wanted.get("plugin")), mapping(base.get("image"))

    def first(*found: object) -> str:
        return next((said for said in map(text, found) if said), "")

    def version(part: str, *found: object) -> str:
        return first(*found, mapping(asked.get(part)).get("version"))

    providers = {"wheel": "of its wheel", "path": "on PATH", "image": "of the image"}
    over = (", ".join(texts(horovod.get(key))) for key in ("frameworks", "operations"))
    rows = [
        ("Base", text(base.get("kind")).replace("_", " "), first(image.get("file"), base.get("prefix"))),
        ("Python", first(python.get("version"), base.get("minor")),
         first(python.get("executable"), base.get("python"))),
        ("PyTorch", version("pytorch", torch.get("version"), reported.get("torch.__version__")),
         ", ".join(filter(None, (_taken(torch), text(torch.get("origin")))))),
        ("CUDA", version("cuda", torch.get("cuda"), reported.get("torch.version.cuda")),
         text(cuda.get("prefix")) or (WITHOUT_GPUS if torch.get("cuda") else "")),
        ("NCCL", version("nccl", nccl.get("version")), text(wanted.get("repository"))),
        ("NCCL's network plugin", text(plugin.get("version")), text(plugin.get("repository"))),
        ("MPI", _mpi(reported) or providers.get(text(mpi.get("provider")), text(mpi.get("provider"))),
         text(mpi.get("prefix"))),
        ("mpi4py", version("mpi4py"), ""),
        ("Horovod", version("horovod", horovod.get("version")), " over ".join(part for part in over if part)),
    ]
    return [{"name": name, "version": said, "origin": origin} for name, said, origin in rows if said]


def _taken(torch: Mapping[str, Any]) -> str:
    """What PyTorch takes on the disk with what only it needs; empty where that was not measured."""
    taken = torch.get("bytes")
    return "%.1f GB with what it needs" % (taken / 1e9) if isinstance(taken, int) and taken else ""


def _mpi(reported: Mapping[str, Any]) -> str:
    """What the MPI calls itself, as far as that is on the first line."""
    said = next((text(value) for key, value in reported.items() if "Get_library_version" in key), "")
    return " ".join(said.partition("\n")[0].replace("MPI VERSION", "").replace("Version", "").replace(":", "").split())


def _patches(records: Records, resolved: Mapping[str, Any]) -> list[dict[str, Any]]:
    wanted, asked = mapping(resolved.get("series")), mapping(resolved.get("definition"))
    found = []
    for component, patches in sorted(records.patches.items()):
        # A series that was replaced during the build is still there.
        own = [patch for patch in patches if text(wanted.get(component)) in ("", patch["series"])]
        part = mapping(asked.get(component))
        series = text(part.get("series") or mapping(part.get("source")).get("series"))
        if own:
            found.append({
                "component": component, "series": series,
                "patches": [{"file": patch["file"], "title": patch["title"]} for patch in own],
            })
    return found


def _libraries(summary: object) -> dict[str, Any] | None:
    if not isinstance(summary, Mapping):
        return None
    return {
        "objects": whole(summary.get("objects")) or 0,
        "providers": [
            {"name": text(entry.get("name")), "path": text(entry.get("path")), "rules": texts(entry.get("rules")),
             "needed_by": whole(entry.get("needed_by"))}
            for entry in mappings(summary.get("providers"))
        ],
        "allowed": [
            {"name": text(entry.get("name")), "reason": text(entry.get("reason")),
             "needed_by": whole(entry.get("needed_by"))}
            for entry in mappings(summary.get("allowed"))
        ],
    }


def _imports(summary: object) -> dict[str, Any] | None:
    if not isinstance(summary, Mapping):
        return None
    return {
        "modules": texts(summary.get("modules")), "mapped": whole(summary.get("mapped")),
        "reported": {text(key): shown(value) for key, value in mapping(summary.get("reported")).items()},
        "allowed": [kept(entry, "soname", "path", "reason") for entry in mappings(summary.get("allowed"))],
    }


def _modulefile(record: object) -> dict[str, Any] | None:
    if not isinstance(record, Mapping):
        return None
    return {
        "passed": record.get("passed") is True,
        "checked": [kept(entry, "system", "version", "shell", "state") for entry in mappings(record.get("checked"))],
        "not_checked": [text(entry.get("why")) for entry in mappings(record.get("not_checked")) if entry.get("why")],
    }


def _missing(records: Records, resolved: Mapping[str, Any]) -> list[dict[str, str]]:
    """Records that are not there or cannot be read, and what is not known without them."""
    there = {os.path.splitext(os.path.basename(path))[0] for path in records.unreadable}
    found = [] if resolved else [
        {"record": "release.yml", "message": "The release was never opened: it is not known what was asked for."}
    ]
    for names, known in ((ABSENT_IN_BUILD, records.build), (ABSENT, records.afterwards)):
        found += [
            {"record": name + ".json", "message": sentence} for name, sentence in names
            if name not in known and name not in there
        ]
    if not records.steps:
        found.append({"record": "steps", "message": "No step was begun."})
    found += [
        {"record": path, "message": "%s cannot be read: %s." % (path, reason)}
        for path, reason in sorted(records.unreadable.items())
    ]
    return found


def _not_checked(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Sentences about what nobody can have noticed, with whose they are."""
    parts = [
        ("modulefile", mapping(found["modulefile"]).get("not_checked")),
        ("acceptance", mapping(found["acceptance"]).get("not_checked")),
        ("pair sweep", mapping(found["sweep"]).get("not_checked")),
        ("node health", mapping(found["health"]).get("not_checked")),
    ]
    rows = [{"of": name, "sentence": sentence} for name, sentences in parts for sentence in sequence(sentences)]
    # What each node could not show is the same on most of them.
    hosts: dict[str, list[str]] = {}
    for node in mappings(mapping(found["health"]).get("nodes")):
        for sentence in node["not_seen"]:
            hosts.setdefault(sentence, []).append(node["host"])
    rows += [{"of": "health of %s" % _some(names), "sentence": sentence} for sentence, names in hosts.items()]
    unique: dict[str, dict[str, str]] = {}
    for row in rows:
        unique.setdefault(row["sentence"], row)
    return list(unique.values())


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else "%d nodes" % len(names)


def _verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    """How the release stands: a word, how good that is, and the sentences that say why."""
    release, accepted = found["release"], found["acceptance"]
    health, sweep = mapping(found["health"]), mapping(found["sweep"])
    problems = []
    failed = [step for step in found["steps"] if step["state"] == "failed"]
    problems += [_failed_step(step) for step in failed]
    problems += [dict(finding, of="node health") for finding in health.get("problems", [])]
    if accepted:
        problems += [
            {"of": "acceptance, " + failure["check"], "message": failure["message"], "remedy": failure["remedy"]}
            for failure in accepted["failures"]
        ]
    problems += [dict(finding, of="pair sweep") for finding in sweep.get("problems", [])]
    for name, record in (("node health", health), ("pair sweep", sweep)):
        problems += _standing(name, record, release["subject"])
    if failed and not (accepted and accepted["passed"]):
        word, tone = "Not built", BAD
    elif accepted is None:
        word, tone = "Not accepted yet", UNKNOWN
    elif not accepted["passed"]:
        word, tone = "Not accepted", BAD
    elif release["frozen_at"] and accepted["subject"] != release["subject"]:
        word, tone = "Accepted in another state", WARNED
        problems.append({
            "of": "acceptance", "message": "The acceptance was of another state of this release.",
            "remedy": "Run playbooks/accept.yml for it.",
        })
    else:
        word, tone = ("Accepted, with findings", WARNED) if problems else ("Accepted", GOOD)
    return {"word": word, "tone": tone, "problems": problems}


def _failed_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """The problem of a step that failed, with the lines of its log that say why."""
    lines = [line for error in step.get("errors", []) for line in error["lines"]]
    return {
        "of": "step " + step["name"], "message": step["outcome"], "remedy": step.get("remedy", ""),
        "lines": lines, "log": step.get("log", ""),
    }


def _standing(name: str, found: Mapping[str, Any], subject: str) -> list[dict[str, str]]:
    """Why a record does not speak for this release: it did not pass without saying why, or is of another state."""
    problems = []
    if found and not found["passed"] and not found["problems"]:
        problems.append({"of": name, "message": "It did not pass, and its record does not say why.", "remedy": ""})
    if found and found["subject"] and subject and found["subject"] != subject:
        problems.append({
            "of": name, "message": "It was of another state of this release.",
            "remedy": "Run playbooks/accept.yml for this one.",
        })
    return problems

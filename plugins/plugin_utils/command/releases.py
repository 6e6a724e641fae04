# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the releases below a root, and put them into rows and sentences; from their records, without Ansible."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, moment, text
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import drift_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.records import ReleaseFiles
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import REMOVED
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import facts, formatting, records
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.release_file import FAST

from .places import CommandError

COLUMNS = ("release", "state", "default", "age", "pytorch", "cuda", "mpi", "size", "accepted", "drift")

NARROWER: tuple[tuple[str, Callable[[str], str] | None], ...] = (
    ("pytorch", lambda version: version.partition("+")[0]), ("age", lambda age: " ".join(age.split()[:2])),
    ("mpi", None), ("size", None), ("cuda", None), ("age", None), ("pytorch", None), ("accepted", None))
"""What a table does without for want of room, the least needed first: a column, or a part of its cells."""


class Release(NamedTuple):
    """What is known of one release."""

    files: ReleaseFiles
    resolved: Mapping[str, Any]
    """its resolved release file; empty where there is none any more"""
    facts: Mapping[str, Any]
    """see :func:`.facts.compile_facts`"""
    lock: Mapping[str, Any] | None
    """of the rollout that has it now; None where it has ended"""
    looks: Mapping[str, Any]
    """the last comparison of each kind with what was recorded of it; see :mod:`.drift_record`"""

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Its steps, in the order in which they began."""
        return list(self.facts["steps"])


def names(root: str) -> list[str]:
    """List the releases below a root, also those that are not frozen, or of which only the records are left."""
    found = {path.parents[1].name for path in pathlib.Path(root).glob("*/.torchstack/release.yml")}
    for name in ("frozen.json", "retired.json", "lock.json"):
        found |= {path.parent.name for path in pathlib.Path(root).glob(".torchstack/*/" + name)}
    return sorted(found)


def read(root: str, name: str) -> Release:
    """Read one release. Raises CommandError: there is none of that name."""
    known = names(root)
    if name not in known:
        near = nearest(name, known)
        raise CommandError("There is no release '%s' below %s%s" % (
            name, root, "; did you mean '%s'?" % near if near else ": there are %s." % (", ".join(known) or "none")))
    files = records.release_files(root, name)
    resolved: Any = {}
    try:
        resolved = yaml.load(pathlib.Path(files.resolved).read_text(encoding="utf-8"), Loader=FAST)
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError("%s cannot be read: %s." % (files.resolved, getattr(error, "strerror", error))) from error
    found = records.read_records(files, text(mapping(resolved).get("tools")))
    return Release(files, mapping(resolved), facts.compile_facts(found, resolved), _lock(files),
                   drift_record.read_outcomes(root, name))


def read_all(root: str) -> tuple[list[Release], dict[str, str]]:
    """Read all releases below a root, and say in a sentence of each that cannot be read why."""
    found, broken = [], {}
    for name in names(root):
        try:
            found.append(read(root, name))
        except (CommandError, StackError, OSError) as error:
            said = error.message if isinstance(error, StackError) else str(error)
            broken[name] = printable(" ".join(said.split()))
    return found, broken


def _lock(files: ReleaseFiles) -> Mapping[str, Any] | None:
    record = rollout_lock.read_lock(os.path.join(files.afterwards, "lock.json"))
    if record is None or rollout_lock.judge(record, rollout_lock.this_place()) == rollout_lock.DEAD:
        return None
    return mapping(record)


def state_of(release: Release) -> str:
    """Say in one word how a release stands."""
    own = release.facts["release"]
    retired = text(mapping(own["retired"]).get("state"))
    if retired in REMOVED:
        return "removed"
    if own["thawed"]:
        return "thawed"
    if not own["frozen_at"]:
        failed = any(step["state"] == "failed" for step in release.steps)
        return "in progress" if release.lock else "failed" if failed else "unfinished"
    shown = next((word for word in ("gone", "visible", "hidden") if own[word]), "frozen")
    return "deprecated" if own["said"] and shown == "visible" else shown


def row(release: Release, now: float | None = None) -> dict[str, Any]:
    """Describe a release for a list: sizes in bytes, times as records have them, null for what is not known."""
    own, found = release.facts["release"], release.facts
    versions = {entry["name"]: entry["version"] for entry in found["versions"]}
    since = own["frozen_at"] or next((step["started"] for step in release.steps if step["started"]), "")
    began = moment(since)
    acceptance = mapping(found["acceptance"])
    return {
        "release": own["name"], "site": own["site"], "state": state_of(release), "default": bool(own["default"]),
        "since": since or None,
        "age_seconds": None if began is None else max(0.0, (time.time() if now is None else now) - began),
        "pytorch": versions.get("PyTorch"), "cuda": versions.get("CUDA"), "mpi": versions.get("MPI"),
        "size": mapping(own["manifest"]).get("bytes"), "accepted": acceptance.get("started") or None,
        "verdict": found["verdict"]["word"], "drift": drift_of(release),
        "prefix": release.files.prefix, "module": own["module"],
    }


def drift_of(release: Release) -> dict[str, Any] | None:
    """Say what the last comparison of each kind found; None where nothing was compared."""
    if not release.looks:
        return None
    outcomes = {kind: mapping(mapping(look).get("outcome")) for kind, look in release.looks.items()}
    return {kind: bool(found.get("matches", found.get("passed", False))) for kind, found in outcomes.items()}


def cells(described: Mapping[str, Any]) -> list[str]:
    """Write a row of the list as people read it."""
    drift = described["drift"]
    differing = sorted(kind for kind, same in (drift or {}).items() if not same)
    verdict, day = described["verdict"], formatting.day(described["accepted"])[:10]
    accepted = {"Accepted": day, "Accepted yet": ""}.get(verdict, verdict.lower())
    return [
        described["release"], described["state"], "default" if described["default"] else "",
        formatting.age(described["age_seconds"]),
        described["pytorch"] or formatting.DASH, described["cuda"] or formatting.DASH,
        _shortly(described["mpi"]), formatting.size(described["size"]), accepted,
        "not looked" if drift is None else "differs (%s)" % ", ".join(differing) if differing else "none",
    ]


def _shortly(mpi: str | None) -> str:
    """Shorten what an MPI says of itself to name and version; where it comes from stays whole."""
    words = (mpi or formatting.DASH).split()
    return " ".join(words if words[0] in ("of", "on") else words[:2])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align cells below heads; columns without any content are left out."""
    kept = [column for column in range(len(heads)) if any(cells[column] for cells in rows)]
    widths = {column: max(len(cells[column]) for cells in [heads, *rows]) for column in kept}
    return ["  ".join(cells[column].ljust(widths[column]) for column in kept).rstrip() for cells in [heads, *rows]]


def fitted(rows: Sequence[Sequence[str]], width: int | None) -> tuple[list[str], list[str]]:
    """Write rows of :data:`COLUMNS` as lines of a width, and name the columns that it has no room for.

    Args:
        rows: cells of releases, as :func:`cells` makes them.
        width: in characters; None where any line fits. What no release can be known without is wider in the end.
    """
    kept, shown = list(COLUMNS), [dict(zip(COLUMNS, row)) for row in rows]
    left_out: list[str] = []
    steps = iter(NARROWER)
    while True:
        lines = table([name.upper() for name in kept], [[row[name] for name in kept] for row in shown])
        step = next(steps, None) if width is not None and max(map(len, lines)) > width else None
        if step is None:
            return lines, left_out
        name, shorten = step
        if shorten:
            shown = [{**row, name: shorten(row[name])} for row in shown]
        elif name in kept:
            kept.remove(name)
            left_out.append(name)


def describe(release: Release) -> list[str]:
    """Describe one release on some lines."""
    found, own, stands = release.facts, release.facts["release"], row(release)
    manifest = mapping(own["manifest"])
    lines = [
        "Release %s of site %s%s" % (own["name"], own["site"], ": " + own["title"] if own["title"] else ""),
        "In %s, %s%s" % (release.files.prefix, stands["state"], ", the default" if stands["default"] else "")]
    if own["frozen_at"]:
        lines.append("Frozen %s: %s files, %s" % (
            formatting.moment(own["frozen_at"]), manifest.get("files", formatting.DASH),
            formatting.size(manifest.get("bytes"))))
    versions = [[entry["name"], entry["version"], entry["origin"]] for entry in found["versions"]]
    lines += ["  " + line for line in table(("", "", ""), versions)[1:]]
    if own["module"]:
        lines.append("Module: %s%s" % (own["module"], ", which says: " + own["said"] if own["said"] else ""))
    accepted = mapping(found["acceptance"])
    when = ", last asked %s" % formatting.moment(accepted.get("started")) if accepted else ""
    lines.append("Acceptance: %s%s" % (found["verdict"]["word"], when))
    lines += ["  %s: %s %s" % (one["of"], one["message"], one["remedy"]) for one in found["verdict"]["problems"]]
    lines.append("Drift: %s" % cells(stands)[-1])
    lines += ["Not known: " + one["message"] for one in found["missing"]]
    return [line.rstrip() for line in lines]

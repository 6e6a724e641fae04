# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render the facts of an announcement as paragraphs, tables, points and commands. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.lenient_json import mapping, mappings, text
from ..core.versions import CHANGED, DOWN, UP
from ..definition.known_problems import with_full_stop
from .notice_diff import ADDED, REBUILT, REMOVED
from .notice_phrases import (
    Phrase,
    code,
    file_phrase,
    flags_phrase,
    package_phrase,
    parse_backquotes,
    part_remarks,
    phrase,
    problem_phrase,
    setting_phrase,
)

ABSENT = "\u2013"
"""What stands in a table for a part that a release does not have."""

EMPTY: Mapping[str, Any] = {"commands": [], "paragraphs": [], "table": None, "points": []}
"""What a section can have."""

_PACKAGES = ((ADDED, "New"), (REMOVED, "Removed"), (UP, "Newer"), (DOWN, "Older"), (CHANGED, "Other builds"))
_ORDER = ("python", "pytorch", "torch", "cuda", "nccl", "nccl.plugin", "mpi", "libmpi", "mpi4py", "horovod", "image")
"""Parts and interfaces in the order of a notice, before all others."""

_PARTS = {"torch": "pytorch", "cuda": "cuda", "nccl": "nccl", "mpi": "mpi"}
"""Interfaces that are the version of a part, where the release has that part."""


def render_notice(facts: Mapping[str, Any], site: Mapping[str, Any], default_from: str = "") -> dict[str, Any]:
    """Return the announcement; ``default_from`` says when a release that is not the default yet becomes it.

    Returns:
        ``title`` (text), ``opening`` (phrases, each a paragraph) and ``sections``, each with ``key``, ``title``,
        ``commands``, ``paragraphs``, ``table`` (``head`` and ``rows`` of phrases, or null) and ``points``. Phrases are
        what :mod:`notice_phrases` makes.
    """
    sections: list[dict[str, Any]] = [
        {"key": "actions", "title": "What you have to do", "points": list(map(parse_backquotes, facts["actions"]))},
        _parts(facts),
        _settings(facts),
        _pinning(facts),
        {"key": "corrections", "title": "What was corrected in it since",
         "points": [phrase("%s: %s" % (entry["at"][:10], with_full_stop(entry["why"])))
                    for entry in mappings(facts["release"].get("corrections"))]},
        {"key": "known_problems", "title": "Known problems",
         "points": [problem_phrase(entry) for entry in facts["known_problems"] or []]},
        {"key": "solved_problems", "title": "Solved problems",
         "points": [parse_backquotes(with_full_stop(entry["problem"])) for entry in facts["solved_problems"]]},
        {"key": "python", "title": "Python packages", "points": _packages(facts, "python")},
        {"key": "conda", "title": "Conda packages", "points": _packages(facts, "conda")},
        {"key": "files", "title": "The site's own files in it", "points": list(map(file_phrase, facts["files"]))},
        {"key": "flags", "title": "Build options", "points": _flags(facts)},
        {"key": "settings", "title": "What the module sets", "points": list(map(setting_phrase, facts["settings"]))},
        _contact(site),
    ]
    return {
        "title": _title(facts, text(site.get("name")) or facts["release"]["site"], default_from),
        "opening": _introduction(facts, default_from),
        "sections": [dict(EMPTY, **section) for section in sections if any(section.get(key) for key in EMPTY)],
    }


def _title(facts: Mapping[str, Any], site: str, default_from: str) -> str:
    where = " on %s" % site if site else ""
    module = facts["release"]["module"]
    if _is_default(facts):
        return "%s is the %sdefault%s" % (module, "new " if facts["outgoing"] else "", where)
    if default_from and facts["outgoing"]:
        return "%s becomes the default%s on %s" % (module, where, default_from)
    return "%s can be tried%s" % (module, where)


def _is_default(facts: Mapping[str, Any]) -> bool:
    return bool(facts["release"]["standing"] == "default")


def _introduction(facts: Mapping[str, Any], default_from: str) -> list[Phrase]:
    release, outgoing = facts["release"], facts["outgoing"]
    module, title = code(release["module"]), with_full_stop(release["title"])
    by_name = code("module load %s" % release["module_name"])
    if outgoing is None:
        return [phrase(by_name, " loads ", module, ": ", title) if _is_default(facts) else
                phrase(module, " is installed: ", title)]
    former = code(outgoing["module"])
    if _is_default(facts):
        first = phrase(by_name, " now loads ", module, ": ", title, " Until now it loaded ", former, ".")
    else:
        first = phrase(module, " is installed beside the default, ", former, ": ", title)
        first += phrase(" On %s it becomes what " % default_from, by_name, " loads. Please try it before.") \
            if default_from else phrase(" Please try it before it becomes the default.")
    if not facts["compared"]:
        return [first, phrase("What has changed cannot be listed: the files of ", former, " are gone.")]
    if not any(facts[key] for key in ("components", "flags", "packages", "files", "settings", "compatibility")):
        return [first, phrase("Nothing of what is installed differs.")]
    return [first]


def _parts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the parts, and what differs of them besides their versions."""
    if facts["contents"]:
        contents = sorted(mappings(facts["contents"]), key=_place)
        rows = [[phrase(part["name"]), phrase(part["version"])] for part in contents]
        return {"key": "parts", "title": "What is in it", "table": {"head": ["", "Version"], "rows": rows}}
    parts = [row for row in mappings(facts["components"]) if not _is_package(row)]
    rows = [
        [phrase(row["name"]), phrase(row["before"] or ABSENT), phrase(row["after"] or ABSENT)]
        for row in sorted([*_interfaces(facts), *parts], key=_place) if row["before"] != row["after"]]
    head = ["", *(text(mapping(facts[key]).get("name")) for key in ("outgoing", "release"))]
    return {
        "key": "parts", "title": "What has changed", "table": {"head": head, "rows": rows} if rows else None,
        "points": [point for row in mappings(facts["components"]) for point in part_remarks(row)]}


def _interfaces(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the interfaces that are neither the version of a part nor that of a package in another list."""
    shown = {row["key"] for row in facts["components"]} | {row["name"].lower() for row in facts["packages"]}
    return [row for row in mappings(facts["compatibility"]) if _PARTS.get(row["key"], row["key"]) not in shown]


def _place(row: Mapping[str, Any]) -> int:
    return _ORDER.index(row["key"]) if row["key"] in _ORDER else len(_ORDER)


def _is_package(row: Mapping[str, Any]) -> bool:
    """Tell whether a part is a package that the release file names, and belongs to the other packages."""
    return str(row["key"]).startswith("packages.")


def _flags(facts: Mapping[str, Any]) -> list[Phrase]:
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(mappings(facts["flags"]), key=_place):
        parts.setdefault(row["key"], []).append(row)
    return [flags_phrase(rows) for rows in parts.values()]


def _packages(facts: Mapping[str, Any], kind: str) -> list[Phrase]:
    rows = [row for row in mappings(facts["packages"]) if row["kind"] == kind]
    if kind == "python":
        rows += [row for row in mappings(facts["components"]) if _is_package(row) and row["before"] != row["after"]]
        rows.sort(key=lambda row: row["name"].lower())
    found = []
    for change, title in _PACKAGES:
        entries = [package_phrase(row) for row in rows if row["change"] == change]
        if entries:
            found.append(phrase("%s: %s." % (title, ", ".join(entries))))
    rebuilt = [row["name"] for row in rows if row["change"] == REBUILT]
    return found + ([phrase("Built anew: %s." % ", ".join(rebuilt))] if rebuilt else [])


def _settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    release = facts["release"]
    places = [
        code("module use %s/%s" % (release["modulefiles"], syntax)) for syntax in ("lmod", "tcl")
        if syntax in release.get("syntaxes", ("lmod", "tcl"))]
    return {
        "key": "load", "title": "How to load it", "commands": ["module load %s" % release["module"]],
        "paragraphs": [
            phrase("Job scripts that name the version stay as they are when the default changes."),
            phrase("If the module is not found, run ", places[0], " first",
                   *(part for place in places[1:] for part in ("; with Environment Modules, ", place)), "."),
        ],
    }


def _pinning(facts: Mapping[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = {"key": "stay", "title": "How to stay with the former release"}
    outgoing = facts["outgoing"]
    if not outgoing or outgoing["standing"] == "staged":
        return section
    if outgoing["standing"] == "gone":
        return dict(section, title="The former release", paragraphs=[phrase(
            code(outgoing["module"]), " cannot be loaded any more.")])
    until = ", and stays until %s" % outgoing["until"].rstrip(".") if outgoing["until"] else ""
    hidden = phrase(" ", code("module avail"), " no longer lists it.") if outgoing["standing"] == "hidden" else []
    return dict(section, commands=["module load %s" % outgoing["module"]],
                paragraphs=[phrase(_changes(outgoing, until)) + hidden])


def _changes(outgoing: Mapping[str, Any], until: str) -> str:
    """Say whether a former release is as its users know it."""
    corrections = mappings(outgoing.get("corrections"))
    if outgoing.get("thawed"):
        return "Its files are being corrected at the moment%s." % until
    if not corrections:
        return "It has not changed%s." % until
    last = corrections[-1]
    several = "%d times, last " % len(corrections) if len(corrections) > 1 else ""
    return "It was corrected %son %s (%s), and has not changed otherwise%s." % (
        several, last["at"][:10], last["why"].rstrip("."), until)


def _contact(site: Mapping[str, Any]) -> dict[str, Any]:
    lines = [phrase(text(site[key])) for key in ("contact", "documentation") if text(site.get(key))]
    return {"key": "contact", "title": "Questions", "paragraphs": lines}

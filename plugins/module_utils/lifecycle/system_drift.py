# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check whether today's system still carries a published release.

Four checks, each by the module that also checked before the freeze: the modules that the release's own one loads, its
modulefile, the libraries of its objects, and what its Python modules map. What differs is told by what moved: a library
that forty objects need is one finding, with where the freeze found it and where one of that name is today.
"""

from __future__ import annotations

import glob
import os
from typing import Any, Iterator, Mapping, Sequence

from ..verify import library_record
from .drift_text import count_noun

CHECKS = ("modules", "modulefile", "libraries", "imports")
TITLES = {
    "modules": "the modules that it depends on", "modulefile": "its modulefile", "libraries": "its libraries",
    "imports": "its imports"}
NO_MODULES: dict[str, Any] = {"loaded": []}
"""The outcome of the check ``modules`` for a release that depends on none."""

MAX_OBJECTS = 10
"""Objects that a finding names."""

MAX_FINDINGS = 20
"""Findings that a summary has."""

_LIBRARIES = ("missing", "versions", "misplaced", "forbidden", "embedded", "required", "unreadable")
_IMPORTS = ("import_errors", "misplaced", "duplicates", "forbidden", "wrong_values")
_REBUILD = (
    "Have the site bring it back, by a link or a module of the old name; or roll out a release for today's system, "
    "make it the default and deprecate this one.")


def judge(prefix: str, looks: Mapping[str, Any], moved_fails: bool, host: str) -> dict[str, Any]:
    """Sum up the checks of a release on today's system.

    Of ``looks``, by the names of :data:`CHECKS`, one that was not made is empty. With ``moved_fails`` a library that is
    found elsewhere than at the freeze is a failure.
    """
    frozen = _libraries_at_freeze(prefix)
    findings: list[dict[str, Any]] = []
    for name in CHECKS:
        result = looks.get(name) or {}
        if not result:
            continue
        found = list(_CHECKERS[name](prefix, result, frozen))
        if (result.get("failed") or result.get("failed_step")) and not found:
            found = [_finding(name, str(result.get("msg") or "It failed."), "")]
        findings += found
    for finding in findings:
        finding["fails"] = moved_fails or finding["kind"] != "moved"
    made = [name for name in CHECKS if looks.get(name) and not looks[name].get("skipped")]
    # A release whose module loads no others has nothing to be looked at there.
    asked = [name for name in CHECKS if looks.get(name) != NO_MODULES]
    return {
        "host": host, "passed": not any(finding["fails"] for finding in findings),
        "looked_at": [name for name in made if name in asked],
        "not_looked_at": [name for name in asked if name not in made],
        "findings": findings, "findings_total": len(findings),
        "allowed": _allowed_to_miss(looks.get("libraries") or {}),
        "objects": (looks.get("libraries") or {}).get("objects", 0),
    }


def _finding(look: str, message: str, remedy: str, kind: str = "", **more: Any) -> dict[str, Any]:
    return {"look": look, "kind": kind or look, "message": message, "remedy": remedy, **more}


def _modules(_prefix: str, result: Mapping[str, Any], _frozen_places: Any) -> Iterator[dict[str, Any]]:
    for name in result.get("missing") or []:
        yield _finding(
            "modules", "The module %s, which it loads, is not there any more.%s" % (
                name, _today((result.get("instead") or {}).get(name))), _REBUILD, "module_missing", module=name)
    for name in result.get("refused") or []:
        yield _finding(
            "modules", "The module %s, which it loads, is there and refuses to load: %s%s" % (
                name, " ".join(result.get("messages") or [])[-400:],
                _today([one for key, there in (result.get("instead") or {}).items()
                        if key not in (result.get("missing") or []) for one in there])),
            _REBUILD, "module_refused", module=name)


def _today(there: Sequence[str] | None) -> str:
    """Say which versions of a module there are."""
    return " Today there is %s." % ", ".join(there) if there else ""


def _modulefile(_prefix: str, result: Mapping[str, Any], _frozen_places: Any) -> Iterator[dict[str, Any]]:
    told: dict[tuple[str, str], list[str]] = {}
    for entry in result.get("checked") or []:
        if not entry.get("passed", True):
            text = " ".join(entry.get("problems") or ["it does not load and unload cleanly."])
            told.setdefault((entry["system"], text), []).append("%s, %s" % (entry["shell"], entry["state"]))
    for (system, text), where in told.items():
        yield _finding(
            "modulefile", "Its modulefile does not load and unload cleanly with %s (%s): %s" % (
                system, "; ".join(where), text), "Bring back what it loads, or hide the release.",
            "modulefile", system=system)


def _libraries(prefix: str, result: Mapping[str, Any], frozen: dict[str, set[str]]) -> Iterator[dict[str, Any]]:
    gone = {str(entry["soname"]) for entry in result.get("missing") or []}
    for kind in _LIBRARIES:
        alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for entry in result.get(kind) or []:
            alike.setdefault((str(entry["soname"]), str(entry.get("path", ""))), []).append(entry)
        for (soname, _path), entries in sorted(alike.items()):
            objects = sorted({_relative(prefix, str(entry["object"])) for entry in entries})
            if kind == "missing":
                yield _missing(soname, objects, sorted(frozen.get(soname, ())), str(entries[0]["remedy"]))
                continue
            text = str(entries[0]["message"])
            if len(objects) > 1:
                text += " That holds for %d objects." % len(objects)
            yield _finding(
                "libraries", text, str(entries[0]["remedy"]), kind, soname=soname, objects=objects[:MAX_OBJECTS])
    for soname, places in sorted((result.get("providers") or {}).items()):
        before = sorted(frozen.get(soname, ()))
        now = sorted({str(place["path"]) for place in places if not _is_inside(prefix, str(place["path"]))})
        new = [path for path in now if path not in before]
        if before and new and soname not in gone:
            yield _finding(
                "libraries", "%s comes from %s today, and the freeze found it as %s." % (
                    soname, ", ".join(new), ", ".join(before)),
                "The release was verified and accepted with the other one: accept it again, or have the old one back.",
                "moved", soname=soname, before=before, now=now)


def _missing(soname: str, objects: list[str], before: list[str], remedy: str) -> dict[str, Any]:
    now = sorted({place for path in before for place in renamed_today(path)})
    text = "%s is not found any more; %d of its objects need it, first %s." % (soname, len(objects), objects[0])
    if before:
        text += " The freeze found it as %s." % ", ".join(before)
    if now:
        text += " Today there is %s." % ", ".join(now)
    return _finding(
        "libraries", text, _REBUILD if before else remedy, "missing", soname=soname, before=before, now=now,
        objects=objects[:MAX_OBJECTS])


def _imports(_prefix: str, result: Mapping[str, Any], _frozen_places: Any) -> Iterator[dict[str, Any]]:
    for entry in result.get("import_errors") or []:
        yield _finding(
            "imports", "import %s fails: %s." % (entry["module"], str(entry["error"]).rstrip(".")), entry["remedy"],
            "import", module=entry["module"])
    for kind in _IMPORTS[1:]:
        for entry in result.get(kind) or []:
            if kind == "wrong_values":
                actual = entry["error"] or entry["actual"]
                text = "%s has to %s, and is %s." % (entry["value"], entry["expected"], actual)
            elif kind == "duplicates":
                text = "More than one %s is mapped: %s." % (
                    entry["soname"], ", ".join(file["path"] for file in entry["files"]))
            else:
                text = "%s is mapped from %s%s." % (
                    entry["soname"], entry["path"],
                    " and not from %s" % entry["expected"] if entry.get("expected") else ", where nothing may be")
            yield _finding("imports", text, entry.get("remedy") or "", kind)


_CHECKERS = {"modules": _modules, "modulefile": _modulefile, "libraries": _libraries, "imports": _imports}


def _allowed_to_miss(result: Mapping[str, Any]) -> list[str]:
    """Tell what may be missing on this machine, and was not seen therefore."""
    return sorted("%s (%s)" % (entry["soname"], entry["reason"]) for entry in result.get("allowed") or [])


def _libraries_at_freeze(prefix: str) -> dict[str, set[str]]:
    """Tell where the verification before the freeze found each library outside of the release."""
    record = library_record.read(os.path.join(prefix, library_record.NAME)) or {}
    places: dict[str, set[str]] = {}
    for entry in (record.get("objects") or {}).values():
        for needed in (entry["needed"], entry.get("needed_without") or {}):
            for soname, place in needed.items():
                if place["path"] and os.path.isabs(place["path"]):
                    places.setdefault(soname, set()).add(place["path"])
    return places


def renamed_today(path: str) -> list[str]:
    """Find files of the same name where one directory of the path, the deepest, has another name now."""
    parts = path.split("/")
    for number in range(len(parts) - 2, 2, -1):  # never the directories that file systems are mounted on
        pattern = [glob.escape(part) for part in parts]
        pattern[number] = "*"
        found = sorted(set(glob.glob("/".join(pattern))) - {path})
        if found:
            return found
    return []


def _is_inside(prefix: str, path: str) -> bool:
    return path.startswith(prefix.rstrip("/") + "/") or path.startswith(os.path.realpath(prefix) + "/")


def _relative(prefix: str, path: str) -> str:
    return os.path.relpath(path, prefix) if _is_inside(prefix, path) else path


def summary_lines(release: str, outcome: Mapping[str, Any]) -> list[str]:
    """Summarise the findings about a release."""
    looked = ", ".join(TITLES[name] for name in outcome["looked_at"]) or "nothing"
    if not outcome["findings"]:
        lines = ["%s: today's system carries it (%s; %d objects)." % (release, looked, outcome["objects"])]
    else:
        lines = ["%s: %s on today's system (looked at: %s)." % (
            release, count_noun(len(outcome["findings"]), "finding"), looked)]
    lines += ["  %s %s" % (finding["message"], finding["remedy"]) for finding in outcome["findings"][:MAX_FINDINGS]]
    if len(outcome["findings"]) > MAX_FINDINGS:
        lines.append("  and %d more; drift.json has them." % (len(outcome["findings"]) - MAX_FINDINGS))
    if outcome["not_looked_at"]:
        lines.append("  Not looked at: %s." % ", ".join(TITLES[name] for name in outcome["not_looked_at"]))
    if outcome["allowed"]:
        lines.append("  Not to be seen on %s: %s." % (outcome["host"], ", ".join(outcome["allowed"])))
    return lines

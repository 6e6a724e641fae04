# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the libraries that a process has: facts and rules in, findings out. Pure."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.text import readable
from ..elf.process_map import Identity, Library
from .import_rules import EACH, Rules, Single
from .rule_globs import Paths

MISPLACED, DUPLICATES, FORBIDDEN = "misplaced", "duplicates", "forbidden"
MAX_NAMED = 5

_EXTENSION_MODULE = re.compile(r"\.(cpython-[^/]*|abi3)\.so\Z", re.S)


class MappedLibrary(NamedTuple):
    """Describe a mapped library and the step of the run that brought it."""

    step: str
    library: Library

    @property
    def name(self) -> str:
        """Return the soname, or the name of the file."""
        return os.fsdecode(self.library.name)

    def as_result(self) -> dict[str, Any]:
        """Return the library as plain data."""
        return {
            "path": text(self.library.path), "soname": text(self.library.soname), "brought_by": self.step,
            "deleted": self.library.deleted,
        }


class Recorded(NamedTuple):
    """Describe what the static verification found for one needed name: object, name, path.

    ``opened``: the object opens it by that name, if at all, and not as it is mapped.
    """

    needer: bytes
    name: bytes
    path: bytes
    opened: bool = False


class Finding(NamedTuple):
    """Describe what is wrong: its kind, whom ``allow`` can excuse, a sentence, a remedy, and plain data."""

    kind: str
    concerned: tuple[MappedLibrary, ...]
    sentence: str
    remedy: str
    facts: dict[str, Any]

    def as_result(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return dict(self.facts, remedy=self.remedy)


class Verdict(NamedTuple):
    """Hold the findings that stand, what was excused, and the excuses that nobody needed."""

    findings: tuple[Finding, ...]
    allowed: tuple[dict[str, str], ...]
    unused: tuple[dict[str, str], ...]


def text(name: bytes) -> str:
    """Return a name as text that any output can hold."""
    return readable(os.fsdecode(name))


def check_mapped(
    mapped: Sequence[MappedLibrary], rules: Rules, recorded: Sequence[Recorded] = (),
    identities: Mapping[bytes, Identity] | None = None, paths: Paths | None = None,
) -> Verdict:
    """Check what is mapped, each file once, by the rules.

    Args:
        recorded: what the static verification resolved for the mapped objects.
        identities: the files that those paths lead to; a path that leads nowhere is missing.
    """
    paths = paths or Paths()
    findings = [
        *_misplaced(mapped, rules, paths), *_differing_from_static(mapped, recorded, identities or {}),
        *_duplicates(mapped, rules), *_forbidden(mapped, rules, paths),
    ]
    return _apply_allowances(findings, rules, paths)


def _misplaced(mapped: Sequence[MappedLibrary], rules: Rules, paths: Paths) -> list[Finding]:
    """Find libraries that come from elsewhere; several rules about one library are alternatives."""
    findings = []
    for entry in mapped:
        declared = [rule for rule in rules.providers if rule.sonames.fullmatch(entry.name)]
        if not declared or any(paths.match(rule.paths, entry.library.path) for rule in declared):
            continue
        expected = " or ".join(dict.fromkeys(rule.path for rule in declared))
        findings.append(Finding(
            MISPLACED, (entry,),
            "%s is mapped from %s (brought by %s) and has to come from %s."
            % (readable(entry.name), text(entry.library.path), entry.step, expected),
            "Import what brings the declared one first, or give what needs it a RUNPATH that leads there.",
            dict(entry.as_result(), soname=readable(entry.name), expected=expected, rule="providers",
                 reason="; ".join(dict.fromkeys(rule.reason for rule in declared if rule.reason))),
        ))
    for rule in rules.providers:
        if rule.required and not any(rule.sonames.fullmatch(entry.name) for entry in mapped):
            findings.append(Finding(
                MISPLACED, (), "%s has to come from %s and is not mapped at all." % (rule.name, rule.path),
                "Look whether it is linked in statically, or opened later; build against the shared library.",
                {"path": "", "soname": rule.name, "brought_by": "", "deleted": False, "expected": rule.path,
                 "rule": "providers", "reason": rule.reason},
            ))
    return findings


def _names(entry: MappedLibrary) -> tuple[bytes, bytes]:
    """Return the names that an object may have needed or opened a library by."""
    return (entry.library.soname, os.path.basename(entry.library.path))


def _differing_from_static(
    mapped: Sequence[MappedLibrary], recorded: Sequence[Recorded], identities: Mapping[bytes, Identity]
) -> list[Finding]:
    """Find where the loader did not do what each object alone would have it: the first soname wins."""
    present = {entry.library.identity for entry in mapped}
    needers: dict[tuple[bytes, bytes], list[bytes]] = {}
    for edge in recorded:
        if identities.get(edge.path) in present:
            continue
        if not edge.opened or any(edge.name in _names(entry) for entry in mapped):
            needers.setdefault((edge.name, edge.path), []).append(edge.needer)
    findings = []
    for (name, path), objects in needers.items():
        actual = [entry for entry in mapped if name in _names(entry)]
        there = actual[0].as_result() if actual else {"path": "", "soname": "", "brought_by": "", "deleted": False}
        stale = path not in identities
        instead = " and ".join(text(entry.library.path) for entry in actual) or "nowhere"
        findings.append(Finding(
            MISPLACED, tuple(actual),
            "%s needs %s, which the static verification found as %s%s, and the process has it from %s%s." % (
                text(objects[0]), text(name), text(path), " (which is gone)" if stale else "", instead,
                " (brought by %s)" % actual[0].step if actual else "",
            ),
            "Run the static verification again." if stale or not actual else
            "Another library of that name was mapped first: let both lead to one file.",
            dict(there, soname=text(name), expected=text(path), rule="static", needed_by=len(objects),
                 reason="needed by " + ", ".join(map(text, sorted(objects)[:MAX_NAMED]))),
        ))
    return findings


def _duplicates(mapped: Sequence[MappedLibrary], rules: Rules) -> list[Finding]:
    findings, reported = [], set()
    for rule in rules.single:
        for name, group in _groups(mapped, rule).items():
            files = tuple(group)
            identities = frozenset(entry.library.identity for entry in files)
            if len(files) < 2 or identities in reported:
                continue
            reported.add(identities)
            findings.append(Finding(
                DUPLICATES, files,
                "%d files are mapped for %s: %s." % (len(files), readable(name), ", ".join(
                    "%s (brought by %s)" % (text(entry.library.path), entry.step) for entry in files
                )),
                "Let everything lead to one of them, or allow the others with a reason.",
                {"soname": readable(name), "rule": rule.name, "files": [entry.as_result() for entry in files]},
            ))
    return findings


def _groups(mapped: Sequence[MappedLibrary], rule: Single) -> dict[str, list[MappedLibrary]]:
    """Group libraries of which one file may be mapped: under ``*`` by soname, else all that match.

    Extension modules are opened by path and never found by their names, so under ``*`` two may be called the same.
    """
    groups: dict[str, list[MappedLibrary]] = {}
    for entry in mapped:
        if rule.name != EACH:
            if rule.sonames.fullmatch(entry.name):
                groups.setdefault(rule.name, []).append(entry)
        elif (entry.library.soname or entry.name.startswith("lib")) and not _EXTENSION_MODULE.search(entry.name):
            groups.setdefault(entry.name, []).append(entry)
    return groups


def _forbidden(mapped: Sequence[MappedLibrary], rules: Rules, paths: Paths) -> list[Finding]:
    return [
        Finding(
            FORBIDDEN, (entry,),
            "%s is mapped (brought by %s), and nothing may come from %s: %s."
            % (text(entry.library.path), entry.step, rule.path, rule.reason.rstrip(".")),
            "Rebuild or reinstall what brings it.",
            dict(entry.as_result(), soname=readable(entry.name), rule=rule.path, reason=rule.reason),
        )
        for rule in rules.forbid
        for entry in mapped
        if paths.match(rule.paths, entry.library.path)
    ]


def _apply_allowances(findings: Sequence[Finding], rules: Rules, paths: Paths) -> Verdict:
    """Remove the findings that ``allow`` excuses; a duplicate, when one file is left without them."""
    used, remaining, allowed = set(), [], []
    for finding in findings:
        excuses = [(_find_allowance(entry, rules, paths), entry) for entry in finding.concerned]
        by = [(number, entry) for number, entry in excuses if number is not None]
        if not by or len(excuses) - len(by) > (1 if finding.kind == DUPLICATES else 0):
            remaining.append(finding)
            continue
        used |= {number for number, _entry in by}
        for number, entry in by:
            excused = {"kind": finding.kind, "soname": readable(entry.name), "path": text(entry.library.path)}
            allowed.append(dict(excused, reason=rules.allow[number].reason))
    left = [rule for number, rule in enumerate(rules.allow) if number not in used]
    unused = tuple({"name": rule.name, "path": rule.path, "reason": rule.reason} for rule in left)
    return Verdict(tuple(remaining), tuple(allowed), unused)


def _find_allowance(entry: MappedLibrary, rules: Rules, paths: Paths) -> int | None:
    for number, rule in enumerate(rules.allow):
        if rule.sonames.fullmatch(entry.name) and (rule.paths is None or paths.match(rule.paths, entry.library.path)):
            return number
    return None

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the libraries that a process has: facts and rules in, findings out."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.text import readable
from ..elf.process_map import Identity, Library
from .import_rules import EACH, Rules, Single
from .library_rules import Paths

MISPLACED, DUPLICATES, FORBIDDEN = "misplaced", "duplicates", "forbidden"
NAMED_NEEDERS = 5

_EXTENSION_MODULE = re.compile(r"\.(cpython-[^/]*|abi3)\.so\Z", re.S)


class Brought(NamedTuple):
    """A mapped library and the step of the run that brought it."""

    step: str
    library: Library

    @property
    def name(self) -> str:
        """Its soname, or the name of its file."""
        return os.fsdecode(self.library.name)

    def as_result(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "path": text(self.library.path), "soname": text(self.library.soname), "brought_by": self.step,
            "deleted": self.library.deleted,
        }


class Recorded(NamedTuple):
    """What the static verification found for one needed name: the needing object, the name, the path.

    ``opened``: the object opens it by that name, if at all, and not as it is mapped.
    """

    needer: bytes
    name: bytes
    path: bytes
    opened: bool = False


class Finding(NamedTuple):
    """Something wrong: its kind, whom ``allow`` can excuse, one sentence, what to do, and plain data."""

    kind: str
    concerned: tuple[Brought, ...]
    sentence: str
    remedy: str
    facts: dict[str, Any]

    def as_result(self) -> dict[str, Any]:
        """It as plain data."""
        return dict(self.facts, remedy=self.remedy)


class Verdict(NamedTuple):
    """The findings that stand, what was excused, and the excuses that nobody needed."""

    findings: tuple[Finding, ...]
    allowed: tuple[dict[str, str], ...]
    unused: tuple[dict[str, str], ...]


def text(name: bytes) -> str:
    """A name as text that any output can hold."""
    return readable(os.fsdecode(name))


def judge(
    mapped: Sequence[Brought], rules: Rules, recorded: Sequence[Recorded] = (),
    identities: Mapping[bytes, Identity] | None = None, paths: Paths | None = None,
) -> Verdict:
    """Hold what is mapped against the rules.

    Args:
        mapped: every mapped library, each file once.
        rules: the rules.
        recorded: what the static verification resolved for the mapped objects.
        identities: the files that those paths lead to; a path that leads nowhere is missing.
        paths: matches paths, and remembers where links lead.
    """
    paths = paths or Paths()
    findings = [
        *_misplaced(mapped, rules, paths), *_unlike_static(mapped, recorded, identities or {}),
        *_duplicates(mapped, rules), *_forbidden(mapped, rules, paths),
    ]
    return _excuse(findings, rules, paths)


def _misplaced(mapped: Sequence[Brought], rules: Rules, paths: Paths) -> list[Finding]:
    """Libraries that come from elsewhere. Where several rules are about a library, each of them is an alternative."""
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


def _names(entry: Brought) -> tuple[bytes, bytes]:
    """The names that an object may have needed or opened a library by."""
    return (entry.library.soname, os.path.basename(entry.library.path))


def _unlike_static(
    mapped: Sequence[Brought], recorded: Sequence[Recorded], identities: Mapping[bytes, Identity]
) -> list[Finding]:
    """What the loader did differently than each object for itself would have it: the first soname wins."""
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
            {
                "path": text(actual[0].library.path) if actual else "", "soname": text(name),
                "brought_by": actual[0].step if actual else "", "deleted": bool(actual) and actual[0].library.deleted,
                "expected": text(path), "rule": "static", "needed_by": len(objects),
                "reason": "needed by " + ", ".join(text(item) for item in sorted(objects)[:NAMED_NEEDERS]),
            },
        ))
    return findings


def _duplicates(mapped: Sequence[Brought], rules: Rules) -> list[Finding]:
    findings = []
    reported = set()
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


def _groups(mapped: Sequence[Brought], rule: Single) -> dict[str, list[Brought]]:
    """Libraries of which one file may be mapped: under ``*`` those of one soname, else all that match.

    Extension modules are opened by path and never found by their names, so under ``*`` two may be called the same.
    """
    groups: dict[str, list[Brought]] = {}
    for entry in mapped:
        if rule.name != EACH:
            if rule.sonames.fullmatch(entry.name):
                groups.setdefault(rule.name, []).append(entry)
        elif (entry.library.soname or entry.name.startswith("lib")) and not _EXTENSION_MODULE.search(entry.name):
            groups.setdefault(entry.name, []).append(entry)
    return groups


def _forbidden(mapped: Sequence[Brought], rules: Rules, paths: Paths) -> list[Finding]:
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


def _excuse(findings: Sequence[Finding], rules: Rules, paths: Paths) -> Verdict:
    """Take away the findings that ``allow`` excuses. A duplicate is excused when one file is left without them."""
    used = set()
    standing = []
    allowed = []
    for finding in findings:
        excuses = [(_excuse_of(entry, rules, paths), entry) for entry in finding.concerned]
        by = [(number, entry) for number, entry in excuses if number is not None]
        if not by or len(excuses) - len(by) > (1 if finding.kind == DUPLICATES else 0):
            standing.append(finding)
            continue
        used |= {number for number, _entry in by}
        allowed += [
            {
                "kind": finding.kind, "soname": readable(entry.name), "path": text(entry.library.path),
                "reason": rules.allow[number].reason,
            }
            for number, entry in by
        ]
    unused = tuple(
        {"name": rule.name, "path": rule.path, "reason": rule.reason}
        for number, rule in enumerate(rules.allow) if number not in used
    )
    return Verdict(tuple(standing), tuple(allowed), unused)


def _excuse_of(entry: Brought, rules: Rules, paths: Paths) -> int | None:
    for number, rule in enumerate(rules.allow):
        if rule.sonames.fullmatch(entry.name) and (
            rule.paths is None or paths.match(rule.paths, entry.library.path)
        ):
            return number
    return None

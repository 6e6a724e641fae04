# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check what was gathered about the objects of a release by its rules."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Sequence

from ..elf.glibc import System
from ..elf.resolution import CACHE, Searched
from ..elf.search_paths import NO_DIRECTORY, expand
from . import library_findings
from .embedded_copies import search
from .library_findings import Finding, text
from .library_graph import (
    BOTH,
    WITH,
    WITHOUT,
    Dependency,
    DependencyGraph,
)
from .library_rules import LATE, Provider
from .scan_result import Scan

MAX_NAMED = 3  # objects, where many need the same


class LibraryChecks:
    """Make the findings about a scan and what was gathered from it."""

    def __init__(self, found: Scan, graph: DependencyGraph, system: System) -> None:
        self.scan, self.graph, self.system = found, graph, system
        self.rules, self.paths = graph.rules, graph.paths
        self.findings: list[Finding] = []
        self.allowed: list[dict[str, Any]] = []
        self.own_copies: list[dict[str, str]] = []
        self.unused: list[dict[str, str]] = []

    def find_embedded(self, progress: Callable[[int], None]) -> None:
        """Search every ELF file for copies of what only its provider may hold."""
        copies, failed = search(self.scan.elf_files, self.rules.embedded, self.paths, progress, self.scan.identities)
        used: set[int] = set()
        for path, rule, offset, found in copies:
            shown = text(found)[:200]
            own = [one for one in self.rules.allow_embedded
                   if one.name == rule.name and self.paths.match(one.objects, path)]
            if own:
                used.update(map(id, own))
                self.own_copies.append(
                    {"object": text(path), "name": rule.name, "text": shown, "reason": own[0].reason})
                continue
            self.findings.append(Finding(
                "embedded", text(path), rule.name,
                "%s holds a copy of %s: %r at byte %d." % (text(path), rule.name, shown, offset),
                library_findings.embedded_remedy(rule.name, rule.provider),
                details=(("text", shown), ("offset", offset), ("pattern", rule.pattern), ("provider", rule.provider)),
            ))
        self.unused += [
            {"rule": "allow_embedded", "name": rule.name, "reason": rule.reason}
            for rule in self.rules.allow_embedded if id(rule) not in used
        ]
        for path, error in failed:
            self.scan.failed(path, error)

    def check_places(self, entries: Sequence[bytes]) -> None:
        """Check the directories that LD_LIBRARY_PATH and the objects name, also where nothing is found."""
        for entry in entries:
            if not entry.startswith(b"/") and not entry.startswith(b"$"):
                shown = text(entry) or "an empty entry"
                self.findings.append(Finding(
                    "forbidden", "LD_LIBRARY_PATH", "",
                    "LD_LIBRARY_PATH has %s, which means the directory that a user happens to be in." % shown,
                    "Take it out of the environment that the modulefile sets: no colon at its ends, none doubled.",
                    details=(("path", text(entry)), ("rule", "LD_LIBRARY_PATH"), ("reason", "not absolute")),
                ))
            else:
                self._forbid(entry, b"", "LD_LIBRARY_PATH", "LD_LIBRARY_PATH", WITH)
        for item in self.scan.objects:
            for rule, value in (("RPATH", item.facts.rpath), ("RUNPATH", item.facts.runpath)):
                for entry in dict.fromkeys((value or b"").split(b":")):
                    place = expand(entry, os.path.dirname(item.path), self.system)
                    self._forbid(place, item.path, text(item.path), rule, "")

    def _forbid(self, place: bytes, path: bytes, shown: str, rule: str, environment: str) -> None:
        for forbidden in self.rules.forbid if place.startswith(b"/") else ():
            if self.paths.match(forbidden.paths, place):
                self.findings.append(Finding(
                    "forbidden", shown, "",
                    "%s %s %s, from which nothing may come: %s."
                    % (shown, "has the %s" % rule if path else "names", text(place), forbidden.reason.rstrip(".")),
                    library_findings.forbidden_remedy(rule), environment=environment,
                    details=(("path", text(place)), ("rule", rule), ("reason", forbidden.reason)),
                ))
                return

    def check_libraries(self) -> None:
        """Check what every object found, or did not find."""
        excused: dict[tuple[str, str, str], set[str]] = {}
        used: set[int] = set()
        elsewhere = self.scan.by_name()
        for dependency in self.graph.dependencies.values():
            edge, names = dependency.edge, self.graph.names(dependency.edge)
            if edge.path is None:
                for rule in self.rules.allow_missing:
                    if any(map(rule.sonames.fullmatch, names)) and self.paths.match(rule.objects, edge.needer):
                        used.add(id(rule))
                        excused.setdefault((text(edge.name), rule.name, rule.reason), set()).add(text(edge.needer))
                        break
                else:
                    self.findings.append(self._missing(dependency, elsewhere))
                continue
            providers = [rule for rule in self.rules.providers if any(map(rule.sonames.fullmatch, names))]
            used.update(map(id, providers))
            if providers and not any(self.paths.match(provider.paths, edge.path) for provider in providers):
                self.findings.append(self._misplaced(dependency, providers))
            self._forbid_resolution(dependency)
        for (soname, name, reason), needers in sorted(excused.items()):
            objects = {"objects": sorted(needers)[:MAX_NAMED], "objects_total": len(needers)}
            self.allowed.append({"soname": soname, "name": name, "reason": reason, **objects})
        self.unused += [
            {"rule": kind, "name": rule.name, "reason": rule.reason}
            for kind in ("allow_missing", "providers") for rule in getattr(self.rules, kind) if id(rule) not in used
        ]
        self._required()
        self._versions()

    @staticmethod
    def _environment(labels: Iterable[str]) -> str:
        return BOTH if len(set(labels)) > 1 else next(iter(labels))

    def _roots(self, dependency: Dependency) -> tuple[tuple[str, Any], ...]:
        """Tell for whom a library is looked for, where that is not the object that needs it."""
        if dependency.root == dependency.edge.needer:
            return ()
        return (("root", text(dependency.root)), ("roots", max(dependency.roots.values())))

    def _missing(self, dependency: Dependency, elsewhere: dict[bytes, list[bytes]]) -> Finding:
        edge = dependency.edge
        bare_only = None
        if list(dependency.roots) == [WITHOUT] and WITH in self.graph.labels:
            bare_only = next((
                other.edge.path for key, other in self.graph.dependencies.items()
                if key[:2] == (edge.needer, edge.name) and edge.path != key[2] and WITH in other.roots
            ), None)
        skipped = [
            "%s (%s)" % (text(os.path.join(place.directory, edge.name)), place.skipped)
            for place in edge.searched if place.skipped not in ("", NO_DIRECTORY)
        ]
        for_whom = " when %s is loaded" % text(dependency.root) if dependency.root != edge.needer else ""
        return Finding(
            "missing", text(edge.needer), text(edge.name),
            "%s needs %s, which is not found%s." % (text(edge.needer), text(edge.name), for_whom),
            library_findings.missing_remedy(
                text(edge.name), edge.needer, elsewhere.get(os.path.basename(edge.name), ()), bare_only, skipped
            ),
            tuple(map(self._place, edge.searched)), self._environment(dependency.roots), self._roots(dependency),
        )

    def _place(self, place: Searched) -> str:
        """Show a place that was searched to an operator."""
        if place.rule == CACHE and not place.directory:
            return "%s: no entry" % place.rule
        directory = text(self.paths.plain(place.directory)) if place.directory else "the current directory"
        return "%s: %s (%s)" % (place.rule, directory, place.skipped or "no such file")

    def _misplaced(self, dependency: Dependency, providers: Sequence[Provider]) -> Finding:
        edge, declared = dependency.edge, [provider.path for provider in providers]
        path = self.paths.plain(edge.path or b"")
        return Finding(
            "misplaced", text(edge.needer), text(edge.name),
            "%s gets %s from %s (%s), and not from %s."
            % (text(edge.needer), text(edge.name), text(path), edge.rule, " or ".join(declared)),
            library_findings.misplaced_remedy(path, edge.rule, declared),
            environment=self._environment(dependency.roots),
            details=(
                ("path", text(path)), ("rule", edge.rule), ("declared", declared),
                ("reason", " ".join(provider.reason for provider in providers if provider.reason)),
                *self._roots(dependency),
            ),
        )

    def _forbid_resolution(self, dependency: Dependency) -> None:
        edge, path = dependency.edge, dependency.edge.path or b""
        for rule in self.rules.forbid:
            if self.paths.match(rule.paths, path):
                plain = text(self.paths.plain(path))
                self.findings.append(Finding(
                    "forbidden", text(edge.needer), text(edge.name),
                    "%s gets %s from %s (%s), from which nothing may come: %s."
                    % (text(edge.needer), text(edge.name), plain, edge.rule, rule.reason.rstrip(".")),
                    library_findings.forbidden_remedy(edge.rule), environment=self._environment(dependency.roots),
                    details=(("path", plain), ("rule", edge.rule), ("reason", rule.reason), *self._roots(dependency)),
                ))
                return

    def _required(self) -> None:
        for rule in self.rules.require:
            objects = [item for item in self.scan.objects if self.paths.match(rule.objects, item.path)]
            for item in objects:
                labels = self.graph.labels_lacking(rule, item)
                if labels:
                    self.findings.append(Finding(
                        "required", text(item.path), rule.needs,
                        "%s does not need %s, neither itself nor through what it needs: %s."
                        % (text(item.path), rule.needs, rule.reason.rstrip(".")),
                        "Build it again so that the library is linked, and see in the log that the option arrived.",
                        environment=self._environment(labels), details=(("reason", rule.reason),),
                    ))
            if not objects:
                self.findings.append(Finding(
                    "required", rule.object, rule.needs,
                    "No object matches %s, which has to need %s." % (rule.object, rule.needs),
                    "Correct the glob, or build what is missing.", details=(("reason", rule.reason),),
                ))

    def _versions(self) -> None:
        for (needer, library, name, version), labels in self.graph.versions.items():
            path = self.paths.plain(library)
            self.findings.append(Finding(
                "versions", text(needer), text(name),
                "%s needs %s of %s, and %s does not have it." % (text(needer), text(version), text(name), text(path)),
                library_findings.version_remedy(path, text(version)), environment=self._environment(sorted(labels)),
                details=(("version", text(version)), ("path", text(path))),
            ))

    def check_unreadable(self) -> None:
        """List what could not be read, and what the loader gives up at."""
        for (path, problem), labels in self.graph.problems.items():
            self.findings.append(Finding(
                "unreadable", text(path), "", "%s cannot be loaded: %s." % (text(path), problem.rstrip(".")),
                library_findings.problem_remedy(problem), environment=self._environment(sorted(labels)),
                details=(("reason", problem),),
            ))
        for path, reason, code in self.scan.unreadable:
            self.findings.append(Finding(
                "unreadable", text(path), "",
                "%s %s: %s." % (text(path), "cannot be read" if code else "is a broken ELF file", reason.rstrip(".")),
                library_findings.unreadable_remedy(code), details=(("reason", reason),),
            ))

    def providers(self) -> dict[str, list[dict[str, Any]]]:
        """List which files the libraries are, and who needs them."""
        table: dict[str, dict[bytes, tuple[set[str], set[str], set[bytes]]]] = {}
        for dependency in self.graph.dependencies.values():
            if dependency.edge.path is not None:
                files = table.setdefault(text(dependency.edge.name), {})
                rules, labels, needers = files.setdefault(self.paths.plain(dependency.edge.path), (set(), set(), set()))
                rules.add(dependency.edge.rule)
                labels.update(dependency.roots)
                needers.add(dependency.edge.needer)
        providers: dict[str, list[dict[str, Any]]] = {}
        for name in sorted(table):
            rows = providers[name] = []
            for path, (rules, labels, needers) in sorted(table[name].items()):
                row: dict[str, Any] = {
                    "path": text(path), "rule": min(rules, key=lambda rule: (rule in LATE, rule)),
                    "needed_by": len(needers), "first": [text(needer) for needer in sorted(needers)[:MAX_NAMED]],
                }
                if len(labels) < len(self.graph.labels):
                    row["environment"] = next(iter(labels))
                rows.append(row)
        return providers

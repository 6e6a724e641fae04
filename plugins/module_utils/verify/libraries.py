# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Verify that every object below some directories finds every library where it has to come from.

Each object is resolved as its own root, with the LD_LIBRARY_PATH of the release and with none, and so is all that it
brings with it.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, NamedTuple, Sequence

from ..elf.glibc import System
from ..elf.resolution import Plugin
from ..elf.resolver import Loader
from ..elf.search_paths import Files
from .library_checks import LibraryChecks
from .library_findings import KINDS, Finding, text
from .library_graph import (
    WITH,
    WITHOUT,
    DependencyGraph,
    Found,
)
from .library_rules import Rules
from .library_scan import scan
from .scan_result import Scan, Unchecked
from .sealed_libraries import find_unsealed

Progress = Callable[[str, int, int], None]
"""Is told what is done, how far it is, and of how many (0: not known)."""


class Outcome(NamedTuple):
    """Hold what was found; in ``needed``, per object and environment, where each library that it needs itself is."""

    scan: Scan
    findings: list[Finding]
    allowed: list[dict[str, Any]]
    own_copies: list[dict[str, str]]
    unused: list[dict[str, str]]
    not_checked: list[Unchecked]
    providers: dict[str, list[dict[str, Any]]]
    needed: dict[bytes, dict[str, dict[bytes, Found]]]
    seconds: float

    def as_result(self, limit: int) -> dict[str, Any]:
        """Return plain data; each list has at most ``limit`` entries and its total next to it."""
        result: dict[str, Any] = {
            "objects": len(self.scan.objects), "files": self.scan.files, "unopened": self.scan.unopened,
            "excluded": self.scan.excluded, "unused": self.unused, "providers": self.providers, "seconds": self.seconds,
        }
        lists: dict[str, list[Any]] = {kind: [one for one in self.findings if one.kind == kind] for kind in KINDS}
        for kind, listed in lists.items():
            result[kind] = [finding.as_result() for finding in listed[:limit]]
        lists.update(allowed=self.allowed, own_copies=self.own_copies, not_checked=self.not_checked)
        result["allowed"] = self.allowed[:limit]
        result["own_copies"] = self.own_copies[:limit]
        result["not_checked"] = [{"object": text(item.path), "why": item.why} for item in self.not_checked[:limit]]
        return {**result, **{kind + "_total": len(listed) for kind, listed in lists.items()}}


def verify(
    rules: Rules, paths: Sequence[str], system: System | None = None, progress: Progress | None = None
) -> Outcome:
    """Verify everything below some files or directories, for this machine or another ``system``."""
    began = time.perf_counter()
    report: Progress = progress or (lambda what, done, total: None)
    system = system or System.this_machine()
    scanned = scan(
        paths, rules.exclude, system.bits, system.machine, lambda done: report("files", done, 0), rules.unopened
    )
    files = Files(system, scanned.known)
    bare = Loader(system, (), files)
    _exclude_unknown_loaders(scanned, bare)
    graph = DependencyGraph(rules, [item.path for item in scanned.objects])
    plugins = [Plugin(os.fsencode(plugin.caller), os.fsencode(plugin.name)) for plugin in rules.plugins]
    # The loader takes it apart at colons and semicolons; empty as a whole it is none (ld.so(8)).
    entries = os.fsencode(rules.library_path).replace(b";", b":").split(b":") if rules.library_path else []
    passes = [(WITH, Loader(system, entries, files))] if entries else []
    for label, loader in [*passes, (WITHOUT, bare)]:
        for count, item in enumerate(scanned.objects):
            report("objects " + label, count, len(scanned.objects))
            graph.add(label, item, loader.resolve(item.path, rules.preloaded, rules.program, plugins))
    checks = LibraryChecks(scanned, graph, system)
    checks.check_libraries()
    checks.check_places(entries)
    checks.find_embedded(lambda done: report("files searched", done, len(scanned.elf_files)))
    checks.findings.extend(find_unsealed(rules, scanned.objects, graph, system, scanned.known))
    checks.check_unreadable()
    return Outcome(
        scanned, sorted(checks.findings, key=Finding.order), checks.allowed, checks.own_copies, checks.unused,
        sorted(scanned.not_checked), checks.providers(), graph.needed, round(time.perf_counter() - began, 3),
    )


def _exclude_unknown_loaders(scanned: Scan, loader: Loader) -> None:
    """Leave out programs of loaders whose rules are not known, such as those of another C library."""
    checked = []
    for item in scanned.objects:
        reason = loader.unknown(item.facts)
        if reason:
            name = text(item.facts.interpreter or b"")
            scanned.not_checked.append(Unchecked(item.path, "its loader %s is not glibc's: %s" % (name, reason)))
        else:
            checked.append(item)
    scanned.objects = checked

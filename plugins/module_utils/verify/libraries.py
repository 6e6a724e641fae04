# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Every object below some directories finds every library, from where it has to come; or a finding says why not.

Each object is resolved as its own root, with the LD_LIBRARY_PATH of the release and with none, and so is all that it
brings with it.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, NamedTuple, Sequence

from ..elf.resolver import Loader, Plugin, System
from ..elf.search_paths import Files
from .library_checks import Judgement
from .library_findings import KINDS, Finding, text
from .library_graph import (
    WITH,
    WITHOUT,
    Found,
    Gathered,
)
from .library_rules import Rules
from .library_scan import Scan, Unchecked, scan

Progress = Callable[[str, int, int], None]
"""Is told what is done, how far it is, and of how many (0: not known)."""


class Outcome(NamedTuple):
    """What a verification has found.

    ``needed`` has, per object and environment, where each library that it needs itself is found.
    """

    scan: Scan
    findings: list[Finding]
    allowed: list[dict[str, Any]]
    unused: list[dict[str, str]]
    not_checked: list[Unchecked]
    providers: dict[str, list[dict[str, Any]]]
    needed: dict[bytes, dict[str, dict[bytes, Found]]]
    seconds: float

    def as_result(self, limit: int) -> dict[str, Any]:
        """Plain data; each list has at most ``limit`` entries and its total next to it."""
        result: dict[str, Any] = {
            "objects": len(self.scan.objects), "files": self.scan.files, "unopened": self.scan.unopened,
            "excluded": self.scan.excluded, "unused": self.unused, "providers": self.providers, "seconds": self.seconds,
        }
        lists: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        for finding in self.findings:
            lists[finding.kind].append(finding)
        for kind, listed in lists.items():
            result[kind] = [finding.as_result() for finding in listed[:limit]]
        lists.update(allowed=self.allowed, not_checked=self.not_checked)
        result["allowed"] = self.allowed[:limit]
        result["not_checked"] = [
            {"object": text(item.path), "why": item.why} for item in self.not_checked[:limit]
        ]
        result.update({kind + "_total": len(listed) for kind, listed in lists.items()})
        return result


def verify(
    rules: Rules, paths: Sequence[str], system: System | None = None, progress: Progress | None = None
) -> Outcome:
    """Verify everything below some paths.

    Args:
        rules: what has to hold.
        paths: files or directories.
        system: the machine to verify for; this one if None.
        progress: is told how far it is.

    Raises:
        StackError: a path, a preloaded object or the program cannot be looked at.
    """
    began = time.perf_counter()
    told: Progress = progress or (lambda what, done, total: None)
    system = system or System.this_machine()
    found = scan(
        paths, rules.exclude, system.bits, system.machine, lambda done: told("files", done, 0), rules.unopened
    )
    files = Files(system, found.known)
    bare = Loader(system, (), files)
    _set_aside(found, bare)
    gathered = Gathered(rules, [item.path for item in found.objects])
    plugins = [Plugin(os.fsencode(plugin.caller), os.fsencode(plugin.name)) for plugin in rules.plugins]
    # The loader takes it apart at colons and semicolons; empty as a whole it is none (ld.so(8)).
    value = os.fsencode(rules.library_path).replace(b";", b":")
    entries = value.split(b":") if value else []
    passes = [(WITH, Loader(system, entries, files))] if entries else []
    for label, loader in [*passes, (WITHOUT, bare)]:
        for count, item in enumerate(found.objects):
            told("objects " + label, count, len(found.objects))
            gathered.take(label, item, loader.resolve(item.path, rules.preloaded, rules.program, plugins))
    judgement = Judgement(found, gathered, system)
    judgement.look_at_libraries()
    judgement.look_at_places(entries)
    judgement.look_inside(lambda done: told("files searched", done, len(found.elf_files)))
    judgement.look_at_unreadable()
    return Outcome(
        found, sorted(judgement.findings, key=Finding.order), judgement.allowed, judgement.unused,
        sorted(found.not_checked), judgement.providers(), gathered.needed,
        round(time.perf_counter() - began, 3),
    )


def _set_aside(found: Scan, loader: Loader) -> None:
    """Leave out programs of loaders whose rules are not known, such as those of another C library."""
    checked = []
    for item in found.objects:
        reason = loader.unknown(item.facts)
        if reason:
            name = text(item.facts.interpreter or b"")
            found.not_checked.append(Unchecked(item.path, "its loader %s is not glibc's: %s" % (name, reason)))
        else:
            checked.append(item)
    found.objects = checked

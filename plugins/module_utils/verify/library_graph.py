# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Who needs which library and where it is found, gathered from the resolutions of many objects."""

from __future__ import annotations

import contextlib
import os
from typing import Iterable, Iterator, NamedTuple

from ..elf import reader as elf
from ..elf.resolver import Edge, Resolution
from .library_rules import Paths, Requirement, Rules
from .library_scan import Object

WITH, WITHOUT, BOTH = "with LD_LIBRARY_PATH", "without LD_LIBRARY_PATH", "with and without LD_LIBRARY_PATH"

LATE = ("already loaded", "preloaded")
"""Rules that say that a file was there before, and not how it was found."""


class Found(NamedTuple):
    """Where an object finds a library that it needs; None for the path: nowhere."""

    path: bytes | None
    rule: str


class Sight:
    """One object's need of one library, found in one place or nowhere, and for whom it was looked for."""

    def __init__(self, edge: Edge, root: bytes) -> None:
        self.edge = edge
        self.root = root
        self.roots: dict[str, int] = {}

    def add(self, edge: Edge, label: str) -> None:
        """Count one more root; a rule that says how the file was found is kept rather than that it was there."""
        self.roots[label] = self.roots.get(label, 0) + 1
        if self.edge.rule in LATE and edge.rule not in LATE:
            self.edge = self.edge._replace(rule=edge.rule, searched=edge.searched)


def _gives_up(edge: Edge, problem: str) -> bool:
    """Whether a library is there, and is what the loader gives up on: it is not missing then."""
    last = edge.searched[-1] if edge.path is None and edge.searched else None
    return last is not None and problem == "%s: %s" % (os.fsdecode(last.directory), last.skipped)


class Gathered:
    """What objects need, in one or two environments.

    Args:
        rules: tells what has to be remembered.
        objects: what is verified. A needing object that is one of these under another name counts as that.
    """

    def __init__(self, rules: Rules, objects: Iterable[bytes]) -> None:
        self.rules = rules
        self.paths = Paths()
        self.labels: list[str] = []
        self.sights: dict[tuple[bytes, bytes, bytes | None], Sight] = {}
        self.versions: dict[tuple[bytes, bytes, bytes, bytes], set[str]] = {}
        self.needed: dict[bytes, dict[str, dict[bytes, Found]]] = {}
        self.problems: dict[tuple[bytes, str], set[str]] = {}
        self._objects = {self.paths.real(path): path for path in objects}
        self._canonical: dict[bytes, bytes] = {}
        self._facts: dict[bytes, tuple[bytes | None, tuple[bytes, ...]]] = {}
        self._graphs: dict[str, dict[bytes, list[Edge]]] = {}

    def take(self, label: str, item: Object, resolution: Resolution) -> None:
        """Gather what one object resolves to in one environment."""
        if label not in self.labels:
            self.labels.append(label)
        if resolution.problem:
            self.problems.setdefault((item.path, resolution.problem), set()).add(label)
        own: dict[bytes, Found] = {}
        for edge in resolution.edges:
            needer = self._canonical.get(edge.needer) or self.canonical(edge.needer)
            path = edge.path and self.paths.plain(edge.path)
            if needer == item.path:
                own[edge.name] = Found(path, edge.rule)
            if _gives_up(edge, resolution.problem):
                continue
            key = (needer, edge.name, path)
            sight = self.sights.get(key)
            if sight is None:
                sight = self.sights[key] = Sight(edge._replace(needer=needer, path=path), item.path)
            sight.add(edge, label)
        self.needed.setdefault(item.path, {})[label] = own
        for problem in resolution.version_problems:
            if not problem.weak:
                version = (self.canonical(problem.needer), problem.library, problem.name, problem.version)
                self.versions.setdefault(version, set()).add(label)

    def canonical(self, path: bytes) -> bytes:
        """The name of an object: of its links in the same directory, where $ORIGIN is the same, the verified file."""
        found = self._canonical.get(path)
        if found is None:
            found = self.paths.plain(path)
            known = self._objects.get(self.paths.real(found))
            if known is not None and os.path.dirname(known) == os.path.dirname(found):
                found = known
            self._canonical[path] = found
        return found

    def lacking(self, rule: Requirement, item: Object) -> list[str]:
        """The environments in which nothing that an object needs, directly or through it, is what a rule asks for."""
        return [
            label for label in self.labels
            if not any(rule.sonames.fullmatch(name) for name in self._closure(item.path, label))
        ]

    def _closure(self, root: bytes, label: str) -> Iterator[str]:
        """The names of everything that an object needs, directly or through what it needs."""
        edges = self._edges(label)
        pending, seen = [root], {root}
        while pending:
            path = pending.pop()
            if path not in edges:  # mapped before, and not verified itself: what it needs was not followed
                yield from map(os.fsdecode, self._read(path)[1])
            for edge in edges.get(path, ()):
                yield from self.names(edge)
                found = edge.path and self.canonical(edge.path)
                if found and found not in seen:
                    seen.add(found)
                    pending.append(found)

    def _edges(self, label: str) -> dict[bytes, list[Edge]]:
        if label not in self._graphs:
            graph = self._graphs[label] = {}
            for sight in self.sights.values():
                if label in sight.roots:
                    graph.setdefault(sight.edge.needer, []).append(sight.edge)
        return self._graphs[label]

    def names(self, edge: Edge) -> set[str]:
        """What a needed library is called: by who needs it, and by itself."""
        names = {os.fsdecode(edge.name), os.fsdecode(os.path.basename(edge.name))}
        soname = self._read(edge.path)[0] if edge.path is not None else None
        if soname:
            names.add(os.fsdecode(soname))
        return names

    def _read(self, path: bytes) -> tuple[bytes | None, tuple[bytes, ...]]:
        """The soname of an object and the names that it needs."""
        if path not in self._facts:
            facts = None
            with contextlib.suppress(OSError, elf.ElfError):
                facts = elf.read_elf(path)
            self._facts[path] = (facts.soname, facts.needed) if facts else (None, ())
        return self._facts[path]

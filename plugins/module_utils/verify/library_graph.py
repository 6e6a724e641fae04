# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Gather who needs which library and where it is found, from the resolutions of many objects."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Iterable, Iterator, NamedTuple

from ..elf.image import ElfError
from ..elf.reader import read_elf
from ..elf.resolution import Edge, Resolution
from .library_rules import LATE, Requirement, Rules
from .rule_globs import Paths
from .scan_result import Object

WITH, WITHOUT, BOTH = "with LD_LIBRARY_PATH", "without LD_LIBRARY_PATH", "with and without LD_LIBRARY_PATH"


class Found(NamedTuple):
    """Describe where an object finds a library that it needs; None for the path: nowhere."""

    path: bytes | None
    rule: str


class Dependency:
    """Describe one object's need of one library, found in one place or nowhere, and for which roots."""

    def __init__(self, edge: Edge, root: bytes) -> None:
        self.edge = edge
        self.root = root
        self.roots: dict[str, int] = {}

    def add(self, edge: Edge, label: str) -> None:
        """Count one more root; a rule that found the file is kept rather than one that it was there."""
        self.roots[label] = self.roots.get(label, 0) + 1
        if self.edge.rule in LATE and edge.rule not in LATE:
            self.edge = self.edge._replace(rule=edge.rule, searched=edge.searched)


def _is_given_up(edge: Edge, problem: str) -> bool:
    """Tell whether a library is there, and is what the loader gives up on: it is not missing then."""
    last = edge.searched[-1] if edge.path is None and edge.searched else None
    return last is not None and problem == "%s: %s" % (os.fsdecode(last.directory), last.skipped)


class DependencyGraph:
    """Gather what objects need, in one or two environments.

    A needing object that is one of the verified ``objects`` under another name counts as that.
    """

    def __init__(self, rules: Rules, objects: Iterable[bytes]) -> None:
        self.rules = rules
        self.paths = Paths()
        self.labels: list[str] = []
        self.dependencies: dict[tuple[bytes, bytes, bytes | None], Dependency] = {}
        self.versions: dict[tuple[bytes, bytes, bytes, bytes], set[str]] = {}
        self.needed: dict[bytes, dict[str, dict[bytes, Found]]] = {}
        self.problems: dict[tuple[bytes, str], set[str]] = {}
        self._objects = {self.paths.real(path): path for path in objects}
        self.canonical = functools.lru_cache(maxsize=None)(self._canonical)
        self._read = functools.lru_cache(maxsize=None)(_read)
        self._edges = functools.lru_cache(maxsize=None)(self._edges_of)

    def add(self, label: str, item: Object, resolution: Resolution) -> None:
        """Gather what one object resolves to in one environment."""
        if label not in self.labels:
            self.labels.append(label)
        if resolution.problem:
            self.problems.setdefault((item.path, resolution.problem), set()).add(label)
        own: dict[bytes, Found] = {}
        for edge in resolution.edges:
            needer = self.canonical(edge.needer)
            path = edge.path and self.paths.plain(edge.path)
            if needer == item.path:
                own[edge.name] = Found(path, edge.rule)
            if _is_given_up(edge, resolution.problem):
                continue
            key = (needer, edge.name, path)
            if key not in self.dependencies:
                self.dependencies[key] = Dependency(edge._replace(needer=needer, path=path), item.path)
            self.dependencies[key].add(edge, label)
        self.needed.setdefault(item.path, {})[label] = own
        for problem in resolution.version_problems:
            if not problem.weak:
                version = (self.canonical(problem.needer), problem.library, problem.name, problem.version)
                self.versions.setdefault(version, set()).add(label)

    def _canonical(self, path: bytes) -> bytes:
        """Return the name of an object; of links in one directory, where $ORIGIN is the same, the verified file."""
        found = self.paths.plain(path)
        known = self._objects.get(self.paths.real(found))
        return known if known is not None and os.path.dirname(known) == os.path.dirname(found) else found

    def labels_lacking(self, rule: Requirement, item: Object) -> list[str]:
        """List the environments in which an object needs nothing, at any depth, that a rule asks for."""
        return [
            label for label in self.labels
            if not any(rule.sonames.fullmatch(name) for name in self._closure(item.path, label))
        ]

    def _closure(self, root: bytes, label: str) -> Iterator[str]:
        """Yield the names of everything that an object needs, directly or through what it needs."""
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

    def _edges_of(self, label: str) -> dict[bytes, list[Edge]]:
        graph: dict[bytes, list[Edge]] = {}
        for dependency in self.dependencies.values():
            if label in dependency.roots:
                graph.setdefault(dependency.edge.needer, []).append(dependency.edge)
        return graph

    def names(self, edge: Edge) -> set[str]:
        """Return what a needed library is called: by who needs it, and by itself."""
        names = {os.fsdecode(edge.name), os.fsdecode(os.path.basename(edge.name))}
        soname = self._read(edge.path)[0] if edge.path is not None else None
        if soname:
            names.add(os.fsdecode(soname))
        return names


def _read(path: bytes) -> tuple[bytes | None, tuple[bytes, ...]]:
    """Return the soname of an object and the names that it needs."""
    facts = None
    with contextlib.suppress(OSError, ElfError):
        facts = read_elf(path)
    return (facts.soname, facts.needed) if facts else (None, ())

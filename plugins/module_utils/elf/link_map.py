# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A process as the dynamic loader fills it: the objects mapped so far, by their names, and where each one searches."""

from __future__ import annotations

import collections
import os
from typing import NamedTuple, Sequence

from .reader import ET_EXEC, ElfObject
from .resolution import (
    CACHE,
    DEFAULT,
    DIRECT,
    ENVIRONMENT,
    LOADED,
    PRELOADED,
    RPATH,
    RPATH_OF,
    RUNPATH,
    Edge,
    Searched,
)
from .search_paths import (
    MAX_PASSED,
    Candidate,
    Files,
    Hit,
    SearchPath,
    expand,
    split_path,
)


class Rpaths:
    """The RPATH of one object and, through ``parent``, those of the objects that brought it."""

    def __init__(self, owner: bytes, path: SearchPath, parent: Rpaths | None) -> None:
        self.owner = owner
        self.path = path
        self.parent = parent


class Found(NamedTuple):
    """The end of all searches for one name."""

    path: bytes | None
    candidate: Candidate
    rule: str
    searched: tuple[Searched, ...]


class Searches:
    """Where one object looks for what it needs, all rules in order; shared by the processes that map it alike.

    Args:
        files: the file system of a loader.
        path, elf: the object.
        parent: RPATHs of the objects that brought it.
        environment: the directories of LD_LIBRARY_PATH.
    """

    def __init__(
        self, files: Files, path: bytes, elf: ElfObject, parent: Rpaths | None, environment: SearchPath
    ) -> None:
        self.origin = os.path.dirname(path if path.startswith(b"/") else os.path.join(os.getcwdb(), path)) or b"/"
        self.path = path
        self.rpaths = parent
        self._files = files
        self._system = files.system
        self._nodeflib = elf.nodeflib
        self._has_runpath = elf.runpath is not None
        self._environment = environment
        self._runpath = self._split(elf.runpath)
        own = None if self._has_runpath else self._split(elf.rpath)
        if own is not None:
            self.rpaths = Rpaths(path, own, parent)
        self._found: dict[bytes, Found] = {}

    def _split(self, text: bytes | None) -> SearchPath | None:
        directories = split_path(text or b"", b":", self.origin, self._system)
        return self._files.search_path(directories) if directories else None

    def find(self, name: bytes) -> Found:
        """The file that the loader takes for a name that no mapped object has; the answer is remembered."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._find(name)
        return found

    def _find(self, name: bytes) -> Found:
        searched: list[Searched] = []
        if b"/" in name:
            candidate = self._files.candidate(name)
            return self._end(DIRECT, Hit(name, candidate, ()), searched)
        cell = None if self._has_runpath else self.rpaths
        while cell is not None:
            rule = RPATH if cell.owner == self.path else RPATH_OF % os.fsdecode(cell.owner)
            found = self._end(rule, cell.path.search(name), searched)
            if found.rule:
                return found
            cell = cell.parent
        for rule, path in ((ENVIRONMENT, self._environment), (RUNPATH, self._runpath)):
            if path is not None:
                found = self._end(rule, path.search(name), searched)
                if found.rule:
                    return found
        return self._find_in_system(name, searched)

    def _find_in_system(self, name: bytes, searched: list[Searched]) -> Found:
        cached = self._system.cached(name)
        if cached is None:
            searched.append(Searched(CACHE, b"", ""))
        elif self._nodeflib and cached.startswith(self._system.default_directories):
            searched.append(Searched(CACHE, cached, "in a default directory, which the object leaves out (NODEFLIB)"))
        else:
            found = self._end(CACHE, Hit(cached, self._files.candidate(cached), ()), searched)
            if found.rule:
                return found
        if self._nodeflib:
            return Found(None, Candidate(), "", tuple(searched))
        path = self._files.search_path(self._system.default_directories)
        return self._end(DEFAULT, path.search(name), searched)

    def _end(self, rule: str, hit: Hit, searched: list[Searched]) -> Found:
        """What a hit ends in: a rule where the search is over."""
        room = max(0, MAX_PASSED - len(searched))
        searched += [self._files.row(rule, directory, skipped) for directory, skipped in hit.passed[:room]]
        if hit.path is not None:
            if hit.candidate.problem:
                searched.append(Searched(rule, hit.path, hit.candidate.problem))
                return Found(hit.path, hit.candidate, rule, tuple(searched))
            if hit.candidate.elf is not None:
                return Found(hit.path, hit.candidate, rule, tuple(searched))
            searched.append(Searched(rule, hit.path, hit.candidate.skipped))
        return Found(None, Candidate(), "", tuple(searched))


class Mapped:
    """One object in a process.

    Attributes:
        path: as the loader names it, and prints it.
        name: by which it was first asked for.
        elf, identity: the object, and its device and inode.
        searches: where it looks.
        edges, targets: what it needs, and the objects which these are; None before it was its turn.
    """

    def __init__(
        self, path: bytes, name: bytes, elf: ElfObject, identity: tuple[int, int] | None, searches: Searches
    ) -> None:
        self.path = path
        self.name = name
        self.elf = elf
        self.identity = identity
        self.searches = searches
        self.edges: tuple[Edge, ...] | None = None
        self.targets: tuple[Mapped, ...] = ()


class Process:
    """The objects that a loader has mapped so far.

    Args:
        files: the file system of a loader.
        contexts: where :class:`Searches` are kept for all processes.
        environment: the text of LD_LIBRARY_PATH.
        origin: the main program's directory, which is $ORIGIN there.
    """

    def __init__(
        self, files: Files, contexts: dict[tuple[object, ...], Searches], environment: bytes, origin: bytes
    ) -> None:
        self.problem = ""
        self.missing: set[bytes] = set()
        self.base: Rpaths | None = None
        self._files = files
        self._contexts = contexts
        self._environment = files.search_path(split_path(environment, b":;", origin, files.system))
        self._names: dict[bytes, Mapped] = {}
        self._sonames: dict[bytes, Mapped] = {}
        self._identities: dict[tuple[int, int], Mapped] = {}
        self._before: set[int] = set()

    def continued(self) -> Process:
        """A process in which the same is mapped, and more can be; what is there counts as preloaded."""
        other = Process.__new__(Process)
        other.__dict__.update(self.__dict__)
        other.missing = set(self.missing)
        other._names, other._sonames = dict(self._names), dict(self._sonames)
        other._identities = dict(self._identities)
        other._before = {id(mapped) for mapped in self._names.values()}
        return other

    def map_main(self, path: bytes, elf: ElfObject) -> Mapped:
        """The main program; it has no name, and is not found by device and inode."""
        main = Mapped(path, b"", elf, None, self._searches(path, elf, None))
        self.base = main.searches.rpaths
        self._enter(main, (b"",))
        return main

    def map_interpreter(self, path: bytes, name: bytes, elf: ElfObject) -> None:
        """The loader itself, which is there from the start."""
        mapped = Mapped(path, name, elf, None, self._searches(path, elf, None))
        mapped.edges = ()
        self._enter(mapped, (name, path))

    def named(self, name: bytes) -> Mapped | None:
        """The object that has a name, as the loader looks for it when it compares symbol versions."""
        return self._names.get(name)

    def open(self, path: bytes, elf: ElfObject, identity: tuple[int, int] | None) -> Mapped:
        """An object that the program opens by its path, with all that it needs."""
        mapped = self._match(path) or (self._identities.get(identity) if identity else None)
        if mapped is None:
            mapped = Mapped(path, path, elf, identity, self._searches(path, elf, self.base))
            self._enter(mapped, (path,))
        self.complete(mapped)
        return mapped

    def open_plugin(self, caller: Mapped, name: bytes) -> tuple[Edge, Mapped | None]:
        """A library that an object opens by name, searched for as from that object; a failure is not the end."""
        edge, mapped = self._edge(caller, expand(name, caller.searches.origin, self._files.system), self.base)
        if mapped is not None:
            self.complete(mapped)
        self.problem = ""
        return edge, mapped

    def complete(self, root: Mapped) -> list[Mapped]:
        """Map all that an object needs, breadth first; the order is the loader's order of search for symbols."""
        order: list[Mapped] = []
        waiting = collections.deque([root])
        seen = {id(root)}
        while waiting:
            mapped = waiting.popleft()
            order.append(mapped)
            if mapped.edges is None:
                self._need(mapped)
            for target in mapped.targets:
                if id(target) not in seen:
                    seen.add(id(target))
                    waiting.append(target)
            if self.problem:
                break
        return [*order, *waiting]

    def _need(self, mapped: Mapped) -> None:
        edges = []
        targets = []
        elf, searches = mapped.elf, mapped.searches
        for name in elf.needed + elf.filters + elf.auxiliaries:
            expanded = expand(name, searches.origin, self._files.system)
            edge, target = self._edge(mapped, expanded, searches.rpaths)
            if self.problem and name in elf.auxiliaries:
                self.problem = ""
            elif target is not None or name not in elf.auxiliaries:
                edges.append(edge)
            if target is not None:
                targets.append(target)
            if self.problem:
                break
        mapped.edges = tuple(edges)
        mapped.targets = tuple(targets)

    def _edge(self, needer: Mapped, name: bytes, rpaths: Rpaths | None) -> tuple[Edge, Mapped | None]:
        existing = self._match(name)
        if existing is not None:
            return self._existing(needer, name, existing, ()), existing
        found = needer.searches.find(name)
        if found.path is None:
            self.missing.add(name)
            return Edge(needer.path, name, None, "", found.searched), None
        candidate = found.candidate
        existing = self._identities.get(candidate.identity) if candidate.identity else None
        if existing is not None:
            self._names.setdefault(name, existing)
            return self._existing(needer, name, existing, found.searched), existing
        problem = candidate.problem or self._refusal(candidate.elf)
        if problem or candidate.elf is None:
            self.problem = "%s: %s" % (os.fsdecode(found.path), problem)
            searched = found.searched
            if not candidate.problem:
                searched += (Searched(found.rule, found.path, problem),)
            return Edge(needer.path, name, None, "", searched), None
        elf = candidate.elf
        mapped = Mapped(found.path, name, elf, candidate.identity, self._searches(found.path, elf, rpaths))
        self._enter(mapped, (name, found.path))
        return Edge(needer.path, name, found.path, found.rule, found.searched), mapped

    def _existing(self, needer: Mapped, name: bytes, mapped: Mapped, searched: tuple[Searched, ...]) -> Edge:
        return Edge(needer.path, name, mapped.path, PRELOADED if id(mapped) in self._before else LOADED, searched)

    def _refusal(self, elf: ElfObject | None) -> str:
        """Why the loader does not map an object as a library, in its words."""
        if elf is None or elf.kind == ET_EXEC:
            return "cannot dynamically load executable"
        if not elf.dynamic:
            return "object file has no dynamic section"
        if elf.pie and self._files.system.glibc >= (2, 30):
            return "cannot dynamically load position-independent executable"
        return ""

    def _match(self, name: bytes) -> Mapped | None:
        """The first mapped object with a name; a soname that was asked for becomes one of its names."""
        found = self._names.get(name)
        if found is None:
            found = self._sonames.get(name)
            if found is not None:
                self._names[name] = found
        return found

    def _searches(self, path: bytes, elf: ElfObject, parent: Rpaths | None) -> Searches:
        key = (path, parent, self._environment)
        searches = self._contexts.get(key)
        if searches is None:
            searches = self._contexts[key] = Searches(self._files, path, elf, parent, self._environment)
        return searches

    def _enter(self, mapped: Mapped, names: Sequence[bytes]) -> None:
        for name in names:
            self._names.setdefault(name, mapped)
        if mapped.elf.soname is not None:
            self._sonames.setdefault(mapped.elf.soname, mapped)
        if mapped.identity is not None:
            self._identities.setdefault(mapped.identity, mapped)

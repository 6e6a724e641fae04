# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Fill a process as the dynamic loader does: the objects mapped so far, by their names."""

from __future__ import annotations

import collections
import dataclasses
import os
from typing import Sequence

from .elf_object import ET_EXEC, ElfObject
from .library_search import ObjectSearch, RpathChain
from .resolution import (
    LOADED,
    PRELOADED,
    Edge,
    Searched,
)
from .search_paths import (
    Files,
    expand,
    split_path,
)


@dataclasses.dataclass(eq=False)
class Mapped:
    """Describe one object in a process.

    Attributes:
        path: as the loader names it, and prints it.
        name: by which it was first asked for.
        identity: its device and inode.
        edges, targets: what it needs, and the objects which these are; None before it was its turn.
    """

    path: bytes
    name: bytes
    elf: ElfObject
    identity: tuple[int, int] | None
    searches: ObjectSearch
    edges: tuple[Edge, ...] | None = None
    targets: tuple[Mapped, ...] = ()


class LinkMap:
    """Hold the objects that a loader has mapped so far.

    Args:
        contexts: where :class:`ObjectSearch` are kept for all processes.
        environment: the text of LD_LIBRARY_PATH.
        origin: the main program's directory, which is $ORIGIN there.
    """

    def __init__(
        self, files: Files, contexts: dict[tuple[object, ...], ObjectSearch], environment: bytes, origin: bytes
    ) -> None:
        self.problem = ""
        self.missing: set[bytes] = set()
        self.base: RpathChain | None = None
        self._files = files
        self._contexts = contexts
        self._environment = files.search_path(split_path(environment, b":;", origin, files.system))
        self._names: dict[bytes, Mapped] = {}
        self._sonames: dict[bytes, Mapped] = {}
        self._identities: dict[tuple[int, int], Mapped] = {}
        self._before: set[int] = set()

    def continued(self) -> LinkMap:
        """Copy the process, to map more; what is there counts as preloaded."""
        other = LinkMap.__new__(LinkMap)
        other.__dict__.update(self.__dict__)
        other.missing = set(self.missing)
        other._names, other._sonames = dict(self._names), dict(self._sonames)
        other._identities = dict(self._identities)
        other._before = {id(mapped) for mapped in self._names.values()}
        return other

    def map_main(self, path: bytes, elf: ElfObject) -> Mapped:
        """Map the main program; it has no name, and is not found by device and inode."""
        main = Mapped(path, b"", elf, None, self._searches(path, elf, None))
        self.base = main.searches.rpaths
        self._enter(main, (b"",))
        return main

    def map_interpreter(self, path: bytes, name: bytes, elf: ElfObject) -> None:
        """Map the loader itself, which is there from the start."""
        self._enter(Mapped(path, name, elf, None, self._searches(path, elf, None), edges=()), (name, path))

    def named(self, name: bytes) -> Mapped | None:
        """Return the object of a name, as the loader looks for it to compare symbol versions."""
        return self._names.get(name)

    def open(self, path: bytes, elf: ElfObject, identity: tuple[int, int] | None) -> Mapped:
        """Open an object by its path, with all that it needs."""
        mapped = self._match(path) or (self._identities.get(identity) if identity else None)
        if mapped is None:
            mapped = Mapped(path, path, elf, identity, self._searches(path, elf, self.base))
            self._enter(mapped, (path,))
        self.complete(mapped)
        return mapped

    def open_plugin(self, caller: Mapped, name: bytes) -> tuple[Edge, Mapped | None]:
        """Open a library by name, searched for as from the object that opens it; a failure is not the end."""
        edge, mapped = self._edge(caller, expand(name, caller.searches.origin, self._files.system), self.base)
        if mapped is not None:
            self.complete(mapped)
        self.problem = ""
        return edge, mapped

    def complete(self, root: Mapped) -> list[Mapped]:
        """Map all that an object needs, breadth first, which is the loader's order for symbols."""
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
        edges, targets = [], []
        elf, searches = mapped.elf, mapped.searches
        # Only the entries of DT_AUXILIARY may fail: the same name is a must where DT_NEEDED has it too.
        required = len(elf.needed) + len(elf.filters)
        for place, name in enumerate(elf.needed + elf.filters + elf.auxiliaries):
            may_fail = place >= required
            edge, target = self._edge(mapped, expand(name, searches.origin, self._files.system), searches.rpaths)
            if self.problem and may_fail:
                self.problem = ""
            elif target is not None or not may_fail:
                edges.append(edge)
            if target is not None:
                targets.append(target)
            if self.problem:
                break
        mapped.edges, mapped.targets = tuple(edges), tuple(targets)

    def _edge(self, needer: Mapped, name: bytes, rpaths: RpathChain | None) -> tuple[Edge, Mapped | None]:
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
        """Tell why the loader does not map an object as a library, in its words."""
        if elf is None or elf.kind == ET_EXEC:
            return "cannot dynamically load executable"
        if not elf.dynamic:
            return "object file has no dynamic section"
        if elf.pie and self._files.system.glibc >= (2, 30):
            return "cannot dynamically load position-independent executable"
        return ""

    def _match(self, name: bytes) -> Mapped | None:
        """Find the first mapped object with a name; a soname that was asked for becomes one of its names."""
        if name not in self._names and name in self._sonames:
            self._names[name] = self._sonames[name]
        return self._names.get(name)

    def _searches(self, path: bytes, elf: ElfObject, parent: RpathChain | None) -> ObjectSearch:
        key = (path, parent, self._environment)
        if key not in self._contexts:
            self._contexts[key] = ObjectSearch(self._files, path, elf, parent, self._environment)
        return self._contexts[key]

    def _enter(self, mapped: Mapped, names: Sequence[bytes]) -> None:
        for name in names:
            self._names.setdefault(name, mapped)
        if mapped.elf.soname is not None:
            self._sonames.setdefault(mapped.elf.soname, mapped)
        if mapped.identity is not None:
            self._identities.setdefault(mapped.identity, mapped)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the file that the dynamic loader takes for a name that one object needs."""

from __future__ import annotations

import os
from typing import NamedTuple

from .elf_object import ElfObject
from .resolution import CACHE, DEFAULT, DIRECT, ENVIRONMENT, RPATH, RPATH_OF, RUNPATH, Searched
from .search_paths import MAX_PASSED, Candidate, Files, Hit, SearchPath, split_path


class RpathChain:
    """Hold the RPATH of one object and, through ``parent``, those of the objects that brought it."""

    def __init__(self, owner: bytes, path: SearchPath, parent: RpathChain | None) -> None:
        self.owner = owner
        self.path = path
        self.parent = parent


class SearchResult(NamedTuple):
    """Describe the end of all searches for one name."""

    path: bytes | None
    candidate: Candidate
    rule: str
    searched: tuple[Searched, ...]


class ObjectSearch:
    """Search what one object needs by all rules in order; shared by processes that map it alike.

    Args:
        files: the file system of a loader.
        path, elf: the object.
        parent: RPATHs of the objects that brought it.
        environment: the directories of LD_LIBRARY_PATH.
    """

    def __init__(
        self, files: Files, path: bytes, elf: ElfObject, parent: RpathChain | None, environment: SearchPath
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
            self.rpaths = RpathChain(path, own, parent)
        self._found: dict[bytes, SearchResult] = {}

    def _split(self, text: bytes | None) -> SearchPath | None:
        directories = split_path(text or b"", b":", self.origin, self._system)
        return self._files.search_path(directories) if directories else None

    def find(self, name: bytes) -> SearchResult:
        """Find the file that the loader takes for a name that no mapped object has; it is remembered."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._find(name)
        return found

    def _find(self, name: bytes) -> SearchResult:
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

    def _find_in_system(self, name: bytes, searched: list[Searched]) -> SearchResult:
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
            return SearchResult(None, Candidate(), "", tuple(searched))
        path = self._files.search_path(self._system.default_directories)
        return self._end(DEFAULT, path.search(name), searched)

    def _end(self, rule: str, hit: Hit, searched: list[Searched]) -> SearchResult:
        """Turn a hit into a result: it has a rule where the search is over."""
        room = max(0, MAX_PASSED - len(searched))
        searched += [self._files.shared_record(rule, directory, skipped) for directory, skipped in hit.passed[:room]]
        if hit.path is not None:
            if hit.candidate.problem:
                searched.append(Searched(rule, hit.path, hit.candidate.problem))
                return SearchResult(hit.path, hit.candidate, rule, tuple(searched))
            if hit.candidate.elf is not None:
                return SearchResult(hit.path, hit.candidate, rule, tuple(searched))
            searched.append(Searched(rule, hit.path, hit.candidate.skipped))
        return SearchResult(None, Candidate(), "", tuple(searched))

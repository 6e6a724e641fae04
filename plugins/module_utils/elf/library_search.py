# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the file that the dynamic loader takes for a name that one object needs."""

from __future__ import annotations

import functools
import os
from typing import Iterator, NamedTuple

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

    ``parent`` are the RPATHs of the objects that brought it, ``environment`` the directories of LD_LIBRARY_PATH.
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
        self.find = functools.lru_cache(maxsize=None)(self._find)

    def _split(self, text: bytes | None) -> SearchPath | None:
        directories = split_path(text or b"", b":", self.origin, self._system)
        return self._files.search_path(directories) if directories else None

    def _find(self, name: bytes) -> SearchResult:
        """Find the file that the loader takes for a name that no mapped object has."""
        searched: list[Searched] = []
        if b"/" in name:
            candidate = self._files.candidate(name)
            return self._end(DIRECT, Hit(name, candidate, ()), searched)
        for rule, path in self._paths():
            found = self._end(rule, path.search(name), searched)
            if found.rule:
                return found
        return self._find_in_system(name, searched)

    def _paths(self) -> Iterator[tuple[str, SearchPath]]:
        cell = None if self._has_runpath else self.rpaths
        while cell is not None:
            yield RPATH if cell.owner == self.path else RPATH_OF % os.fsdecode(cell.owner), cell.path
            cell = cell.parent
        yield ENVIRONMENT, self._environment
        if self._runpath is not None:
            yield RUNPATH, self._runpath

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
        return self._end(DEFAULT, self._files.search_path(self._system.default_directories).search(name), searched)

    def _end(self, rule: str, hit: Hit, searched: list[Searched]) -> SearchResult:
        """Turn a hit into a result: it has a rule where the search is over."""
        room = max(0, MAX_PASSED - len(searched))
        searched += [self._files.shared_record(rule, directory, skipped) for directory, skipped in hit.passed[:room]]
        elf, problem = hit.candidate.elf, hit.candidate.problem
        if hit.path is not None and (problem or elf is None):
            searched.append(Searched(rule, hit.path, problem or hit.candidate.skipped))
        if hit.path is None or not (problem or elf):
            return SearchResult(None, Candidate(), "", tuple(searched))
        return SearchResult(hit.path, hit.candidate, rule, tuple(searched))

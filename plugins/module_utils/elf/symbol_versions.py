# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Symbol versions that objects want of each other, compared as the dynamic loader does before it relocates.

The source of the rules is glibc's ``elf/dl-version.c``: a wanted version that the library does not define is an error
unless it is weak; a library that defines no versions at all only makes the loader warn.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .link_map import Mapped, Process
from .reader import ElfObject, VersionNeed
from .resolution import VersionProblem


class Verdict(NamedTuple):
    """What the comparison of objects found; ``problem`` where the loader itself would stop."""

    missing: tuple[VersionProblem, ...] = ()
    unversioned: tuple[VersionProblem, ...] = ()
    problem: str = ""


class Versions:
    """Comparisons of two objects, each made once."""

    def __init__(self) -> None:
        self._wanted: dict[bytes, dict[bytes, list[VersionNeed]]] = {}
        self._defined: dict[bytes, frozenset[bytes]] = {}
        self._verdicts: dict[tuple[bytes, bytes, bytes], Verdict] = {}

    def check(self, process: Process, objects: list[Mapped]) -> Verdict:
        """The symbol versions that objects of a process want."""
        missing: list[VersionProblem] = []
        unversioned: list[VersionProblem] = []
        problem = ""
        for mapped in objects:
            for library, needs in self._by_library(mapped).items():
                provider = process.named(library)
                if provider is None:
                    if library not in process.missing:
                        problem = problem or (
                            "%s wants symbol versions of %s, which it does not need: the loader ends with an assertion"
                            % (os.fsdecode(mapped.path), os.fsdecode(library))
                        )
                    continue
                key = (mapped.path, library, provider.path)
                verdict = self._verdicts.get(key)
                if verdict is None:
                    verdict = self._verdicts[key] = self._compare(mapped, provider, needs)
                missing += verdict.missing
                unversioned += verdict.unversioned
        return Verdict(tuple(missing), tuple(unversioned), problem)

    def _compare(self, mapped: Mapped, provider: Mapped, needs: list[VersionNeed]) -> Verdict:
        problems = tuple(
            VersionProblem(mapped.path, provider.path, need.library, need.version, need.weak)
            for need in needs
            if need.version not in self._definitions(provider.path, provider.elf)
        )
        return Verdict(missing=problems) if provider.elf.version_definitions else Verdict(unversioned=problems)

    def _definitions(self, path: bytes, elf: ElfObject) -> frozenset[bytes]:
        found = self._defined.get(path)
        if found is None:
            found = self._defined[path] = frozenset(elf.version_definitions)
        return found

    def _by_library(self, mapped: Mapped) -> dict[bytes, list[VersionNeed]]:
        found = self._wanted.get(mapped.path)
        if found is None:
            found = self._wanted[mapped.path] = {}
            for need in mapped.elf.version_needs:
                found.setdefault(need.library, []).append(need)
        return found

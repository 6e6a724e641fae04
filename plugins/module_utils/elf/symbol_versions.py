# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the symbol versions that objects want of each other, as the dynamic loader does.

The source of the rules is glibc's ``elf/dl-version.c``: a wanted version that the library does not define is an error
unless it is weak; a library that defines no versions at all only makes the loader warn.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .elf_object import VersionNeed
from .link_map import LinkMap, Mapped
from .resolution import VersionProblem


class VersionCheck(NamedTuple):
    """Describe what the comparison of objects found; ``problem`` where the loader itself would stop."""

    missing: tuple[VersionProblem, ...] = ()
    unversioned: tuple[VersionProblem, ...] = ()
    problem: str = ""


class VersionChecks:
    """Compare objects two by two, each pair once."""

    def __init__(self) -> None:
        self._wanted: dict[bytes, dict[bytes, list[VersionNeed]]] = {}
        self._checks: dict[tuple[bytes, bytes, bytes], VersionCheck] = {}

    def check(self, process: LinkMap, objects: list[Mapped]) -> VersionCheck:
        """Check the symbol versions that objects of a process want."""
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
                if key not in self._checks:
                    self._checks[key] = self._compare(mapped, provider, needs)
                missing += self._checks[key].missing
                unversioned += self._checks[key].unversioned
        return VersionCheck(tuple(missing), tuple(unversioned), problem)

    @staticmethod
    def _compare(mapped: Mapped, provider: Mapped, needs: list[VersionNeed]) -> VersionCheck:
        defined = frozenset(provider.elf.version_definitions)
        problems = tuple(
            VersionProblem(mapped.path, provider.path, need.library, need.version, need.weak)
            for need in needs
            if need.version not in defined
        )
        return VersionCheck(missing=problems) if defined else VersionCheck(unversioned=problems)

    def _by_library(self, mapped: Mapped) -> dict[bytes, list[VersionNeed]]:
        found = self._wanted.get(mapped.path)
        if found is None:
            found = self._wanted[mapped.path] = {}
            for need in mapped.elf.version_needs:
                found.setdefault(need.library, []).append(need)
        return found

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find objects that would take a library from a directory that a user has first in LD_LIBRARY_PATH.

Every object is resolved once more, with a directory in front that has a library of each name which is asked about. It
is on no disk: what it could hold is what any user could have.
"""

from __future__ import annotations

import os
from typing import Iterable, Iterator, Mapping

from ..elf.elf_object import ET_DYN, ElfObject
from ..elf.glibc import System
from ..elf.reader import Identity
from ..elf.resolution import CACHE, DEFAULT, ENVIRONMENT, RUNPATH, Edge, Plugin
from ..elf.resolver import Loader
from ..elf.search_paths import Candidate, Files
from .library_findings import Finding, text
from .library_graph import DependencyGraph, Found
from .library_rules import Rules, Sealed
from .scan_result import Object

USERS = b"/directory-of-the-user/"
_AFTER = {
    RUNPATH: "a RUNPATH comes after LD_LIBRARY_PATH",
    CACHE: "the system's libraries come after LD_LIBRARY_PATH",
    DEFAULT: "the system's directories come after LD_LIBRARY_PATH",
}


class UserFiles(Files):
    """See the file system as a user does who has a library of each sealed name."""

    def __init__(self, system: System, known: Mapping[Identity, ElfObject], sealed: Iterable[Sealed]) -> None:
        super().__init__(system, known)
        self.sealed = tuple(sealed)

    def _list_searched(self, directory: bytes) -> tuple[tuple[bytes, frozenset[bytes] | None], ...]:
        return ((directory, None),) if directory == USERS else super()._list_searched(directory)

    def _examine(self, path: bytes) -> Candidate:
        if not path.startswith(USERS):
            return super()._examine(path)
        name = path[len(USERS):]
        if rule_of(self.sealed, name) is None:
            return Candidate()
        system = self.system
        return Candidate(ElfObject(
            system.bits, system.little_endian, system.machine, ET_DYN, os_abi=0, flags=0, dynamic=True, soname=name))


def rule_of(sealed: Iterable[Sealed], name: bytes) -> Sealed | None:
    """Return the first rule that seals a library, by the name that is asked for."""
    return next((rule for rule in sealed if rule.sonames.fullmatch(os.fsdecode(os.path.basename(name)))), None)


def find_unsealed(
    rules: Rules, objects: Iterable[Object], graph: DependencyGraph, system: System,
    known: Mapping[Identity, ElfObject],
) -> Iterator[Finding]:
    """Yield a finding for each object and library for which the user's directory comes first."""
    if not rules.sealed:
        return
    loader = Loader(system, (USERS,), UserFiles(system, known, rules.sealed))
    plugins = [Plugin(os.fsencode(plugin.caller), os.fsencode(plugin.name)) for plugin in rules.plugins]
    taken: dict[tuple[bytes, bytes], Edge] = {}
    for item in objects:
        for edge in loader.resolve(item.path, rules.preloaded, rules.program, plugins).edges:
            if edge.path is not None and edge.path.startswith(USERS) and not edge.needer.startswith(USERS):
                key = (graph.canonical(edge.needer), edge.name)
                if key not in taken or edge.rule == ENVIRONMENT:
                    taken[key] = edge
    # What another object has mapped before is that one's fault, where it is verified, too.
    first = {name for (_needer, name), edge in taken.items() if edge.rule == ENVIRONMENT}
    found = {key[:2]: Found(one.edge.path, one.edge.rule) for key, one in graph.dependencies.items()}
    for (needer, name), edge in taken.items():
        rule = rule_of(rules.sealed, name)
        if rule is not None and (edge.rule == ENVIRONMENT or name not in first):
            yield _finding(needer, name, rule, found.get((needer, name)))


def _finding(needer: bytes, name: bytes, rule: Sealed, found: Found | None) -> Finding:
    after = _AFTER.get(found.rule if found else "", "")
    without = " Without it, it is %s (%s)." % (text(found.path), found.rule) if found and found.path else ""
    return Finding(
        "unsealed", text(needer), text(name),
        "%s takes %s from any directory that a user has in LD_LIBRARY_PATH%s: %s.%s" % (
            text(needer), text(name), ", as %s" % after if after else "", rule.reason.rstrip("."), without),
        "Link it with an RPATH to the library's directory, which comes before LD_LIBRARY_PATH: "
        "-Wl,--disable-new-dtags -Wl,-rpath,DIRECTORY; or name under preloaded what a process has mapped before it.",
        details=(("path", text(found.path) if found and found.path else ""), ("rule", found.rule if found else ""),
                 ("reason", rule.reason)))

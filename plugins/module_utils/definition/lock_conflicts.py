# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find packages that locks disagree about. Pure."""

from __future__ import annotations

import itertools
from typing import Iterator, Mapping, NamedTuple

from . import lock_lines
from .packages import Requirement, canonical, requirements

TOGETHER = ("locks.base", "mpi.lock", "pytorch.lock", "pytorch.cuda_lock")
"""Locks that are installed into one base. What packages install is compared with that in :mod:`.packages`."""


class _Here(NamedTuple):
    """A requirement, and where it stands."""

    path: str
    one: Requirement
    lock: str
    """the text of the lock"""

    def said(self, places: lock_lines.Places) -> str:
        # Its line is looked for where somebody is told of it: few locks disagree, and they are long.
        line = lock_lines.line_of(self.lock, self.one.name, self.one.version)
        return "%s==%s%s" % (self.one.name, self.one.version, places.of(self.path, self.lock, line))


def conflicts(locks: Mapping[str, str], places: lock_lines.Places) -> Iterator[tuple[str, str]]:
    """Yield the path of a lock and what it has otherwise than another one, or twice, as the end of a sentence.

    Of two markers that are not the same none is taken to hold where the other one does.

    Args:
        locks: their texts by the paths of their keys, without any that pip would refuse.
        places: of the locks.
    """
    found: dict[tuple[object, str], list[_Here]] = {}
    for path, text in locks.items():
        for one in requirements(text):
            home = TOGETHER if path in TOGETHER else path
            found.setdefault((home, canonical(one.name)), []).append(_Here(path, one, text))
    for both in found.values():
        for first, second in itertools.combinations(both, 2):
            trouble = _trouble(first, second, places)
            if trouble:
                yield first.path, trouble
                break


def _trouble(first: _Here, second: _Here, places: lock_lines.Places) -> str:
    markers = {" ".join(here.one.marker.split()) for here in (first, second)}
    if len(markers) > 1 and "" not in markers:
        return ""
    if first.one.version != second.one.version:
        differ = "%s has %s" % ("it also" if first.path == second.path else second.path, second.said(places))
        return "has %s, and %s; keep one of the two versions" % (first.said(places), differ)
    if first.path != second.path and not set(first.one.hashes) & set(second.one.hashes):
        return "has %s, and %s has %s with other hashes; keep one of the two" % (
            first.said(places), second.path, second.said(places))
    return ""

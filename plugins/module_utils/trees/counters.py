# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Count what a pass over a tree has seen and done, and make the error that it ends with."""

from __future__ import annotations

from typing import Callable, NamedTuple

from ..core.errors import StackError
from ..core.text import readable, shortly


class ModeChange(NamedTuple):
    """Describe an entry, relative to the tree, whose mode is not the policy's: permission bits before and after."""

    path: str
    before: int
    after: int


class BoundedList:
    """Keep the first few of many, and how many there were."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.first: list = []
        self.full = not limit

    def add(self, make: Callable[[], object]) -> None:
        """Count one; it is made only if it is to be listed."""
        self.total += 1
        if not self.full:
            self.first.append(make())
            self.full = len(self.first) == self.limit

    def merge(self, other: BoundedList) -> None:
        """Add what another list has."""
        self.total += other.total
        self.first = sorted(self.first + other.first)[:self.limit]


class Counters:
    """Count what one thread, or the whole walk, has seen and done."""

    COUNTS = (
        "files", "directories", "symlinks", "hardlinked", "changed_files", "changed_directories", "vanished",
        "excluded",
    )
    LISTS = ("drift", "special", "foreign", "setgid_lost", "refused", "unseen")

    def __init__(self, limit: int) -> None:
        self.files = self.directories = self.symlinks = self.hardlinked = 0
        self.changed_files = self.changed_directories = self.vanished = self.excluded = 0
        self.hardlinked_outside = 0
        self.seconds = 0.0
        self.drift = BoundedList(limit)
        self.special = BoundedList(limit)
        self.foreign = BoundedList(limit)
        self.setgid_lost = BoundedList(limit)
        self.refused = BoundedList(limit)
        self.unseen = BoundedList(limit)

    def merge(self, other: Counters) -> None:
        """Add what another thread or process has counted."""
        for name in self.COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in self.LISTS:
            getattr(self, name).merge(getattr(other, name))


def as_result(counters: Counters) -> dict[str, object]:
    """Return counters as plain data, modes as four octal digits."""
    result: dict[str, object] = {name: getattr(counters, name) for name in Counters.COUNTS}
    result.update(
        hardlinked_outside=counters.hardlinked_outside, seconds=counters.seconds,
        drift=[{"path": path, "from": "%04o" % old, "to": "%04o" % new} for path, old, new in counters.drift.first],
        drift_total=counters.drift.total,
        special=[
            {"path": readable(path), "kind": kind, "mode": "%04o" % mode} for path, kind, mode in counters.special.first
        ],
        special_total=counters.special.total,
        unseen=counters.unseen.first, unseen_total=counters.unseen.total,
    )
    return result


def permission_error(counters: Counters, path: str) -> StackError | None:
    """Make the error of a pass that could not change some entries; all others have been changed."""
    reasons = (
        (counters.foreign, "belong to another account", "Run this as their owner, or have them handed over (chown)."),
        (
            counters.setgid_lost, "are setgid for a group that this account is not in, and a chmod would lose that bit",
            "Become a member of the group, or have the group changed (chgrp).",
        ),
        (counters.refused, "cannot be changed", "See the reasons, an immutable flag or an access list for instance."),
    )
    failing = [(listing, words, remedy) for listing, words, remedy in reasons if listing.total]
    if not failing:
        return None
    sentences = [
        "%d of the entries below %s %s, first %s" % (listing.total, path, words, shortly(listing.first))
        for listing, words, _remedy in failing
    ]
    return StackError(
        "; ".join(sentences) + ".", "apply", " ".join(remedy for _listing, _words, remedy in failing), path,
        foreign=counters.foreign.first, foreign_total=counters.foreign.total,
        setgid_lost=counters.setgid_lost.first, setgid_lost_total=counters.setgid_lost.total,
        refused=counters.refused.first, refused_total=counters.refused.total, **as_result(counters),
    )

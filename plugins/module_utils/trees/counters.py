# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a pass over a tree has seen and done: counts, the first of many, and the error they amount to."""

from __future__ import annotations

from typing import Callable, NamedTuple

from ..core.errors import StackError
from ..core.text import readable, shortly


class Drift(NamedTuple):
    """An entry whose mode is not the policy's: path relative to the tree, permission bits before and after."""

    path: str
    before: int
    after: int


class Listing:
    """The first few of many, and how many there were."""

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

    def merge(self, other: Listing) -> None:
        """Add what another one has."""
        self.total += other.total
        self.first = sorted(self.first + other.first)[:self.limit]


class Tally:
    """What one thread, or the whole walk, has seen and done."""

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
        self.drift = Listing(limit)
        self.special = Listing(limit)
        self.foreign = Listing(limit)
        self.setgid_lost = Listing(limit)
        self.refused = Listing(limit)
        self.unseen = Listing(limit)

    def merge(self, other: Tally) -> None:
        """Add what another one has."""
        for name in self.COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in self.LISTS:
            getattr(self, name).merge(getattr(other, name))


def as_result(tally: Tally) -> dict[str, object]:
    """A tally as plain data, modes as four octal digits."""
    result: dict[str, object] = {name: getattr(tally, name) for name in Tally.COUNTS}
    result.update(
        hardlinked_outside=tally.hardlinked_outside, seconds=tally.seconds,
        drift=[{"path": path, "from": "%04o" % old, "to": "%04o" % new} for path, old, new in tally.drift.first],
        drift_total=tally.drift.total,
        special=[{"path": readable(p), "kind": kind, "mode": "%04o" % mode} for p, kind, mode in tally.special.first],
        special_total=tally.special.total,
        unseen=tally.unseen.first, unseen_total=tally.unseen.total,
    )
    return result


def problem(tally: Tally, path: str) -> StackError | None:
    """The error that a pass ends with, where entries could not be changed; everything else has been changed."""
    reasons = (
        (tally.foreign, "belong to another account", "Run this as their owner, or have them handed over (chown)."),
        (
            tally.setgid_lost, "are setgid for a group that this account is not in, and a chmod would lose that bit",
            "Become a member of the group, or have the group changed (chgrp).",
        ),
        (tally.refused, "cannot be changed", "See the reasons, an immutable flag or an access list for instance."),
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
        foreign=tally.foreign.first, foreign_total=tally.foreign.total,
        setgid_lost=tally.setgid_lost.first, setgid_lost_total=tally.setgid_lost.total,
        refused=tally.refused.first, refused_total=tally.refused.total, **as_result(tally),
    )

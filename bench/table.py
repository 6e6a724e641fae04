# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the comparison, their verdicts, and the table in Markdown."""

from __future__ import annotations

import dataclasses
import enum

HEADINGS = ("what", "peer in the same run", "peer", "ours", "module overhead", "ratio", "goal", "met?")


class Kind(enum.Enum):
    """How a goal reads the two times."""

    FASTER = "faster"
    """The peer's time is at least ``limit`` times ours."""
    AT_MOST = "at most"
    """Our time is at most ``limit`` times the peer's."""
    BELOW_PERCENT = "below percent"
    """Our time is below ``limit`` percent of the peer's."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound for the ratio of two times."""

    kind: Kind
    limit: float

    def ratio(self, peer: float, ours: float) -> float:
        """The number that is compared with the limit; infinite where there was nothing to divide by."""
        if self.kind is Kind.FASTER:
            return peer / ours if ours else float("inf")
        part = ours / peer if peer else float("inf")
        return 100 * part if self.kind is Kind.BELOW_PERCENT else part

    def is_met(self, peer: float, ours: float) -> bool:
        """Whether the times keep the bound."""
        ratio = self.ratio(peer, ours)
        if self.kind is Kind.FASTER:
            return ratio >= self.limit
        return ratio <= self.limit if self.kind is Kind.AT_MOST else ratio < self.limit

    def show(self, peer: float, ours: float) -> str:
        """The ratio as the table has it; as exact as it takes to see on which side of the limit it is."""
        return _UNITS[self.kind] % _number(self.ratio(peer, ours))

    def __str__(self) -> str:
        bound = _UNITS[self.kind] % ("%g" % self.limit)
        return {Kind.FASTER: ">= ", Kind.AT_MOST: "<= ", Kind.BELOW_PERCENT: "< "}[self.kind] + bound


_UNITS = {Kind.FASTER: "%s x faster", Kind.AT_MOST: "%s x", Kind.BELOW_PERCENT: "%s %%"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison; times are medians in seconds.

    ``ours`` is the work alone, and ``overhead`` what calling it as a module of Ansible costs besides, which does not
    count for the ratio; None where it is another row's. Where whole runs of Ansible are compared, ``within`` says that
    ``ours`` holds the overhead.
    """

    what: str
    peer_command: str
    peer: float
    ours: float
    overhead: float | None
    goal: Goal
    within: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is met."""
        return self.goal.is_met(self.peer, self.ours)

    def cells(self) -> tuple[str, ...]:
        """The row's texts, in the order of ``HEADINGS``."""
        return (
            self.what,
            self.peer_command,
            seconds(self.peer),
            seconds(self.ours),
            "-" if self.overhead is None else seconds(self.overhead) + (" of it" if self.within else ""),
            self.goal.show(self.peer, self.ours),
            str(self.goal),
            "met" if self.met else "MISSED",
        )


@dataclasses.dataclass
class Outcome:
    """What a part of the comparison brought: rows, remarks about them, and what could not be measured and why."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Append what another part brought."""
        self.rows += other.rows
        self.notes += other.notes
        self.missing += other.missing

    @property
    def missed(self) -> list[Row]:
        """The rows whose goal is missed."""
        return [row for row in self.rows if not row.met]


def _number(value: float) -> str:
    """Two digits behind the point below ten, one below a hundred, none from there on."""
    return "%.*f" % (2 if value < 10 else 1 if value < 100 else 0, value)


def seconds(value: float) -> str:
    """A time with three digits or so, in seconds."""
    return "%.*f s" % (3 if value < 1 else 2 if value < 10 else 1, value)


def render(rows: list[Row]) -> str:
    """The rows as a Markdown table that is aligned for reading as it is."""
    lines = [HEADINGS, *(tuple(cell.replace("|", "\\|") for cell in row.cells()) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    right = {HEADINGS.index(name) for name in ("peer", "ours", "module overhead", "ratio", "goal")}

    def padded(line: tuple[str, ...]) -> str:
        cells = (
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths))
        )
        return "| " + " | ".join(cells) + " |"

    rule = "|".join("-" * (width + 1) + (":" if column in right else "-") for column, width in enumerate(widths))
    return "\n".join([padded(lines[0]), "|" + rule + "|", *(padded(line) for line in lines[1:])])

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Order the rounds of a pair sweep at rank 0, and print what each has given."""

from __future__ import annotations

import os
import time
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from . import pair_rounds, sweep_levels, sweep_repeat
from .output import RankOutput

MAX_PHASES = 8
"""Limit of phases in which suspects are measured again, in case their pairs always fail."""

TIME_MARGIN = 1.5
"""Time that has to be left for another round, as a multiple of the longest one so far."""


class Order(NamedTuple):
    """Describe a round: ``round`` or ``again``, its number, and its pairs."""

    kind: str
    number: int
    pairs: list[list[int]]


class Leader:
    """Record at rank 0 what has been measured, and decide which pairs come next."""

    def __init__(
        self, asked: Mapping[str, Any], hosts: Sequence[str], members: Sequence[Sequence[int]], output: RankOutput,
        deadline: float,
    ) -> None:
        self.asked, self.hosts, self.members = asked, hosts, members
        self.output, self.deadline = output, deadline
        self.rule = sweep_levels.Rule(**asked["rule"])
        self.rounds = pair_rounds.schedule(len(self.hosts))
        known = asked.get("known") or {}
        before = known.get("hosts", [])
        self.measured, self.repeated, self.late = (
            pair_rounds.translate_rows(known.get(key, []), before, self.hosts)
            for key in ("measured", "repeated", "unanswered"))
        self.number, self.begun, self.longest_round = 0, time.time(), 0.0
        self.last: tuple[str, Any] | None = None
        for _copy in range(2):
            output.send("sweep", {"hosts": self.hosts, "per_node": len(members[0])})

    def orders(self) -> Iterator[Order]:
        """Yield rounds as long as there is something to measure and time for it.

        The round in which an earlier job ended comes last, so that a pair that hangs keeps no other from being
        measured; if it has ended a job again, its pairs come one by one, so that it is known.
        """
        late = [(one, other) for one, other, _times in self.late]
        apart = [[(one, other)] for one, other, times in self.late if times > 1]
        once = pair_rounds.pack_rounds((one, other) for one, other, times in self.late if times == 1)
        done = [(one, other) for one, other, _value in self.measured]
        left = pair_rounds.missing_rounds(self.rounds, [*done, *late])
        for together in [*left, None, *once, *apart, None]:
            for order in [self.order("round", together)] if together else self.suspects():
                if not self.has_time():
                    return
                self.begun = time.time()
                self.output.send("begun", order._asdict())
                yield order

    def suspects(self) -> Iterator[Order]:
        """Yield rounds that measure slow pairs again, until these are decided."""
        seen = sweep_levels.analyse(len(self.hosts), self.measured, self.rule)
        for _phase in range(MAX_PHASES):
            before = len(self.repeated)
            for together in sweep_repeat.next_rounds(seen, self.repeated):
                yield self.order("again", together)
            if len(self.repeated) == before:
                return

    def order(self, kind: str, together: Sequence[Sequence[int]]) -> Order:
        """Make the next round."""
        self.number += 1
        return Order(kind, self.number, [list(pair) for pair in together])

    def has_time(self) -> bool:
        """Tell whether another round is likely to end in time; the first one is always tried."""
        return time.time() + TIME_MARGIN * self.longest_round < self.deadline

    def record(self, order: Order, gathered: Sequence[Any]) -> None:
        """Record and print the results of a round."""
        seconds = time.time() - self.begun
        rows, troubles = [], []
        for low, high in order.pairs:
            members = [*self.members[low], *self.members[high]]
            # A timeout says least about the cause.
            failed = [(rank, gathered[rank][1]) for rank in members if gathered[rank][1]]
            wrong = sorted(failed, key=lambda one: "timed out" in one[1])
            values = [gathered[rank][0] for rank in members]
            if wrong:
                troubles.append([low, high, "rank %d: %s" % wrong[0]])
            elif None not in values:
                # Each rank's own connection, or what all ranks of the pair have in common.
                together = values[:len(values) // 2] if self.asked["backend"] == "tcp" else values[:1]
                rows.append([low, high, float("%.4g" % sum(together))])
        if not troubles:
            self.longest_round = max(self.longest_round, seconds)
        (self.measured if order.kind == "round" else self.repeated).extend(rows)
        found = {"number": order.number, "pairs": rows, "troubles": troubles, "seconds": round(seconds, 2)}
        self.send(order.kind, found)
        self.print_progress(order, rows, seconds)

    def send(self, kind: str, data: Any) -> None:
        """Print a message, and the one before again: a broken frame counts by its second copy."""
        if self.last:
            self.output.send(*self.last)
        self.last = (kind, data)
        self.output.send(kind, data)

    def print_progress(self, order: Order, rows: Sequence[Sequence[Any]], seconds: float) -> None:
        """Print a line about the progress."""
        total = len(self.rounds)
        left = pair_rounds.missing_rounds(self.rounds, [(one, other) for one, other, _value in self.measured])
        text = "[%d/%d]%s %d pair%s in %.1f s" % (
            total - len(left), total, " again:" if order.kind == "again" else "", len(order.pairs),
            "" if len(order.pairs) == 1 else "s", seconds)
        if rows:
            low, high, least = min(rows, key=lambda row: row[2])
            usual = sweep_levels.upper_median(row[2] for row in rows)
            text += ", %.3g GB/s, least %s and %s %.3g" % (usual, self.hosts[low], self.hosts[high], least)
        os.write(1, (text + "\n").encode("ascii", "replace"))

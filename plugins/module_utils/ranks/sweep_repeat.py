# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which pairs of nodes are measured again, before anybody is named, and what that has shown. Pure.

What looks slow is measured again, a node against good partners, and a link together with both its ends against good
partners. Of a small fleet, where every value counts among few, all pairs are measured again as soon as one looks slow.

It is also part of the program that the ranks run.
"""

from __future__ import annotations

from .pair_rounds import (
    Pair,
    Rounds,
    packed,
    schedule,
)
from .sweep_levels import Look, Values, middle

CONTROLS = 4
"""Pairs of good nodes that are measured beside the suspects in a round, where as many nodes are free."""

FIRST = 2
"""How often a link is measured again before those that are as fast as others then are forgotten."""

ENDS = 3
"""How often each end of a suspected link is measured with a good partner, after :data:`FIRST`."""

LEAST = FIRST + ENDS
"""Fewest repeats of a suspect."""

SMALL = 8
"""Fewer nodes are a small fleet."""


def again(seen: Look | None, repeated: Values = ()) -> Rounds:
    """What is to be measured next of what looks slow, in rounds of disjoint pairs; nothing when all is known.

    First every suspect a few times, by which most of those go that were slow by chance; then the others until each has
    been measured as often as the noise asks for. Beside them some pairs of good nodes are measured, to compare with.

    Args:
        seen: from :func:`.sweep_levels.look`.
        repeated: what has been measured again already.
    """
    if seen is None:
        return []
    if seen.nodes < SMALL:
        return all_again(seen, repeated)
    second = Second(seen, repeated)
    for turns in (min(FIRST, second.needed), second.needed):
        rounds = packed(_wanted(seen, second, turns))
        if rounds:
            break
    for turn, pairs in enumerate(rounds):
        busy = {node for pair in pairs for node in pair}
        free = [node for node in seen.good[turn:] + seen.good[:turn] if node not in busy]
        controls = [(min(pair), max(pair)) for pair in zip(free[::2], free[1::2])]
        pairs += [pair for pair in controls if pair not in second.links][:CONTROLS]
    return rounds


def all_again(seen: Look, repeated: Values) -> Rounds:
    """All pairs of a small fleet, as often as a suspect is measured again, if one pair looks slow.

    Args:
        seen: from :func:`.sweep_levels.look`, of fewer than :data:`SMALL` nodes.
        repeated: what has been measured again already.
    """
    # One disturbed measurement among few can make what is usual look slow: the best node says what can be.
    best = seen.known.usual * max(share for share in seen.known.shares if share is not None)
    if all(value >= seen.rule.suspect * best for _one, _other, value in seen.measured):
        return []
    done = [(row[0], row[1]) for row in repeated]
    known = {(row[0], row[1]) for row in seen.measured}
    rounds: Rounds = []
    for turn in range(seen.rule.repeats):
        wanted = [pair for pair in known if done.count(pair) <= turn]
        rounds += [[pair for pair in pairs if pair in wanted] for pairs in schedule(seen.nodes)]
    return [pairs for pairs in rounds if pairs]


def _wanted(seen: Look, second: Second, turns: int) -> list[Pair]:
    """The pairs that are missing, turn by turn one of each suspect, so that an early end leaves something of each.

    Args:
        seen: the suspects, and partners for them.
        second: what has been measured again.
        turns: how often each suspect is to be measured again, and each end of a link that all turns are needed for.
    """
    wanted: list[Pair] = []
    known = {node: len(values) for node, values in second.partners.items()}
    # Each time with other partners than before.
    place = sum(known.get(node, 0) for node in seen.found.nodes)

    def with_partner(node: int, most: int) -> None:
        nonlocal place
        if known.get(node, 0) >= most:
            return
        for _attempt in seen.good:
            place += 1
            partner = seen.good[place % len(seen.good)]
            pair = (min(node, partner), max(node, partner))
            # For want of others the other end of a link may be all that is left.
            if partner != node and pair not in second.links:
                wanted.append(pair)
                known[node] = known.get(node, 0) + 1
                return

    links = [pair for pair in seen.found.links if not second.cleared(pair)]
    for turn in range(turns):
        for node in seen.found.nodes:
            with_partner(node, turn + 1)
        for pair in links:
            if len(second.ratios.get(pair, [])) <= turn:
                wanted.append(pair)
            for node in pair:
                with_partner(node, min(ENDS, turn + 1 - FIRST))
    return wanted


class Second:
    """What was measured again, as shares of what the first measurements let expect, corrected by the good pairs."""

    def __init__(self, seen: Look, repeated: Values) -> None:
        known, found = seen.known, seen.found
        self.rule, self.noise, self.needed = seen.rule, known.noise, seen.rule.needed(known.noise)
        self.links = set(found.links)
        self.ratios: dict[Pair, list[float]] = {}
        self.partners: dict[int, list[float]] = {}
        bad = set(found.nodes).union(found.partly)
        shares = [1.0 if share is None or share > 1 else share for share in known.shares]
        ends = {node for pair in found.links for node in pair}
        controls = []
        for one, other, value in repeated:
            clean = [node for node in (one, other) if node not in bad]
            expected = known.usual
            for node in clean:
                expected *= shares[node]
            ratio = value / expected
            if len(clean) == 2 and not ends.intersection(clean):
                controls.append(ratio)
            if (one, other) in self.links:
                self.ratios.setdefault((one, other), []).append(ratio)
                continue
            for node, partner in ((one, other), (other, one)):
                if partner in clean:
                    self.partners.setdefault(node, []).append(ratio)
        # What has changed for all since then is not the suspects' fault; of a few pairs it would only add their noise.
        drift = middle(controls) if len(controls) >= CONTROLS else 1.0
        for values in (*self.ratios.values(), *self.partners.values()):
            values[:] = [value / drift for value in values]

    def cleared(self, pair: Pair) -> bool:
        """Whether a link was slow by chance: measured again, it was as fast as others twice."""
        return sum(ratio >= self.rule.suspect for ratio in self.ratios.get(pair, [])) >= FIRST

    def limit(self, count: int) -> float:
        """Below which share ``count`` measurements are slow beyond chance."""
        return self.rule.limit(self.noise, count)

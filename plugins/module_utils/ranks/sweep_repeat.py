# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Choose which slow pairs are measured again before any is named, and evaluate these repeats. Pure.

What looks slow is measured again, a node against good partners, and a link together with both its ends against good
partners. Of a small cluster, where every value counts among few, all pairs are measured again when one looks slow.

It is also part of the program that the ranks run.
"""

from __future__ import annotations

from .pair_rounds import Pair, Rounds, pack_rounds, schedule
from .sweep_levels import Analysis, Values, upper_median

CONTROLS = 4
"""Pairs of good nodes that are measured beside the suspects in a round, where as many nodes are free."""

FIRST_REPEATS = 2
"""Repeats of a link, after which it is dropped if it was as fast as others."""

END_REPEATS = 3
"""Measurements of each end of a suspected link with a good partner, after :data:`FIRST_REPEATS`."""

MIN_REPEATS = FIRST_REPEATS + END_REPEATS
"""Fewest repeats of a suspect."""

SMALL_CLUSTER = 8
"""Fewer nodes are a small cluster."""


def next_rounds(seen: Analysis | None, repeated: Values = ()) -> Rounds:
    """Choose what of the suspects is measured next, in rounds of disjoint pairs; empty when decided.

    First every suspect a few times, by which most of those go that were slow by chance; then the others until each has
    been measured as often as the noise asks for. Beside them some pairs of good nodes are measured, to compare with.
    """
    if seen is None:
        return []
    if seen.nodes < SMALL_CLUSTER:
        return repeat_all_pairs(seen, repeated)
    repeats = Repeats(seen, repeated)
    for turns in (min(FIRST_REPEATS, repeats.repeats_needed), repeats.repeats_needed):
        rounds = pack_rounds(_missing_pairs(seen, repeats, turns))
        if rounds:
            break
    for turn, pairs in enumerate(rounds):
        busy = {node for pair in pairs for node in pair}
        free = [node for node in seen.good[turn:] + seen.good[:turn] if node not in busy]
        controls = [(min(pair), max(pair)) for pair in zip(free[::2], free[1::2])]
        pairs += [pair for pair in controls if pair not in repeats.links][:CONTROLS]
    return rounds


def repeat_all_pairs(seen: Analysis, repeated: Values) -> Rounds:
    """Repeat all pairs of a small cluster, as often as a suspect's, if one pair looks slow."""
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


def _missing_pairs(seen: Analysis, repeats: Repeats, turns: int) -> list[Pair]:
    """List the missing pairs, turn by turn one of each suspect, so that an early end leaves some of each.

    Args:
        turns: how often each suspect is to be measured again, and each end of a link that all turns are needed for.
    """
    wanted: list[Pair] = []
    known = {node: len(values) for node, values in repeats.partners.items()}
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
            # The other end of a suspected link is no partner, even if no other node is left.
            if partner != node and pair not in repeats.links:
                wanted.append(pair)
                known[node] = known.get(node, 0) + 1
                return

    links = [pair for pair in seen.found.links if not repeats.is_cleared(pair)]
    for turn in range(turns):
        for node in seen.found.nodes:
            with_partner(node, turn + 1)
        for pair in links:
            if len(repeats.ratios.get(pair, [])) <= turn:
                wanted.append(pair)
            for node in pair:
                with_partner(node, min(END_REPEATS, turn + 1 - FIRST_REPEATS))
    return wanted


class Repeats:
    """Hold repeated measurements as shares of what the first ones let expect, corrected by good pairs."""

    def __init__(self, seen: Analysis, repeated: Values) -> None:
        known, found = seen.known, seen.found
        self.rule, self.noise, self.repeats_needed = seen.rule, known.noise, seen.rule.repeats_needed(known.noise)
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
        # Correct what has changed for all pairs since then; a few control pairs would only add noise.
        drift = upper_median(controls) if len(controls) >= CONTROLS else 1.0
        for values in (*self.ratios.values(), *self.partners.values()):
            values[:] = [value / drift for value in values]

    def is_cleared(self, pair: Pair) -> bool:
        """Tell whether a link was slow by chance: measured again, it was as fast as others twice."""
        return sum(ratio >= self.rule.suspect for ratio in self.ratios.get(pair, [])) >= FIRST_REPEATS

    def limit(self, count: int) -> float:
        """Compute the share below which ``count`` measurements are slow beyond chance."""
        return self.rule.limit(self.noise, count)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is usual among nodes of which every pair was measured, and who does not reach it. Pure.

A node is as fast as it is with most of its partners, and a pair should be as fast as the slower of its nodes: medians,
which a few slow nodes and links do not move. A slow node is slow with nearly all partners. A slow link is a slow pair
of nodes that are fast with others.

It is also part of the program that the ranks run, which has to know what to measure again.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, NamedTuple, Sequence

from .pair_rounds import Pair

Values = Sequence[Sequence[Any]]
"""Rows of (node, node, GB/s)."""

NOISE = 0.02
"""Least noise that is believed: a few pairs may agree by chance."""

CERTAIN = 5.0
"""Standard errors by which a named suspect is below what is usual, so that noise alone names nobody."""

MOST = 12
"""Repeats of a suspect, however great the noise is."""

SPREAD = 1.4826
"""Standard deviation of normal noise in terms of its median absolute deviation."""

MEDIAN = 1.2533
"""Standard error of a median in terms of that of a mean, for normal noise: the square root of pi / 2."""


class Rule(NamedTuple):
    """What counts as slow, all as shares of what is usual.

    The defaults find what lost a quarter, in noise of 5 %: 0.75 is three standard deviations below ``suspect``, and
    five below ``slow`` for a median of five; 1 is as far from both on the other side.
    """

    suspect: float = 0.87
    """Below this a pair or a node is measured again."""
    slow: float = 0.85
    """Below this, measured again, it is named."""
    nearly_all: float = 0.8
    """Share of its partners with which a slow node has to be slow; else what is slow is what lies between them."""
    repeats: int = 5
    """How often a suspect is measured again at least; more often where the noise is greater than 5 %."""

    def needed(self, noise: float) -> int:
        """How often a suspect has to be measured again in this noise, so that what is slow can be told."""
        errors = CERTAIN * MEDIAN * noise / (1 - self.slow)
        return max(self.repeats, min(MOST, math.ceil(errors * errors)))

    def limit(self, noise: float, count: int) -> float:
        """Below which share the median of ``count`` measurements is slow beyond chance."""
        return min(self.slow, 1 - CERTAIN * MEDIAN * noise / math.sqrt(count))


class Fleet(NamedTuple):
    """What is usual: GB/s of a pair of good nodes, each node's share of that (None where it is not known), the ratio of
    each measured pair to what its nodes let expect, and the noise of these as a relative standard deviation."""

    usual: float
    shares: list[float | None]
    ratios: dict[Pair, float]
    noise: float


class Suspicion(NamedTuple):
    """What is to be measured again: nodes, and links, the slowest first; ``partly`` are nodes that are slow with many
    partners, but not with nearly all; ``others`` counts slow pairs beyond those that can be measured again."""

    nodes: list[int]
    links: list[Pair]
    partly: list[int]
    others: int


class Look(NamedTuple):
    """What the first measurements say: see :func:`look`."""

    nodes: int
    """How many there are."""
    measured: Values
    rule: Rule
    known: Fleet
    found: Suspicion
    good: list[int]
    """Nodes that can be partners of suspects."""


def middle(numbers: Iterable[float]) -> float:
    """The median; of an even number of them the higher one, because what disturbs a network makes it slower."""
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2]


def fleet(count: int, measured: Values) -> Fleet:
    """What is usual.

    Args:
        count: number of nodes.
        measured: at least one row.
    """
    partners: list[list[float]] = [[] for _node in range(count)]
    for one, other, value in measured:
        partners[one].append(value)
        partners[other].append(value)
    levels = [middle(values) if values else None for values in partners]
    usual = middle(level for level in levels if level is not None)
    shares = [None if level is None else level / usual for level in levels]
    # A node that is faster than usual does not make its partners so.
    capped = [1.0 if share is None or share > 1 else share for share in shares]
    ratios = {(one, other): value / (usual * min(capped[one], capped[other])) for one, other, value in measured}
    noise = SPREAD * middle(abs(math.log(ratio)) for ratio in ratios.values())
    return Fleet(usual, shares, ratios, max(NOISE, noise))


def reached(known: Fleet, of: int | None = None) -> list[float]:
    """The shares of what is usual that all pairs reach, or those of one node; a ratio is one of what is expected.

    Args:
        known: from :func:`fleet`.
        of: the node; None for all pairs.
    """
    shares = [1.0 if share is None or share > 1 else share for share in known.shares]
    return [
        ratio * min(shares[one], shares[other]) for (one, other), ratio in known.ratios.items()
        if of is None or of in (one, other)
    ]


def slow_partners(node: int, known: Fleet, rule: Rule) -> tuple[int, int]:
    """With how many partners a node is slow, and how many it has been measured with.

    Args:
        node: which.
        known: from :func:`fleet`.
        rule: what counts as slow.
    """
    ratios = reached(known, node)
    return sum(ratio < rule.suspect for ratio in ratios), len(ratios)


def suspicion(count: int, known: Fleet, rule: Rule) -> Suspicion:
    """What is slow enough to be measured again.

    Args:
        count: number of nodes.
        known: from :func:`fleet`.
        rule: what counts as slow.
    """
    nodes: list[int] = []
    partly: list[int] = []
    alone = set()
    for node, share in enumerate(known.shares):
        if share is not None and share < rule.suspect:
            slow, partners = slow_partners(node, known, rule)
            if partners < min(3, count - 1):
                alone.add(node)
            else:
                (nodes if slow >= rule.nearly_all * partners else partly).append(node)
    low = alone.union(nodes, partly)
    # Noise of 5 % alone makes one pair in 200 look slow.
    most = count + len(known.ratios) // 100
    links = sorted(
        (ratio, pair) for pair, ratio in known.ratios.items() if ratio < rule.suspect and low.isdisjoint(pair)
    )
    return Suspicion(nodes, [pair for _ratio, pair in links[:most]], partly, max(0, len(links) - most))


def _good(count: int, known: Fleet, found: Suspicion) -> list[int]:
    """Nodes that can be partners of suspects: those that nothing is known against, where there are any."""
    bad = set(found.nodes).union(found.partly)
    ends = {node for pair in found.links for node in pair}
    nodes = [node for node in range(count) if node not in bad and known.shares[node] is not None]
    clean = [node for node in nodes if node not in ends]
    # A few that are clean would be the partners of all the others, one by one.
    return clean if len(clean) * 4 >= count else nodes


def look(count: int, measured: Values, rule: Rule) -> Look | None:
    """What is usual and what is suspect; None where there is nothing to compare.

    Args:
        count: number of nodes.
        measured: what the pairs have reached, one row each.
        rule: what counts as slow.
    """
    if count < 3 or not measured:
        return None
    known = fleet(count, measured)
    found = suspicion(count, known, rule)
    return Look(count, measured, rule, known, found, _good(count, known, found))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute the usual bandwidth of nodes and pairs, and find those that are slower. Pure.

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

MIN_NOISE = 0.02
"""Least noise that is believed: a few pairs may agree by chance."""

CONFIDENCE = 5.0
"""Standard errors by which a named suspect is below what is usual, so that noise alone names nobody."""

MAX_REPEATS = 12
"""Repeats of a suspect, however great the noise is."""

SIGMA_OF_MAD = 1.4826
"""Standard deviation of normal noise in terms of its median absolute deviation."""

ERROR_OF_MEDIAN = 1.2533
"""Standard error of a median in terms of that of a mean, for normal noise: the square root of pi / 2."""


class Rule(NamedTuple):
    """Define what counts as slow, as shares of what is usual.

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

    def repeats_needed(self, noise: float) -> int:
        """Compute how often a suspect is measured again, so that this noise does not decide."""
        errors = CONFIDENCE * ERROR_OF_MEDIAN * noise / (1 - self.slow)
        return max(self.repeats, min(MAX_REPEATS, math.ceil(errors * errors)))

    def limit(self, noise: float, count: int) -> float:
        """Compute the share below which the median of ``count`` measurements is slow beyond chance."""
        return min(self.slow, 1 - CONFIDENCE * ERROR_OF_MEDIAN * noise / math.sqrt(count))


class Levels(NamedTuple):
    """Hold the usual bandwidth, and how nodes and pairs compare with it."""

    usual: float
    """GB/s of a pair of good nodes."""
    shares: list[float | None]
    """Of each node, its share of that; None where it is not known."""
    ratios: dict[Pair, float]
    """Of each measured pair, its ratio to what its nodes let expect."""
    noise: float
    """Relative standard deviation of the ratios."""


class Suspects(NamedTuple):
    """Hold the nodes and links that are to be measured again, the slowest first."""

    nodes: list[int]
    links: list[Pair]
    partly: list[int]
    """Nodes that are slow with many partners, but not with nearly all."""
    others: int
    """Slow pairs beyond those that can be measured again."""


class Analysis(NamedTuple):
    """Hold the result of :func:`analyse`: of how many nodes, and those that can be partners of suspects."""

    nodes: int
    measured: Values
    rule: Rule
    known: Levels
    found: Suspects
    good: list[int]


def upper_median(numbers: Iterable[float]) -> float:
    """Compute the median, the higher one of an even number: disturbances only make a network slower."""
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2]


def compute_levels(count: int, measured: Values) -> Levels:
    """Compute the usual bandwidth, each node's share of it, and the noise, of at least one row."""
    partners: list[list[float]] = [[] for _node in range(count)]
    for one, other, value in measured:
        partners[one].append(value)
        partners[other].append(value)
    levels = [upper_median(values) if values else None for values in partners]
    usual = upper_median(level for level in levels if level is not None)
    shares = [None if level is None else level / usual for level in levels]
    # A node that is faster than usual does not make its partners so.
    capped = [1.0 if share is None or share > 1 else share for share in shares]
    ratios = {(one, other): value / (usual * min(capped[one], capped[other])) for one, other, value in measured}
    noise = SIGMA_OF_MAD * upper_median(abs(math.log(ratio)) for ratio in ratios.values())
    return Levels(usual, shares, ratios, max(MIN_NOISE, noise))


def pair_shares(known: Levels, of: int | None = None) -> list[float]:
    """Compute the shares of what is usual, not of what is expected, that all pairs reach, or those of one node."""
    shares = [1.0 if share is None or share > 1 else share for share in known.shares]
    return [
        ratio * min(shares[one], shares[other]) for (one, other), ratio in known.ratios.items()
        if of is None or of in (one, other)
    ]


def slow_partners(node: int, known: Levels, rule: Rule) -> tuple[int, int]:
    """Count the partners with which a node is slow, and those it has been measured with."""
    ratios = pair_shares(known, node)
    return sum(ratio < rule.suspect for ratio in ratios), len(ratios)


def find_suspects(count: int, known: Levels, rule: Rule) -> Suspects:
    """Find what is slow enough to be measured again."""
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
        (ratio, pair) for pair, ratio in known.ratios.items() if ratio < rule.suspect and low.isdisjoint(pair))
    return Suspects(nodes, [pair for _ratio, pair in links[:most]], partly, max(0, len(links) - most))


def _select_partners(count: int, known: Levels, found: Suspects) -> list[int]:
    """Select partners for suspects: nodes without any suspicion, where there are enough."""
    bad = set(found.nodes).union(found.partly)
    ends = {node for pair in found.links for node in pair}
    nodes = [node for node in range(count) if node not in bad and known.shares[node] is not None]
    clean = [node for node in nodes if node not in ends]
    # A few clean nodes would have to be the partners of all the others, one after the other.
    return clean if len(clean) * 4 >= count else nodes


def analyse(count: int, measured: Values, rule: Rule) -> Analysis | None:
    """Analyse the first measurements; None where there is nothing to compare."""
    if count < 3 or not measured:
        return None
    known = compute_levels(count, measured)
    found = find_suspects(count, known, rule)
    return Analysis(count, measured, rule, known, found, _select_partners(count, known, found))

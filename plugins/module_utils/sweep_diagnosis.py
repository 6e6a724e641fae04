# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which nodes and which links are slow, from what every pair of nodes has reached. Pure.

A node is as fast as it is with most of its partners, and a pair should be as fast as the slower of its nodes: medians,
which a few slow nodes and links do not move. A slow node is slow with nearly all partners. A slow link is a slow pair
of nodes that are fast with others. Nobody is named by one measurement: what looks slow is measured again, a node
against good partners, and a link together with both its ends against good partners; the verdict needs both. Of a small
fleet, where every value counts among few, all pairs are measured again as soon as one looks slow.

It is also part of the program that the ranks run, which has to know what to measure again.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.pairs import (
    Pair,
    Rounds,
    packed,
    schedule,
)

Values = Sequence[Sequence[Any]]
"""Rows of (node, node, GB/s)."""

CONTROLS = 4
"""Pairs of good nodes that are measured beside the suspects in a round, where as many nodes are free."""

FIRST = 2
"""How often a link is measured again before those that are as fast as others then are forgotten."""

ENDS = 3
"""How often each end of a suspected link is measured with a good partner, after :data:`FIRST`."""

LEAST = FIRST + ENDS
"""Fewest repeats of a suspect."""

NOISE = 0.02
"""Least noise that is believed: a few pairs may agree by chance."""

CERTAIN = 5.0
"""Standard errors by which a named suspect is below what is usual, so that noise alone names nobody."""

SMALL = 8
"""Fewer nodes are a small fleet."""

MOST = 12
"""Repeats of a suspect, however great the noise is."""

SPREAD = 1.4826
"""Standard deviation of normal noise in terms of its median absolute deviation."""

MEDIAN = 1.2533
"""Standard error of a median in terms of that of a mean, for normal noise: the square root of pi / 2."""

FASTER, MANY = 1.18, 0.02
"""If more than this share of the pairs is so many times as fast as usual, what is usual may be slow."""

TOLD = 6
"""Names in a sentence, after which the others are only counted."""


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


class Diagnosis(NamedTuple):
    """The verdict, in the shapes of the record."""

    slow_nodes: list[dict[str, Any]]
    slow_links: list[dict[str, Any]]
    undecided: list[str]
    not_checked: list[str]


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


def _raw(known: Fleet, of: int | None = None) -> list[float]:
    """The shares of what is usual that all pairs reach, or those of one node; a ratio is one of what is expected."""
    shares = [1.0 if share is None or share > 1 else share for share in known.shares]
    return [
        ratio * min(shares[one], shares[other]) for (one, other), ratio in known.ratios.items()
        if of is None or of in (one, other)
    ]


def _partners(node: int, known: Fleet, rule: Rule) -> tuple[int, int]:
    """With how many partners a node is slow, and how many it has been measured with."""
    ratios = _raw(known, node)
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
            slow, partners = _partners(node, known, rule)
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


def again(seen: Look | None, repeated: Values = ()) -> Rounds:
    """What is to be measured next of what looks slow, in rounds of disjoint pairs; nothing when all is known.

    First every suspect a few times, by which most of those go that were slow by chance; then the others until each has
    been measured as often as the noise asks for. Beside them some pairs of good nodes are measured, to compare with.

    Args:
        seen: from :func:`look`.
        repeated: what has been measured again already.
    """
    if seen is None:
        return []
    if seen.nodes < SMALL:
        return _all_again(seen, repeated)
    second = _Second(seen, repeated)
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


def _all_again(seen: Look, repeated: Values) -> Rounds:
    """All pairs of a small fleet, as often as a suspect is measured again, if one pair looks slow."""
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


def _wanted(seen: Look, second: _Second, turns: int) -> list[Pair]:
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


def diagnose(hosts: Sequence[str], seen: Look | None, repeated: Values) -> Diagnosis:
    """Name slow nodes and slow links.

    Args:
        hosts: names of the nodes.
        seen: from :func:`look`.
        repeated: what has been measured again, any number of rows for a pair.
    """
    if seen is None:
        gap = "Two nodes are one pair: there is nothing to compare it with, and nobody can be named."
        return Diagnosis([], [], [], [gap if len(hosts) == 2 else "No pair has been measured."])
    if seen.nodes < SMALL:
        return _diagnose_few(hosts, seen, repeated)
    known, found, second = seen.known, seen.found, _Second(seen, repeated)
    verdict = Diagnosis([], [], [], _gaps(seen.nodes, known))
    for node in found.nodes:
        _judge_node(verdict, hosts, node, known, second)
    for pair in found.links:
        _judge_link(verdict, hosts, pair, known, second)
    if found.partly:
        first = found.partly[0]
        verdict.undecided.append(
            "%s: slow with many others, but not with nearly all (%s with %d of %d): look at what lies between groups "
            "of nodes." % (_names(hosts, found.partly), hosts[first], *_partners(first, known, seen.rule)))
    if found.others:
        verdict.undecided.append(
            "%d more pairs are slow, too many to be single links: look at what they share, and at other jobs at that "
            "time." % found.others)
    return verdict


def _diagnose_few(hosts: Sequence[str], seen: Look, repeated: Values) -> Diagnosis:
    """Name slow nodes and slow links of a small fleet, of which all pairs have been measured again."""
    rule, verdict = seen.rule, Diagnosis([], [], [], _gaps(seen.nodes, seen.known))
    if _all_again(seen, repeated):
        verdict.undecided.append("Something is slow; not all pairs have been measured again yet.")
        return verdict
    if not repeated:
        return verdict
    values: dict[Pair, list[float]] = {}
    for one, other, value in repeated:
        values.setdefault((one, other), []).append(value)
    middles = {pair: middle(of_pair) for pair, of_pair in values.items()}
    now = fleet(seen.nodes, [(*pair, value) for pair, value in middles.items()])
    # The medians themselves, one of five values, say nothing about the noise.
    scatter = [
        abs(math.log(value / middles[pair])) for pair, of_pair in values.items() for value in of_pair
        if value != middles[pair]
    ]
    found = suspicion(seen.nodes, now, rule)
    limit = rule.limit(max(NOISE, SPREAD * middle(scatter or [0.0])), min(map(len, values.values())))
    for node in found.nodes:
        share = now.shares[node] or 0.0
        text = "%s reaches %s of what is usual (%s GB/s); every pair was measured again %d times." % (
            hosts[node], _percent(share), _rate(now.usual), rule.repeats)
        if share < limit:
            verdict.slow_nodes.append({"host": hosts[node], "ratio": round(share, 3), "evidence": text})
        else:
            verdict.undecided.append(text)
    for pair in found.links:
        ratio, names = now.ratios[pair], [hosts[node] for node in pair]
        text = "%s and %s reach %s of what is usual with each other; every pair was measured again %d times." % (
            names[0], names[1], _percent(ratio), rule.repeats)
        if ratio < limit:
            verdict.slow_links.append({"hosts": names, "ratio": round(ratio, 3), "evidence": text})
        else:
            verdict.undecided.append(text)
    if found.partly:
        verdict.undecided.append("%s: slow with some others, but not with nearly all." % _names(hosts, found.partly))
    return verdict


class _Second:
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


def _judge_node(verdict: Diagnosis, hosts: Sequence[str], node: int, known: Fleet, second: _Second) -> None:
    """Name a node, or say why not."""
    share = known.shares[node] or 0.0
    values = second.partners.get(node, [])
    first = "%s reaches %s of what is usual (%s GB/s)" % (hosts[node], _percent(share), _rate(known.usual))
    if len(values) < second.needed:
        verdict.undecided.append("%s; it has not been measured again yet." % first)
        return
    now = middle(values)
    again_ = "measured again with good partners, %s" % _percent(now)
    slow = sum(value < second.rule.suspect for value in values)
    if now < second.limit(len(values)) and slow >= second.rule.nearly_all * len(values):
        evidence = "%s; %s." % (first, again_)
        verdict.slow_nodes.append({"host": hosts[node], "ratio": round(min(share, now), 3), "evidence": evidence})
    else:
        verdict.undecided.append("%s; %s." % (first, again_))


def _judge_link(verdict: Diagnosis, hosts: Sequence[str], pair: Pair, known: Fleet, second: _Second) -> None:
    """Name a link; a pair that is as fast as others when it is measured again is forgotten."""
    ratio = known.ratios[pair]
    names = [hosts[node] for node in pair]
    first = "%s and %s reach %s of what is usual with each other" % (names[0], names[1], _percent(ratio))
    values = second.ratios.get(pair, [])
    if second.cleared(pair):
        return
    if len(values) < second.needed:
        if ratio < second.rule.slow:
            verdict.undecided.append("%s; they have not been measured again yet." % first)
        return
    now = middle(values)
    ends = [second.partners.get(node, []) for node in pair]
    # Of the ends the better value counts: they have to be able to do it.
    good = [bool(values) and max(values) >= second.rule.suspect for values in ends]
    if now < second.limit(len(values)) and all(good):
        evidence = "%s; measured again %d times, %s; with others, %s and %s." % (
            first, len(values), _percent(now), _percent(max(ends[0])), _percent(max(ends[1])))
        verdict.slow_links.append({"hosts": names, "ratio": round(now, 3), "evidence": evidence})
    else:
        verdict.undecided.append("%s; measured again, %s%s." % (
            first, _percent(now), "" if all(good) else ", and an end was slow with others, too"))


def _gaps(count: int, known: Fleet) -> list[str]:
    """What this diagnosis cannot have noticed."""
    sentences = []
    if len(known.ratios) < count * (count - 1) // 2:
        sentences.append("%d of %d pairs have not been measured." % (
            count * (count - 1) // 2 - len(known.ratios), count * (count - 1) // 2))
    if count == 3:
        sentences.append("Of three nodes, a slow one looks like two that are nearer to each other.")
    if count == 4:
        sentences.append("Of four nodes, two slow ones look like two that are nearer to each other.")
    fast = sum(share > max(FASTER, 1 + 3 * known.noise) for share in _raw(known))
    if fast > MANY * len(known.ratios):
        sentences.append("%d of %d pairs are much faster than what is usual: where the nodes are alike, half of them "
                         "or more may be slow." % (fast, len(known.ratios)))
    sentences.append("What makes all nodes equally slow is not seen: compare %s GB/s with what the network should give."
                     % _rate(known.usual))
    return sentences


def _names(hosts: Sequence[str], nodes: Sequence[int]) -> str:
    """Nodes in a sentence."""
    told = ", ".join(hosts[node] for node in nodes[:TOLD])
    return told if len(nodes) <= TOLD else "%s and %d more" % (told, len(nodes) - TOLD)


def _percent(share: float) -> str:
    return "%d %%" % round(100 * share)


def _rate(value: float) -> str:
    return "%.3g" % value

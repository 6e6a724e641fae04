# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which nodes and which links are slow, from what every pair of nodes has reached. Pure.

Nobody is named by one measurement: the verdict needs the first (see :mod:`.sweep_levels`) and what was measured again
(see :mod:`.sweep_again`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

from ..ranks.pair_rounds import Pair
from ..ranks.sweep_levels import (
    NOISE,
    SPREAD,
    Fleet,
    Look,
    Values,
    fleet,
    middle,
    reached,
    slow_partners,
    suspicion,
)
from ..ranks.sweep_repeat import SMALL, Second, all_again

FASTER, MANY = 1.18, 0.02
"""If more than this share of the pairs is so many times as fast as usual, what is usual may be slow."""

TOLD = 6
"""Names in a sentence, after which the others are only counted."""


class Diagnosis(NamedTuple):
    """The verdict, in the shapes of the record."""

    slow_nodes: list[dict[str, Any]]
    slow_links: list[dict[str, Any]]
    undecided: list[str]
    not_checked: list[str]


def diagnose(hosts: Sequence[str], seen: Look | None, repeated: Values) -> Diagnosis:
    """Name slow nodes and slow links.

    Args:
        hosts: names of the nodes.
        seen: from :func:`.sweep_levels.look`.
        repeated: what has been measured again, any number of rows for a pair.
    """
    if seen is None:
        gap = "Two nodes are one pair: there is nothing to compare it with, and nobody can be named."
        return Diagnosis([], [], [], [gap if len(hosts) == 2 else "No pair has been measured."])
    if seen.nodes < SMALL:
        return _diagnose_few(hosts, seen, repeated)
    known, found, second = seen.known, seen.found, Second(seen, repeated)
    verdict = Diagnosis([], [], [], _gaps(seen.nodes, known))
    for node in found.nodes:
        _judge_node(verdict, hosts, node, known, second)
    for pair in found.links:
        _judge_link(verdict, hosts, pair, known, second)
    if found.partly:
        first = found.partly[0]
        verdict.undecided.append(
            "%s: slow with many others, but not with nearly all (%s with %d of %d): look at what lies between groups "
            "of nodes." % (_names(hosts, found.partly), hosts[first], *slow_partners(first, known, seen.rule)))
    if found.others:
        verdict.undecided.append(
            "%d more pairs are slow, too many to be single links: look at what they share, and at other jobs at that "
            "time." % found.others)
    return verdict


def _diagnose_few(hosts: Sequence[str], seen: Look, repeated: Values) -> Diagnosis:
    """Name slow nodes and slow links of a small fleet, of which all pairs have been measured again."""
    rule, verdict = seen.rule, Diagnosis([], [], [], _gaps(seen.nodes, seen.known))
    if all_again(seen, repeated):
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


def _judge_node(verdict: Diagnosis, hosts: Sequence[str], node: int, known: Fleet, second: Second) -> None:
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


def _judge_link(verdict: Diagnosis, hosts: Sequence[str], pair: Pair, known: Fleet, second: Second) -> None:
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
    fast = sum(share > max(FASTER, 1 + 3 * known.noise) for share in reached(known))
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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name slow nodes and slow links, from what every pair of nodes has reached. Pure.

Nobody is named by one measurement: the verdict needs the first (see :mod:`.sweep_levels`) and what was measured again
(see :mod:`.sweep_repeat`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

from ..ranks.pair_rounds import Pair
from ..ranks.sweep_levels import (
    MIN_NOISE,
    SIGMA_OF_MAD,
    Analysis,
    Levels,
    Values,
    compute_levels,
    find_suspects,
    pair_shares,
    slow_partners,
    upper_median,
)
from ..ranks.sweep_repeat import SMALL_CLUSTER, Repeats, repeat_all_pairs

FAST_RATIO, FAST_SHARE = 1.18, 0.02
"""If more than this share of the pairs is so many times as fast as usual, what is usual may be slow."""

MAX_NAMED = 6
"""Names in a sentence, after which the others are only counted."""


class Diagnosis(NamedTuple):
    """Hold the verdict, in the shapes of the record."""

    slow_nodes: list[dict[str, Any]]
    slow_links: list[dict[str, Any]]
    undecided: list[str]
    not_checked: list[str]


def diagnose(hosts: Sequence[str], seen: Analysis | None, repeated: Values) -> Diagnosis:
    """Name slow nodes and slow links."""
    if seen is None:
        gap = "Two nodes are one pair: there is nothing to compare it with, and nobody can be named."
        return Diagnosis([], [], [], [gap if len(hosts) == 2 else "No pair has been measured."])
    if seen.nodes < SMALL_CLUSTER:
        return _diagnose_small(hosts, seen, repeated)
    known, found, repeats = seen.known, seen.found, Repeats(seen, repeated)
    verdict = Diagnosis([], [], [], _list_gaps(seen.nodes, known))
    for node in found.nodes:
        _diagnose_node(verdict, hosts, node, known, repeats)
    for pair in found.links:
        _diagnose_link(verdict, hosts, pair, known, repeats)
    if found.partly:
        first = found.partly[0]
        verdict.undecided.append(
            "%s: slow with many others, but not with nearly all (%s with %d of %d): look at what lies between groups "
            "of nodes." % (_list_names(hosts, found.partly), hosts[first], *slow_partners(first, known, seen.rule)))
    if found.others:
        verdict.undecided.append(
            "%d more pairs are slow, too many to be single links: look at what they share, and at other jobs at that "
            "time." % found.others)
    return verdict


def _diagnose_small(hosts: Sequence[str], seen: Analysis, repeated: Values) -> Diagnosis:
    """Name slow nodes and links of a small cluster, of which all pairs were measured again."""
    rule, verdict = seen.rule, Diagnosis([], [], [], _list_gaps(seen.nodes, seen.known))
    if repeat_all_pairs(seen, repeated):
        verdict.undecided.append("Something is slow; not all pairs have been measured again yet.")
        return verdict
    if not repeated:
        return verdict
    values: dict[Pair, list[float]] = {}
    for one, other, value in repeated:
        values.setdefault((one, other), []).append(value)
    middles = {pair: upper_median(of_pair) for pair, of_pair in values.items()}
    now = compute_levels(seen.nodes, [(*pair, value) for pair, value in middles.items()])
    # The medians themselves, one of five values, say nothing about the noise.
    scatter = [
        abs(math.log(value / middles[pair])) for pair, of_pair in values.items() for value in of_pair
        if value != middles[pair]
    ]
    found = find_suspects(seen.nodes, now, rule)
    limit = rule.limit(max(MIN_NOISE, SIGMA_OF_MAD * upper_median(scatter or [0.0])), min(map(len, values.values())))
    for node in found.nodes:
        share = now.shares[node] or 0.0
        text = "%s reaches %s of what is usual (%s GB/s); every pair was measured again %d times." % (
            hosts[node], _format_share(share), _format_rate(now.usual), rule.repeats)
        if share < limit:
            verdict.slow_nodes.append({"host": hosts[node], "ratio": round(share, 3), "evidence": text})
        else:
            verdict.undecided.append(text)
    for pair in found.links:
        ratio, names = now.ratios[pair], [hosts[node] for node in pair]
        text = "%s and %s reach %s of what is usual with each other; every pair was measured again %d times." % (
            names[0], names[1], _format_share(ratio), rule.repeats)
        if ratio < limit:
            verdict.slow_links.append({"hosts": names, "ratio": round(ratio, 3), "evidence": text})
        else:
            verdict.undecided.append(text)
    if found.partly:
        several = _list_names(hosts, found.partly)
        verdict.undecided.append("%s: slow with some others, but not with nearly all." % several)
    return verdict


def _diagnose_node(verdict: Diagnosis, hosts: Sequence[str], node: int, known: Levels, repeats: Repeats) -> None:
    """Name a node, or say why not."""
    share = known.shares[node] or 0.0
    values = repeats.partners.get(node, [])
    first = "%s reaches %s of what is usual (%s GB/s)" % (hosts[node], _format_share(share), _format_rate(known.usual))
    if len(values) < repeats.repeats_needed:
        verdict.undecided.append("%s; it has not been measured again yet." % first)
        return
    now = upper_median(values)
    again_ = "measured again with good partners, %s" % _format_share(now)
    slow = sum(value < repeats.rule.suspect for value in values)
    if now < repeats.limit(len(values)) and slow >= repeats.rule.nearly_all * len(values):
        evidence = "%s; %s." % (first, again_)
        verdict.slow_nodes.append({"host": hosts[node], "ratio": round(min(share, now), 3), "evidence": evidence})
    else:
        verdict.undecided.append("%s; %s." % (first, again_))


def _diagnose_link(verdict: Diagnosis, hosts: Sequence[str], pair: Pair, known: Levels, repeats: Repeats) -> None:
    """Name a link; a pair that is as fast as others when measured again is dropped."""
    ratio = known.ratios[pair]
    names = [hosts[node] for node in pair]
    first = "%s and %s reach %s of what is usual with each other" % (names[0], names[1], _format_share(ratio))
    values = repeats.ratios.get(pair, [])
    if repeats.is_cleared(pair):
        return
    if len(values) < repeats.repeats_needed:
        if ratio < repeats.rule.slow:
            verdict.undecided.append("%s; they have not been measured again yet." % first)
        return
    now = upper_median(values)
    ends = [repeats.partners.get(node, []) for node in pair]
    # The best value of each end counts: it shows what the end is capable of.
    good = [bool(values) and max(values) >= repeats.rule.suspect for values in ends]
    if now < repeats.limit(len(values)) and all(good):
        evidence = "%s; measured again %d times, %s; with others, %s and %s." % (
            first, len(values), _format_share(now), _format_share(max(ends[0])), _format_share(max(ends[1])))
        verdict.slow_links.append({"hosts": names, "ratio": round(now, 3), "evidence": evidence})
    else:
        verdict.undecided.append("%s; measured again, %s%s." % (
            first, _format_share(now), "" if all(good) else ", and an end was slow with others, too"))


def _list_gaps(count: int, known: Levels) -> list[str]:
    """List what this diagnosis cannot have noticed."""
    sentences = []
    if len(known.ratios) < count * (count - 1) // 2:
        sentences.append("%d of %d pairs have not been measured." % (
            count * (count - 1) // 2 - len(known.ratios), count * (count - 1) // 2))
    if count == 3:
        sentences.append("Of three nodes, a slow one looks like two that are nearer to each other.")
    if count == 4:
        sentences.append("Of four nodes, two slow ones look like two that are nearer to each other.")
    fast = sum(share > max(FAST_RATIO, 1 + 3 * known.noise) for share in pair_shares(known))
    if fast > FAST_SHARE * len(known.ratios):
        sentences.append("%d of %d pairs are much faster than what is usual: where the nodes are alike, half of them "
                         "or more may be slow." % (fast, len(known.ratios)))
    sentences.append("What makes all nodes equally slow is not seen: compare %s GB/s with what the network should give."
                     % _format_rate(known.usual))
    return sentences


def _list_names(hosts: Sequence[str], nodes: Sequence[int]) -> str:
    """List nodes for a sentence."""
    told = ", ".join(hosts[node] for node in nodes[:MAX_NAMED])
    return told if len(nodes) <= MAX_NAMED else "%s and %d more" % (told, len(nodes) - MAX_NAMED)


def _format_share(share: float) -> str:
    return "%d %%" % round(100 * share)


def _format_rate(value: float) -> str:
    return "%.3g" % value

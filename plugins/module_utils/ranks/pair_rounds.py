# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Schedule pairs of nodes in the fewest rounds, and select missing ones; also a part of the ranks' program. Pure."""

from __future__ import annotations

from typing import Any, Collection, Iterable, List, Sequence, Tuple

Pair = Tuple[int, int]
Rounds = List[List[Pair]]


def schedule(count: int) -> Rounds:
    """Schedule all pairs of ``count`` nodes in rounds of disjoint pairs (lower, higher), numbered from 0.

    By the circle method of round-robin tournaments: one node stays, the others move on by one place in each round; for
    an odd number the one that stays is nobody, and whoever meets it has a free round. Fewer rounds than these,
    ``count`` - 1 or for an odd number ``count``, are not possible.

    The order is such that an early stop leaves the most: of an even number every node has been measured after one
    round, of an odd one after two; and after any two rounds that follow each other the pairs make one chain of all
    nodes, by which every node is compared with every other.

    Raises:
        ValueError: there is no pair.
    """
    if count < 2:
        raise ValueError("%d node%s make no pair" % (count, "" if count == 1 else "s"))
    moving = count - 1 + count % 2
    rounds = []
    for turn in range(moving):
        pairs = [] if count % 2 else [(turn, moving)]
        for step in range(1, (moving + 1) // 2):
            one, other = (turn + step) % moving, (turn - step) % moving
            pairs.append((min(one, other), max(one, other)))
        rounds.append(sorted(pairs))
    return rounds


def missing_rounds(rounds: Iterable[Sequence[Pair]], measured: Collection[Pair]) -> Rounds:
    """Select the rounds that are not complete, each with the pairs that it lacks a value of."""
    known = set(measured)
    left = [[pair for pair in pairs if pair not in known] for pairs in rounds]
    return [pairs for pairs in left if pairs]


def translate_rows(rows: Iterable[Sequence[Any]], before: Sequence[str], now: Sequence[str]) -> list[list[Any]]:
    """Translate rows (node, node, ...) of some hosts to the numbers of other hosts, where both nodes are there."""
    place = {host: number for number, host in enumerate(now)}
    found = []
    for one, other, *more in rows:
        numbers = sorted(place[host] for host in (before[one], before[other]) if host in place)
        if len(numbers) == 2:
            found.append([*numbers, *more])
    return found


def pack_rounds(wanted: Iterable[Pair]) -> Rounds:
    """Pack pairs, those that matter most first, into few rounds of disjoint ones, each as early as its nodes are free.
    """
    rounds: Rounds = []
    busy: list[set] = []
    for pair in wanted:
        for pairs, nodes in zip(rounds, busy):
            if not nodes.intersection(pair):
                pairs.append(pair)
                nodes.update(pair)
                break
        else:
            rounds.append([pair])
            busy.append(set(pair))
    return rounds

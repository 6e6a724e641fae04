# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which pairs of nodes meet in which round, so that all pairs meet in the fewest rounds. Pure.

It is also part of the program that the ranks run.
"""

from __future__ import annotations

from typing import Any, Collection, Iterable, List, Sequence, Tuple

Pair = Tuple[int, int]
Rounds = List[List[Pair]]


def schedule(count: int) -> Rounds:
    """All pairs of ``count`` nodes in rounds of disjoint pairs: ``count`` - 1 of them, ``count`` for an odd number.

    By the circle method of round-robin tournaments: one node stays, the others move on by one place in each round; for
    an odd number the one that stays is nobody, and whoever meets it has a free round. Fewer rounds are not possible,
    for a node can meet only one other in each.

    The order is such that an early stop leaves the most: of an even number every node has been measured after one
    round, of an odd one after two; and after any two rounds that follow each other the pairs make one chain of all
    nodes, by which every node is compared with every other.

    Args:
        count: number of nodes, which are numbered from 0.

    Returns:
        the rounds, each a list of (lower, higher).

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


def missing(rounds: Iterable[Sequence[Pair]], measured: Collection[Pair]) -> Rounds:
    """The rounds that are not complete yet, each with the pairs that it lacks.

    Args:
        rounds: from :func:`schedule`.
        measured: pairs that have a value.
    """
    known = set(measured)
    left = [[pair for pair in pairs if pair not in known] for pairs in rounds]
    return [pairs for pairs in left if pairs]


def carried(rows: Iterable[Sequence[Any]], before: Sequence[str], now: Sequence[str]) -> list[list[Any]]:
    """Rows about pairs of some hosts as rows about the same pairs among other hosts, as far as both are there.

    Args:
        rows: (node, node, ...), numbers of ``before``.
        before: names of hosts.
        now: names of hosts.
    """
    place = {host: number for number, host in enumerate(now)}
    found = []
    for one, other, *more in rows:
        numbers = sorted(place[host] for host in (before[one], before[other]) if host in place)
        if len(numbers) == 2:
            found.append([*numbers, *more])
    return found


def packed(wanted: Iterable[Pair]) -> Rounds:
    """Pairs in rounds of disjoint ones, each pair as early as both its nodes are free; few rounds, not the fewest.

    Args:
        wanted: pairs, those that matter most first; one may be there more than once.
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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.pair_rounds import (
    carried,
    missing,
    packed,
    schedule,
)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 64, 560])
def test_s28_every_pair_meets_once_in_the_fewest_rounds_of_disjoint_pairs(count):
    rounds = schedule(count)
    assert len(rounds) == (count if count % 2 else count - 1)
    for pairs in rounds:
        nodes = [node for pair in pairs for node in pair]
        assert len(nodes) == len(set(nodes)) == count - count % 2
    assert sorted(pair for pairs in rounds for pair in pairs) == list(itertools.combinations(range(count), 2))


@pytest.mark.parametrize("count", [4, 5, 7, 12, 64])
def test_s28_an_early_stop_leaves_every_node_measured_and_compared_with_all(count):
    rounds = schedule(count)
    for first, second in zip(rounds, rounds[1:]):
        reached, edges = {first[0][0]}, [*first, *second]
        for _turn in range(count):
            reached |= {node for pair in edges if reached.intersection(pair) for node in pair}
        assert reached == set(range(count))


def test_nobody_alone_has_a_schedule():
    for count in (0, 1):
        with pytest.raises(ValueError, match="no pair"):
            schedule(count)


def test_what_is_missing_is_what_has_no_value():
    rounds = schedule(4)
    assert missing(rounds, rounds[0]) == rounds[1:]
    assert missing(rounds, [pair for pairs in rounds for pair in pairs]) == []
    assert missing(rounds, [*rounds[0], rounds[1][0]]) == [rounds[1][1:], rounds[2]]


def test_what_is_known_of_a_pair_is_known_of_it_among_other_hosts():
    rows = [[0, 1, 9.0], [0, 2, 8.0], [1, 2, 7.0]]
    assert carried(rows, ["a", "b", "c"], ["c", "x", "a"]) == [[0, 2, 8.0]]
    assert carried(rows, ["a", "b", "c"], ["a", "b", "c"]) == rows
    assert carried([], [], ["a"]) == []


def test_wanted_pairs_share_rounds_where_their_nodes_are_free():
    assert packed([(0, 1), (2, 3), (0, 1), (1, 2)]) == [[(0, 1), (2, 3)], [(0, 1)], [(1, 2)]]
    assert packed([]) == []

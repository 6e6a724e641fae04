# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The values that ranks hand around: whatever goes wrong on the way shows in them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import expected_values as rank_values


@pytest.mark.parametrize("size", [2, 3, 4, 7, 64])
def test_s21_the_sum_is_only_right_if_every_rank_contributed_once(size):
    positions = range(4 * size)

    def summed(ranks, shift=0):
        return [sum(rank_values.contribution(position + shift, rank, size) for rank in ranks) for position in positions]

    right = [rank_values.contributions(position, size) for position in positions]
    everyone = list(range(size))
    assert summed(everyone) == right
    for rank in everyone:
        others = [other for other in everyone if other != rank]
        assert summed(others) != right
        assert summed([*everyone, rank]) != right
        assert summed([*others, others[0]]) != right
    assert summed(everyone, shift=1) != right


def test_s21_even_one_element_shows_a_missing_rank():
    for size in (2, 3, 8):
        for missing in range(size):
            ranks = [rank for rank in range(size) if rank != missing]
            assert sum(rank_values.contribution(0, rank, size) for rank in ranks) != rank_values.contributions(0, size)


@pytest.mark.parametrize(("name", "size", "fits"), [
    ("float16", 256, True), ("float16", 257, False), ("bfloat16", 32, True), ("bfloat16", 33, False),
    ("float32", 9000, True),
])
def test_dense_sums_in_short_types_are_only_taken_where_they_stay_whole(name, size, fits):
    assert rank_values.exact(name, size) is fits
    largest = max(rank_values.contributions(position, size) for position in range(5 * size))
    assert largest <= 8 * size


@pytest.mark.parametrize("size", [2, 3, 64, 2240])
def test_s21_with_thousands_of_ranks_a_short_type_is_summed_one_addend_at_a_place(size):
    positions = range(4099)
    ranks = sorted({0, 1, 63, 64, size - 1} & set(range(size)))
    right = [rank_values.lones(position, size) for position in positions]
    assert min(right) >= 1 and max(right) <= 64 <= rank_values.WHOLE["bfloat16"]
    for position in [*range(70), 4098]:
        assert sum(rank_values.lone(position, rank, size) for rank in range(size)) == right[position]
    for rank in ranks:
        own = [rank_values.lone(position, rank, size) for position in positions]
        assert any(own), "one that is missing or doubled shows"


@pytest.mark.parametrize(("name", "apart"), [("bfloat16", 32), ("float16", 256), ("float32", 1 << 21)])
def test_s21_signatures_stay_whole_in_every_type_and_neighbours_are_told_apart(name, apart):
    assert rank_values.told_apart(name) == apart
    ranks = range(min(2 * apart, 600))
    values = [{rank_values.signature(position, rank, apart) for position in range(7)} for rank in ranks]
    assert max(map(max, values)) <= rank_values.WHOLE.get(name, 1 << 24)
    for one, other in zip(values, values[1:]):
        assert not one & other

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The values that ranks hand around: whatever goes wrong on the way shows in them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import expected_values, units


@pytest.mark.parametrize("size", [2, 3, 4, 7, 64])
def test_s21_the_sum_is_only_right_if_every_rank_contributed_once(size):
    positions = range(4 * size)

    def summed(ranks, shift=0):
        return [
            sum(expected_values.contribution(position + shift, rank, size) for rank in ranks) for position in positions
        ]

    right = [expected_values.contribution_sum(position, size) for position in positions]
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
            partial = sum(expected_values.contribution(0, rank, size) for rank in ranks)
            assert partial != expected_values.contribution_sum(0, size)


@pytest.mark.parametrize(("name", "size", "fits"), [
    ("float16", 256, True), ("float16", 257, False), ("bfloat16", 32, True), ("bfloat16", 33, False),
    ("float32", 9000, True),
])
def test_dense_sums_in_short_types_are_only_taken_where_they_stay_whole(name, size, fits):
    assert expected_values.is_exact(name, size) is fits
    largest = max(expected_values.contribution_sum(position, size) for position in range(5 * size))
    assert largest <= 8 * size


@pytest.mark.parametrize("size", [2, 3, 64, 2240])
def test_s21_with_thousands_of_ranks_a_short_type_is_summed_one_addend_at_a_place(size):
    positions = range(4099)
    ranks = sorted({0, 1, 63, 64, size - 1} & set(range(size)))
    right = [expected_values.sparse_sum(position, size) for position in positions]
    assert min(right) >= 1 and max(right) <= 64 <= expected_values.WHOLE["bfloat16"]
    for position in [*range(70), 4098]:
        assert sum(expected_values.sparse_contribution(position, rank, size) for rank in range(size)) == right[position]
    for rank in ranks:
        own = [expected_values.sparse_contribution(position, rank, size) for position in positions]
        assert any(own), "one that is missing or doubled shows"


@pytest.mark.parametrize(("name", "apart"), [("bfloat16", 32), ("float16", 256), ("float32", 1 << 21)])
def test_s21_signatures_stay_whole_in_every_type_and_neighbours_are_told_apart(name, apart):
    assert expected_values.distinct_ranks(name) == apart
    ranks = range(min(2 * apart, 600))
    values = [{expected_values.signature(position, rank, apart) for position in range(7)} for rank in ranks]
    assert max(map(max, values)) <= expected_values.WHOLE.get(name, 1 << 24)
    for one, other in zip(values, values[1:]):
        assert not one & other


def naive(operation, given):
    """What each rank has afterwards, from what each gave, by the definition of the operation."""
    ranks = len(given)
    part = len(given[0]) // ranks
    total = [sum(column) for column in zip(*given)]
    return {
        "all_reduce": lambda rank: total,
        "broadcast": lambda rank: given[0],
        "all_gather": lambda rank: [number for one in given for number in one],
        "reduce_scatter": lambda rank: total[rank * part:(rank + 1) * part],
        "all_to_all": lambda rank: [number for one in given for number in one[rank * part:(rank + 1) * part]],
        "send_recv": lambda rank: given[(rank - 1) % ranks],
    }[operation]


def contribution(who, size, offset, length):
    once = expected_values.period(who, size)
    return [once[(offset + place) % expected_values.PERIOD] for place in range(length)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("operation", sorted(units.FACTORS))
def test_s30_what_is_expected_is_what_the_operation_gives(operation, ranks):
    count = 60 * ranks
    plans = [expected_values.layout(operation, rank, ranks, count) for rank in range(ranks)]
    given = [contribution(rank, ranks, 7, plan.source) for rank, plan in enumerate(plans)]
    result = naive(operation, given)
    for rank, plan in enumerate(plans):
        expected = [None] * (plan.target or plan.source)
        for part in plan.result:
            expected[part.start:part.start + part.length] = contribution(
                part.rank, ranks, part.offset + 7, part.length)
        assert expected == result(rank)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_s30_one_contribution_that_is_missing_doubled_or_shifted_shows(ranks):
    total = expected_values.period(expected_values.TOTAL, ranks)
    given = [list(expected_values.period(rank, ranks)) for rank in range(ranks)]
    right = [sum(column) for column in zip(*given)]
    assert right == list(total)
    for wrong in (given[1:], [*given, given[0]], [given[0][1:] + given[0][:1], *given[1:]], [*given[1:], given[1]]):
        assert [sum(column) for column in zip(*wrong)] != right


def test_s30_sums_of_very_many_ranks_are_exact():
    assert max(expected_values.period(expected_values.TOTAL, 100000)) < 1 << 24


def test_s30_no_shift_by_a_power_of_two_looks_right():
    once = list(expected_values.period(1, 4))
    for power in range(34):
        shift = (1 << power) % expected_values.PERIOD
        assert once[shift:] + once[:shift] != once

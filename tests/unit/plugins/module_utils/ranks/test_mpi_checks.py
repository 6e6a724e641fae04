# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The checks of MPI's operations: with right ones nothing is said, and no fault goes unnoticed."""

from __future__ import annotations

import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import collective_checks as rank_collectives
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import mpi_checks as rank_arrays

SUM = "sum"


class World:
    """MPI's operations between threads; ``fault`` is the name of one, with how its result is spoilt.

    Args:
        size: how many ranks.
        fault: name of an operation, and a function of what a rank would get.
    """

    def __init__(self, size, fault=("", None)):
        self.size, self.fault = size, fault
        self.given = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)
        self.own = threading.local()

    def all_of(self, values):
        self.given[self.own.rank] = list(values)
        self.barrier.wait()
        given = list(self.given)
        self.barrier.wait()
        return given

    def give(self, operation, target, values):
        name, spoil = self.fault
        values = spoil(list(values)) if name == operation else values
        for index, value in enumerate(values):
            target[index] = type(target[0])(value)

    def Allreduce(self, mine, got, op):
        self.give("Allreduce", got, map(sum, zip(*self.all_of(mine))))

    def Reduce_scatter_block(self, mine, got, op):
        first = self.own.rank * len(got)
        sums = [sum(values) for values in zip(*self.all_of(mine))]
        self.give("Reduce_scatter_block", got, sums[first:first + len(got)])

    def Bcast(self, values, root):
        self.give("Bcast", values, self.all_of(values)[root])

    def Allgather(self, mine, got):
        self.give("Allgather", got, [value for part in self.all_of(mine) for value in part])

    def Sendrecv(self, mine, target, recvbuf, source):
        self.give("Sendrecv", recvbuf, self.all_of(mine)[source])


class Mpi:
    SUM = SUM

    def __init__(self, world):
        self.COMM_WORLD = world


def checked(world):
    """What each rank finds wrong, and the note of the first."""
    problems = [[] for _rank in range(world.size)]
    outcomes = [None] * world.size

    def run(rank):
        world.own.rank = rank
        outcomes[rank] = rank_arrays.Arrays(Mpi(world), rank, world.size, problems[rank]).check()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems, outcomes[0]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_s21_right_values_of_all_operations_pass_with_any_number_of_ranks(size):
    problems, outcome = checked(World(size))
    assert problems == [[] for _rank in range(size)]
    operations = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", *(["send_recv"] if size > 1 else [])]
    assert outcome.note == ", ".join(operations) + " of float64, float32, int32, int64"
    assert outcome.lacks == ({} if size > 1 else {"send_recv": "there is one rank"})


def swapped(values):
    half = len(values) // 2
    return values[half:] + values[:half]


def one_more(values):
    return [*values[:-1], values[-1] + 1]


@pytest.mark.parametrize(("operation", "said"), [
    ("Allreduce", "sum of"), ("Reduce_scatter_block", "reduce_scatter of"), ("Bcast", "broadcast of"),
    ("Allgather", "all_gather of"), ("Sendrecv", "receive of"),
])
@pytest.mark.parametrize("spoil", [one_more, swapped])
def test_s21_one_wrong_or_misplaced_value_of_any_operation_is_refused(operation, said, spoil):
    problems, _outcome = checked(World(3, (operation, spoil)))
    for found in problems:
        assert found and all(text.startswith(said) for text in found), found
    assert "got" in problems[0][0] and "expected" in problems[0][0]


def test_s21_what_another_rank_has_sent_than_the_one_that_should_is_refused():
    world = World(4)
    world.Sendrecv = lambda mine, target, recvbuf, source: world.give("none", recvbuf, world.all_of(mine)[source - 1])
    problems, _outcome = checked(world)
    for found in problems:
        assert any(text.startswith("receive of 1 ") for text in found), "even one element shows it"


def test_ranks_send_to_the_next_one_and_to_the_farthest():
    assert [rank_collectives.shifts(size) for size in (1, 2, 3, 4, 8)] == [[], [1], [1], [1, 2], [1, 4]]

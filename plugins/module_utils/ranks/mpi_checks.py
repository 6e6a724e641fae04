# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check MPI itself, through mpi4py and arrays of the standard library: PyTorch need not be there."""

from __future__ import annotations

import array
from typing import Any, Iterable

from .collective_checks import Outcome, ring_shifts
from .expected_values import COUNTS, contribution, contribution_sum, part_size, signature

TYPES = (("d", "float64"), ("f", "float32"), ("i", "int32"), ("q", "int64"))
"""Codes of the module array, of which mpi4py knows MPI's types, and their names."""


class MpiChecks:
    """Check MPI's operations on one communicator; ``mpi`` is the Python module ``mpi4py.MPI``."""

    def __init__(self, mpi: Any, rank: int, size: int, problems: list[str]) -> None:
        self.mpi, self.world, self.rank, self.size = mpi, mpi.COMM_WORLD, rank, size
        self.problems = problems

    def check(self) -> Outcome:
        """Check all operations with all types."""
        for code, name in TYPES:
            for count in COUNTS[:2]:
                self._check_reductions(code, name, count)
                self._check_transfers(code, name, count)
        done = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", *(["send_recv"] if self.size > 1 else [])]
        lacks = {} if self.size > 1 else {"send_recv": "there is one rank"}
        return Outcome("%s of %s" % (", ".join(done), ", ".join(name for _code, name in TYPES)), lacks)

    def _compare(self, what: str, got: Any, expected: Iterable[int]) -> None:
        right = list(expected)
        wrong = [i for i, value in enumerate(right) if got[i] != value]
        if wrong:
            self.problems.append("%s: index %d: got %s, expected %s (%d of %d values are wrong)" % (
                what, wrong[0], got[wrong[0]], right[wrong[0]], len(wrong), len(right)))

    def _check_reductions(self, code: str, name: str, count: int) -> None:
        mine = array.array(code, [contribution(i, self.rank, self.size) for i in range(count)])
        got = _blank_array(code, count)
        self.world.Allreduce(mine, got, op=self.mpi.SUM)
        self._compare("sum of %d %s" % (count, name), got, (contribution_sum(i, self.size) for i in range(count)))
        part = part_size(count, self.size)
        mine = array.array(code, [contribution(i, self.rank, self.size) for i in range(part * self.size)])
        got, first = _blank_array(code, part), self.rank * part
        self.world.Reduce_scatter_block(mine, got, op=self.mpi.SUM)
        expected = (contribution_sum(i, self.size) for i in range(first, first + part))
        self._compare("reduce_scatter of %d %s" % (part, name), got, expected)

    def _check_transfers(self, code: str, name: str, count: int) -> None:
        root = self.size - 1
        got = _signature_array(code, count, root) if self.rank == root else _blank_array(code, count)
        self.world.Bcast(got, root=root)
        self._compare("broadcast of %d %s from rank %d" % (count, name, root), got, _signature_array(code, count, root))
        part = part_size(count, self.size)
        got = _blank_array(code, part * self.size)
        self.world.Allgather(_signature_array(code, part, self.rank), got)
        expected = [signature(i, rank) for rank in range(self.size) for i in range(part)]
        self._compare("all_gather of %d %s" % (part, name), got, expected)
        for shift in ring_shifts(self.size):
            target, source = (self.rank + shift) % self.size, (self.rank - shift) % self.size
            got = _blank_array(code, count)
            self.world.Sendrecv(_signature_array(code, count, self.rank), target, recvbuf=got, source=source)
            what = "receive of %d %s from rank %d" % (count, name, source)
            self._compare(what, got, _signature_array(code, count, source))


def _signature_array(code: str, count: int, rank: int) -> Any:
    return array.array(code, [signature(i, rank) for i in range(count)])


def _blank_array(code: str, count: int) -> Any:
    return array.array(code, [-1]) * count

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute the values that ranks exchange in checks and benchmarks, and the results that must come out.

All are whole numbers such that a contribution that is missing, doubled, swapped or shifted shows in the result.
Functions of positions take Python numbers and tensors alike. Buffers of a benchmark repeat after :data:`PERIOD`
elements, a prime: they are made by copying memory and checked by comparing memory, also of 16 GiB, and a shift by a
power of two shows. All their sums are whole numbers that a float32 holds exactly.
"""

from __future__ import annotations

import array
import functools
from typing import Any, NamedTuple

COUNTS = (1, 4099, 1048583)
"""Elements of the tensors: one, and two primes, so that no number of ranks divides them evenly."""

TOLERANCE = {"float16": 2.0**-8, "bfloat16": 2.0**-5, "float32": 1e-6, "float64": 1e-12}
"""Relative error that an average may have; sums are whole numbers and have none."""

WHOLE = {"float16": 2048, "bfloat16": 256}
"""Whole numbers up to here are exact in the short types (IEEE 754 binary16: 11 bits; bfloat16: 8 bits)."""

SPARSE_VALUES = 64
"""Different values of ranks that are alone at their positions."""


def contribution(position: Any, rank: int, size: int) -> Any:
    """Compute what ``rank`` adds at ``position``: a small number, larger at every ``size``-th position."""
    return position % 5 + 1 + 3 * (rank + 1) * (position % size == rank)


def contribution_sum(position: Any, size: int) -> Any:
    """Compute the sum of all ranks' contributions at ``position``; one missing, doubled or shifted shows."""
    return (position % 5 + 1) * size + 3 * (position % size + 1)


def sparse_contribution(position: Any, rank: int, size: int) -> Any:
    """Compute what ``rank`` adds where dense sums are too large for a short type: 0 but at its positions."""
    return (rank % SPARSE_VALUES + 1) * (position % size == rank)


def sparse_sum(position: Any, size: int) -> Any:
    """Compute the sum of all :func:`sparse_contribution` at ``position``: one addend, for any size."""
    return position % size % SPARSE_VALUES + 1


def signature(position: Any, rank: Any, apart: int = 1 << 21) -> Any:
    """Compute what ``rank`` sends unchanged: no two ranks of ``apart`` have the same value at any position."""
    return position % 7 + 1 + 7 * (rank % apart)


def distinct_ranks(name: str) -> int:
    """Compute how many ranks have signatures that are exact in this type."""
    return WHOLE.get(name, 1 << 24) // 8


def is_exact(name: str, size: int) -> bool:
    """Tell whether sums over ``size`` ranks are exact in this type: the largest is 8 times ``size``."""
    return 8 * size <= WHOLE.get(name, 1 << 24)


def part_size(count: int, size: int) -> int:
    """Compute the elements of each rank where all together shall have about ``count``; at least one."""
    return max(1, count // size)


def contribution_tensor(torch: Any, count: int, rank: int, size: int, dtype: Any, device: str) -> Any:
    """Make a rank's tensor for a sum."""
    return contribution(torch.arange(count, device=device), rank, size).to(dtype)


def sum_tensor(torch: Any, count: int, size: int, device: str) -> Any:
    """Make the sum of all ranks' tensors, in float64."""
    return contribution_sum(torch.arange(count, device=device), size).to(torch.float64)


def describe_difference(got: Any, expected: Any, tolerance: float = 0.0) -> str | None:
    """Describe where ``got`` is first wrong, as the end of a sentence; None where it is right."""
    if got.numel() != expected.numel():
        return "got %d values, expected %d" % (got.numel(), expected.numel())
    got, expected = got.double(), expected.double()
    wrong = ~((got - expected).abs() <= expected.abs() * tolerance)
    indices = wrong.nonzero()
    if len(indices) == 0:
        return None
    first = int(indices[0])
    return "index %d: got %s, expected %s (%d of %d values are wrong)" % (
        first, got[first].item(), expected[first].item(), len(indices), got.numel())


# --- buffers of a benchmark ------------------------------------------------------------------------------------------

PERIOD = 16381

TOTAL = -1
"""Instead of a rank: the sum of what all have given."""


class Part(NamedTuple):
    """Describe a stretch of a result: where it begins in the contribution of a rank, or of :data:`TOTAL`."""

    start: int
    length: int
    rank: int
    offset: int


class Layout(NamedTuple):
    """Describe the buffers of a rank in one operation: elements that go in, and come out (0: in the same place)."""

    source: int
    target: int
    contributes: bool
    repeatable: bool
    """Whether the same comes out when it is done again on what it has left."""
    result: list[Part]


def layout(operation: str, rank: int, size: int, count: int) -> Layout:
    """Compute the buffers of a rank, and what its result consists of; a broadcast is from rank 0."""
    part = count // size
    if operation == "all_reduce":
        return Layout(count, 0, True, False, [Part(0, count, TOTAL, 0)])
    if operation == "broadcast":
        return Layout(count, 0, rank == 0, True, [Part(0, count, 0, 0)])
    if operation == "all_gather":
        return Layout(part, count, True, True, [Part(other * part, part, other, 0) for other in range(size)])
    if operation == "reduce_scatter":
        return Layout(count, part, True, True, [Part(0, part, TOTAL, rank * part)])
    if operation == "all_to_all":
        parts = [Part(other * part, part, other, rank * part) for other in range(size)]
        return Layout(count, count, True, True, parts)
    return Layout(count, count, True, True, [Part(0, count, (rank - 1) % size, 0)])


@functools.lru_cache(maxsize=8)
def period(rank: int, size: int) -> array.array:
    """Compute the elements that a rank's contribution repeats, or :data:`TOTAL`'s, as float32; not to be changed.

    Position and rank tell them apart: a small number by position, and more at each ``size``-th, so that one
    contribution that is missing, doubled or in another's place shows in a sum.
    """
    if rank == TOTAL:
        return array.array("f", [(q % 5 + 1) * size + 3 * (q % size % 64 + 1) for q in range(PERIOD)])
    found = array.array("f", [q % 5 + 1 for q in range(PERIOD)])
    for q in range(rank, PERIOD, size):
        found[q] += 3 * (rank % 64 + 1)
    return found

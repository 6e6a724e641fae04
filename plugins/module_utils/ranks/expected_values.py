# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The values that ranks hand around: whole numbers such that a rank missing, doubled, swapped or shifted shows.

Everything works alike on a Python number and on a tensor of positions.
"""

from __future__ import annotations

from typing import Any

COUNTS = (1, 4099, 1048583)
"""Elements of the tensors: one, and two primes, so that no number of ranks divides them evenly."""

TOLERANCE = {"float16": 2.0**-8, "bfloat16": 2.0**-5, "float32": 1e-6, "float64": 1e-12}
"""Relative error that an average may have; sums are whole numbers and have none."""

WHOLE = {"float16": 2048, "bfloat16": 256}
"""Whole numbers up to here are exact in the short types (IEEE 754 binary16: 11 bits; bfloat16: 8 bits)."""

LONE = 64
"""Different values of ranks that are alone at their positions."""


def contribution(position: Any, rank: int, size: int) -> Any:
    """What ``rank`` puts at ``position``: a small number that depends on the position, more at every ``size``-th."""
    return position % 5 + 1 + 3 * (rank + 1) * (position % size == rank)


def contributions(position: Any, size: int) -> Any:
    """The sum of what all ranks put at ``position``: one missing, doubled or shifted contribution shows in it."""
    return (position % 5 + 1) * size + 3 * (position % size + 1)


def lone(position: Any, rank: int, size: int) -> Any:
    """What ``rank`` puts where many ranks' sums would be too large for a short type: nothing but at its positions."""
    return (rank % LONE + 1) * (position % size == rank)


def lones(position: Any, size: int) -> Any:
    """The sum of what all ranks put at ``position`` by :func:`lone`: one addend, however many ranks there are."""
    return position % size % LONE + 1


def signature(position: Any, rank: Any, apart: int = 1 << 21) -> Any:
    """What ``rank`` sends as it is, without sums: no two ranks have the same anywhere, so that each value names one.

    Args:
        position: in the tensor.
        rank: whose it is.
        apart: how many ranks can be told apart (see :func:`told_apart`).
    """
    return position % 7 + 1 + 7 * (rank % apart)


def told_apart(name: str) -> int:
    """How many ranks' signatures stay whole in this type."""
    return WHOLE.get(name, 1 << 24) // 8


def exact(name: str, size: int) -> bool:
    """Whether sums over ``size`` ranks stay whole in this type: the largest is 8 times the number of ranks."""
    return 8 * size <= WHOLE.get(name, 1 << 24)


def share(count: int, size: int) -> int:
    """Elements for each rank where all of them together shall have about ``count``; one at least."""
    return max(1, count // size)


def pattern(torch: Any, count: int, rank: int, size: int, dtype: Any, device: str) -> Any:
    """A rank's tensor for a sum."""
    return contribution(torch.arange(count, device=device), rank, size).to(dtype)


def total(torch: Any, count: int, size: int, device: str) -> Any:
    """The sum of all ranks' tensors, in float64."""
    return contributions(torch.arange(count, device=device), size).to(torch.float64)


def difference(got: Any, expected: Any, tolerance: float = 0.0) -> str | None:
    """Where ``got`` is first wrong, as the end of a sentence; None where it is right."""
    if got.numel() != expected.numel():
        return "got %d values, expected %d" % (got.numel(), expected.numel())
    got, expected = got.double(), expected.double()
    wrong = ~((got - expected).abs() <= expected.abs() * tolerance)
    indices = wrong.nonzero()
    if len(indices) == 0:
        return None
    first = int(indices[0])
    return "index %d: got %s, expected %s (%d of %d values are wrong)" % (
        first, got[first].item(), expected[first].item(), len(indices), got.numel()
    )

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The numbers that a benchmark sends around, and what must come out of them. Pure.

What a rank gives repeats itself after :data:`PERIOD` elements, a prime: it is made by copying memory and checked by
comparing memory, also of 16 GiB, and still no shift by a power of two looks right. All sums are whole numbers that a
float32 holds exactly.
"""

from __future__ import annotations

import array
import functools
from typing import NamedTuple

PERIOD = 16381

TOTAL = -1
"""Instead of a rank: the sum of what all have given."""


class Part(NamedTuple):
    """A stretch of a result."""

    start: int
    length: int
    who: int
    """The rank whose contribution it is, or :data:`TOTAL`."""
    offset: int
    """Where in that contribution it begins."""


class Layout(NamedTuple):
    """The buffers of a rank in one operation."""

    source: int
    """Elements that go in."""
    target: int
    """Elements that come out; 0: in the place of what went in."""
    given: bool
    """Whether this rank gives anything."""
    repeats: bool
    """Whether the same comes out when it is done again on what it has left."""
    result: list[Part]


def layout(operation: str, rank: int, size: int, count: int) -> Layout:
    """What a rank has and gets.

    Args:
        operation: one of :data:`.bandwidth.FACTORS`; a broadcast is from rank 0.
        rank: which one this is.
        size: how many there are.
        count: elements, from :func:`.bandwidth.elements`.
    """
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
        found = [Part(other * part, part, other, rank * part) for other in range(size)]
        return Layout(count, count, True, True, found)
    return Layout(count, count, True, True, [Part(0, count, (rank - 1) % size, 0)])


@functools.lru_cache(maxsize=1)
def _by_position() -> array.array:
    """What depends on the position alone."""
    return array.array("f", [q % 5 + 1 for q in range(PERIOD)])


@functools.lru_cache(maxsize=8)
def period(who: int, size: int) -> array.array:
    """The elements that a contribution repeats, as float32.

    Position and rank tell them apart: a small number by position, and more at each ``size``-th, so that one
    contribution that is missing, doubled or in another's place shows in a sum.

    Args:
        who: a rank, or :data:`TOTAL`.
        size: how many ranks there are.

    Returns:
        What other callers get as well: not to be changed.
    """
    if who == TOTAL:
        return array.array("f", [(q % 5 + 1) * size + 3 * (q % size % 64 + 1) for q in range(PERIOD)])
    found = _by_position()[:]
    for q in range(who, PERIOD, size):
        found[q] += 3 * (who % 64 + 1)
    return found

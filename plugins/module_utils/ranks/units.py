# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse and format sizes, and compute bandwidths and latencies. Pure.

Bandwidths are in GB/s, 10^9 bytes a second; times in microseconds; sizes in bytes. The two bandwidths are those of
nccl-tests (its doc/PERFORMANCE.md): the algorithm bandwidth is size over time; the bus bandwidth is that times a factor
of the operation and the number of ranks, so that it can be held against what the hardware is able to do.
"""

from __future__ import annotations

import re
import statistics
from typing import Any, Sequence

ITEM_BYTES = 4
"""Bytes of an element, which is a float32."""

ALIGNMENT = 16
"""Bytes by which the part of each rank is a multiple, as in nccl-tests, so that no kernel has to work unaligned."""

BACKENDS = ("gloo", "mpi", "nccl")

FACTORS = {
    "all_reduce": lambda ranks: 2.0 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / float(ranks),
    "reduce_scatter": lambda ranks: (ranks - 1) / float(ranks),
    "all_to_all": lambda ranks: (ranks - 1) / float(ranks),
    "broadcast": lambda ranks: 1.0,
    "send_recv": lambda ranks: 1.0,
}
"""Operations, and what turns their algorithm bandwidth into the bus bandwidth. ``send_recv`` is a ring: every rank
sends to the next and receives from the one before."""

PARTITIONED = ("all_gather", "reduce_scatter", "all_to_all")
"""Operations whose size is that of all ranks' parts together: nccl-tests' convention."""

_UNITS = {"": 0, "b": 0, "bytes": 0, "k": 1, "kib": 1, "m": 2, "mib": 2, "g": 3, "gib": 3, "t": 4, "tib": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\Z", re.IGNORECASE)


def parse_size(given: object) -> int:
    """Parse bytes from a number or ``1 GiB``, ``1GiB``, ``1G``, ``1073741824``; ValueErrors are ends of sentences about
    it.
    """
    found = _SIZE.match(str(given).strip()) if isinstance(given, (int, str)) and not isinstance(given, bool) else None
    unit = found.group(2).lower() if found else ""
    if not found or unit not in _UNITS:
        hint = "; KB, MB and GB mean different things to different people" if unit in ("kb", "mb", "gb", "tb") else ""
        raise ValueError("is not a size: write bytes, or a number with KiB, MiB or GiB%s" % hint)
    count = float(found.group(1)) * 1024 ** _UNITS[unit]
    if count != int(count) or count < 1:
        raise ValueError("is not a whole number of bytes from 1 on")
    return int(count)


def format_size(count: int) -> str:
    """Format bytes exactly: ``32 KiB``, ``1 GiB``, ``1000 bytes``."""
    power = 0
    while power < 4 and count % 1024 == 0 and count:
        count, power = count // 1024, power + 1
    return "%d %s" % (count, ("bytes", "KiB", "MiB", "GiB", "TiB")[power])


def element_count(operation: str, size: int, ranks: int) -> int:
    """Compute the elements of so many bytes; where each rank has a part, a multiple of the ranks; 0: too small."""
    if operation not in PARTITIONED:
        return size // ITEM_BYTES
    part = size // ranks // ALIGNMENT * ALIGNMENT
    return part * ranks // ITEM_BYTES


# --- what the figures mean -------------------------------------------------------------------------------------------


def bandwidth_row(
    operation: str, size: int, count: int, batches: Sequence[float], iterations: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Compute the result's row of one size.

    Args:
        count: elements that it was, see :func:`element_count`.
        batches: of each rank the seconds that all trials took, one behind the other; nccl-tests takes the mean over
            the ranks (its ``--average 1``), and so does this.
        iterations: of each rank the seconds of each trial.

    Returns:
        ``bytes``, ``trials``, ``algbw``, ``busbw``, ``microseconds`` (of the slowest rank in each trial: ``min``,
        ``median``, ``mean``, ``max``), ``spread`` (the longest trial less the shortest, as a part of the median).
    """
    trials = len(iterations[0])
    seconds = max(statistics.fmean(batches) / trials, 1e-9)
    algorithm = count * ITEM_BYTES / seconds / 1e9
    slowest = slowest_times(iterations)
    middle = statistics.median(slowest)
    times = {"min": min(slowest), "median": middle, "mean": statistics.fmean(slowest), "max": max(slowest)}
    return {
        "bytes": size, "trials": trials, "algbw": round_figure(algorithm),
        "busbw": round_figure(algorithm * FACTORS[operation](len(batches))),
        "microseconds": {name: round_figure(seconds * 1e6) for name, seconds in times.items()},
        "spread": round_figure((max(slowest) - min(slowest)) / max(middle, 1e-9)),
    }


def slowest_times(iterations: Sequence[Sequence[float]]) -> list[float]:
    """Select of each trial the time of the slowest rank."""
    return [max(times) for times in zip(*iterations)]


def latency_row(size: int, seconds: Sequence[float]) -> dict[str, Any]:
    """Compute the latency of one size, as osu_latency does: half of a round trip.

    Returns:
        ``bytes``, ``iterations``, ``microseconds`` (``min``, ``median``, ``p99``, ``max``), and ``bandwidth`` (GB/s one
        way, one message at a time, of the median).
    """
    ways = sorted(time / 2 for time in seconds)
    middle = statistics.median(ways)
    times = {"min": ways[0], "median": middle, "p99": ways[-(-99 * len(ways) // 100) - 1], "max": ways[-1]}
    return {
        "bytes": size, "iterations": len(ways), "bandwidth": round_figure(size / max(middle, 1e-9) / 1e9),
        "microseconds": {name: round_figure(seconds * 1e6) for name, seconds in times.items()}}


def counted(number: int, thing: str) -> str:
    """Format ``1 node``, ``2 nodes``."""
    return "%d %s%s" % (number, thing, "s" * (number != 1))


def round_figure(number: float) -> float:
    """Round to five digits, which is more than such a figure has."""
    return float("%.5g" % number)

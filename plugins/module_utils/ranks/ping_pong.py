# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the latency of messages between two ranks, as osu_latency does, over several sizes."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Sequence

from . import expected_values, units
from .time_budget import TimeBudget, trials_within
from .transport import Transport

RowCallback = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Takes the set that a row belongs to, and the row, as soon as it is measured."""


def measure_latency(
    transport: Transport, plan: Mapping[str, Any], hosts: Sequence[str], on_row: RowCallback
) -> tuple[list[dict[str, Any]], str]:
    """Measure messages between rank 0 and the last rank of another node, over all sizes of a plan.

    Returns:
        The rows, see :func:`.units.latency_row`; and why there is none, else an empty text.
    """
    if transport.size == 1:
        return [], "One rank alone has nobody to send to."
    away = [rank for rank in range(transport.size) if hosts[rank] != hosts[0]]
    far = away[-1] if away else transport.size - 1
    rows = []
    budget = TimeBudget(plan["seconds"], len(plan["latency"]["bytes"]))
    for size in plan["latency"]["bytes"]:
        line = _measure_size(transport, plan["latency"]["iterations"], size, far, budget)
        line.update(
            backend=transport.backend, provider=transport.provider, device=transport.device, ranks=[0, far],
            hosts=[hosts[0], hosts[far]])
        rows.append(line)
        on_row({"operation": "latency"}, line)
    return rows, ""


def _measure_size(transport: Transport, trips: int, size: int, far: int, budget: TimeBudget) -> dict[str, Any]:
    """Measure messages of one size between two ranks, while the others wait."""
    # Fewer round trips are enough for long messages, whose time is that of their bytes.
    trips = trips if size <= 1 << 16 else max(10, trips // (10 if size <= 1 << 22 else 100))
    warmups = max(1, min(100, trips // 10))
    prepared, warm = None, 0.0
    if transport.rank in (0, far):
        part = expected_values.Part(0, size // units.ITEM_BYTES, far if transport.rank == 0 else 0, 0)
        layout = expected_values.Layout(part.length, part.length, True, True, [part])
        prepared = transport.prepare("message", layout, part.rank)
        prepared.fill(1)
        prepared.step()
        transport.synchronize()
        started = time.perf_counter()
        for _number in range(warmups):
            prepared.step()
        transport.synchronize()
        warm = (time.perf_counter() - started) / warmups
    cost = max(transport.all_gather(warm))
    trips = trials_within(trips, budget.share(), cost)
    times: list[float] = []
    wrong = ""
    if prepared:
        _batch, times = transport.time_trials(prepared.step, trips, False, alone=True)
        wrong = prepared.mismatch(1)
        prepared.release()
    gathered = transport.all_gather([times, wrong, budget.elapsed()])
    budget.spent, budget.left = max(peer[2] for peer in gathered), budget.left - 1
    line = units.latency_row(size, gathered[0][0])
    wrong = gathered[0][1] or gathered[far][1]
    line["verified"] = not wrong
    if wrong:
        line["wrong"] = wrong
    return line

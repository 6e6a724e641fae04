# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Time collective operations and messages over many sizes on each rank, and verify their values.

Every decision (which sizes fit, how many trials) is made from what all ranks have told each other, so that all make the
same one. A transport connects them, :mod:`.transport_torch` or :mod:`.transport_mpi`. Python 3.8 or later.
"""

from __future__ import annotations

import collections
import socket
import time
from typing import Any, Mapping

from . import expected_values, units
from .ping_pong import RowCallback, measure_latency
from .plan import plan_sizes, resolve_plan
from .time_budget import TimeBudget, trials_within
from .transport import Operation, Transport
from .transport_mpi import MpiTransport
from .transport_torch import TorchTransport

BUFFER_FRACTIONS = {"cuda": 0.9, "cpu": 0.5}
"""Share of the free memory that the buffers may take; the rest is for the libraries, which copy on a CPU."""


def measure_in_group(
    torch: Any, backend: str, device: str, rank: int, size: int, plan: Mapping[str, Any], group: Any = None,
    on_row: RowCallback | None = None,
) -> dict[str, Any]:
    """Run the benchmark in an existing process group; all its ranks call this.

    Args:
        torch: the module; None for MPI through mpi4py.
        backend: ``gloo``, ``mpi`` or ``nccl``.
        device: ``cpu``, or ``cuda``, whose current device is this rank's.
        plan: see :func:`.plan.resolve_plan`.
        group: torch.distributed's group, None for all ranks; without torch a communicator of mpi4py.

    Returns:
        The same on every rank: ``hosts`` of the ranks; ``measurements`` is a list of sets {``backend``, ``provider``,
        ``operation``, ``ranks``, ``nodes``, ``device``, ``dtype``, ``rows``: [see :func:`.units.bandwidth_row`, and
        ``verified``, ``wrong`` where it is not], ``left_out``: sentences}; ``latency`` is a list of rows, see
        :func:`.units.latency_row`, and ``backend``, ``provider``, ``hosts``, ``ranks``, ``verified``;
        ``latency_left_out`` says why there is none.

    Raises:
        ValueError: the plan cannot be used.
        RuntimeError: an operation failed on a part of the ranks.
    """
    resolved = resolve_plan(plan)
    transport: Transport
    if torch is None:
        transport = MpiTransport(group, rank, size)
    else:
        transport = TorchTransport(torch, backend, device, rank, size, group)
    return Benchmark(transport, resolved, on_row).run()


class Benchmark:
    """Run all operations of a plan over one transport."""

    def __init__(self, transport: Transport, plan: Mapping[str, Any], on_row: RowCallback | None) -> None:
        self.transport, self.plan = transport, plan
        self.on_row = on_row or (lambda group, line: None)
        self.hosts: list[str] = transport.all_gather(socket.gethostname())

    def run(self) -> dict[str, Any]:
        """Run all operations of the plan, then the messages."""
        measured = [self.measure_operation(operation) for operation in self.plan["operations"]]
        latency: list[dict[str, Any]] = []
        left_out = ""
        if self.plan["latency"]:
            latency, left_out = measure_latency(self.transport, self.plan, self.hosts, self.on_row)
        hosts = list(dict.fromkeys(self.hosts))
        return {"hosts": hosts, "measurements": measured, "latency": latency, "latency_left_out": left_out}

    def measure_operation(self, operation: str) -> dict[str, Any]:
        """Measure one operation over all sizes."""
        transport, ranks = self.transport, self.transport.size
        group: dict[str, Any] = {
            "backend": transport.backend, "provider": transport.provider, "operation": operation, "ranks": ranks,
            "nodes": len(set(self.hosts)), "device": transport.device, "dtype": "float32", "rows": [], "left_out": "",
        }
        group["left_out"] = self._unavailable(operation)
        if group["left_out"]:
            return group
        fitting, reasons = self._sizes_that_fit(operation)
        budget = TimeBudget(self.plan["seconds"], len(fitting))
        last, cost = 0, 0.0
        for place, size in enumerate(fitting):
            # Two operations for the checks, one to warm up and one trial, if time grows with the size.
            if last and not budget.allows(4 * cost * max(1.0, size / last)):
                reasons.append("%s left out: they would take longer than the %g seconds for this operation" % (
                    _describe_sizes(fitting[place:]), self.plan["seconds"]))
                break
            line, cost = self._measure_size(operation, size, budget)
            last = size
            group["rows"].append(line)
            self.on_row(group, line)
        fewer = [line["bytes"] for line in group["rows"] if line["trials"] < self.plan["trials"]]
        if fewer:
            reasons.append("%s with fewer than %d trials, to keep within %g seconds" % (
                _describe_sizes(fewer), self.plan["trials"], self.plan["seconds"]))
        group["left_out"] = "".join(reason[:1].upper() + reason[1:] + ". " for reason in reasons).strip()
        return group

    def _unavailable(self, operation: str) -> str:
        """Explain why no rank can do an operation, tried with a few elements; empty where all can."""
        if operation == "send_recv" and self.transport.size == 1:
            return "One rank alone has nobody to send to."
        count = units.element_count(operation, units.ALIGNMENT * self.transport.size, self.transport.size)
        try:
            self._prepare_verified(operation, count, 0)
            mine = ""
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            mine = "%s: %s" % (type(error).__name__, str(error).strip().partition("\n")[0][:300])
        gathered = self.transport.all_gather(mine)
        if all(gathered):
            return "%s (%s) has no %s here: %s." % (
                self.transport.backend, self.transport.provider, operation, gathered[0].rstrip("."))
        if any(gathered):
            first = next(rank for rank, text in enumerate(gathered) if text)
            raise RuntimeError("%s failed on rank %d on %s: %s" % (
                operation, first, self.hosts[first], gathered[first]))
        return ""

    def _sizes_that_fit(self, operation: str) -> tuple[list[int], list[str]]:
        """Select the sizes that all ranks have memory for; the second list says what is left out and why."""
        transport = self.transport
        gathered = transport.all_gather([self.hosts[transport.rank], *transport.free_memory()])
        users = collections.Counter((host, place) for host, place, _room in gathered)
        fraction = BUFFER_FRACTIONS[transport.device]
        free_bytes = [int(free * fraction / users[host, place]) for host, place, free in gathered]
        tight = free_bytes.index(min(free_bytes))
        fitting, large, small, counted = [], [], [], []
        for size in plan_sizes(self.plan):
            count = units.element_count(operation, size, transport.size)
            layout = expected_values.layout(operation, transport.rank, transport.size, count)
            if not count:
                small.append(size)
            elif count > transport.max_elements:
                counted.append(size)
            elif (layout.source + layout.target) * units.ITEM_BYTES > free_bytes[tight]:
                large.append(size)
            else:
                fitting.append(size)
        left_out = (
            (small, "too small to give each of %d ranks a part" % transport.size),
            (large, "rank %d on %s has %.3g GiB of memory for its buffers" % (
                tight, self.hosts[tight], free_bytes[tight] / 2.0**30)),
            (counted, "MPI counts at most %d elements" % transport.max_elements))
        return fitting, ["%s left out: %s" % (_describe_sizes(sizes), why) for sizes, why in left_out if sizes]

    def _prepare_verified(self, operation: str, count: int, seed: int) -> tuple[Operation, str, float]:
        """Allocate an operation and do it once; return it, what is wrong, and its seconds."""
        layout = expected_values.layout(operation, self.transport.rank, self.transport.size, count)
        prepared = self.transport.prepare(operation, layout)
        return (prepared, *self._verify_once(prepared, seed))

    def _verify_once(self, prepared: Operation, seed: int) -> tuple[str, float]:
        prepared.fill(seed)
        started = time.perf_counter()
        prepared.step()
        self.transport.synchronize()
        seconds = time.perf_counter() - started
        return prepared.mismatch(seed), seconds

    def _measure_size(self, operation: str, size: int, budget: TimeBudget) -> tuple[dict[str, Any], float]:
        """Warm up, time and verify one size; return its row, and the seconds of one operation."""
        transport, plan = self.transport, self.plan
        count = units.element_count(operation, size, transport.size)
        prepared, wrong, first = self._prepare_verified(operation, count, 1)
        allowed = budget.share()
        first = max(transport.all_gather(first))
        warmups = plan["warmups"] if plan["warmups"] * first <= allowed / 4 else 1
        started = time.perf_counter()
        for _number in range(warmups):
            prepared.step()
        transport.synchronize()
        warm = (time.perf_counter() - started) / warmups if warmups else first
        cost = max(transport.all_gather(warm))
        trials = trials_within(plan["trials"], allowed, cost)
        prepared.fill(2)
        batch, times = transport.time_trials(prepared.step, trials, plan["blocking"])
        if prepared.plan.repeatable:
            wrong = wrong or prepared.mismatch(2)
        # Also on a rank that has found a wrong value: the others wait for it in this operation.
        after, _seconds = self._verify_once(prepared, 3)
        wrong = wrong or after
        prepared.release()
        gathered = transport.all_gather([batch, times, wrong, budget.elapsed()])
        budget.spent, budget.left = max(peer[3] for peer in gathered), budget.left - 1
        batches, iterations = [peer[0] for peer in gathered], [peer[1] for peer in gathered]
        line = units.bandwidth_row(operation, size, count, batches, iterations)
        line["verified"] = not any(peer[2] for peer in gathered)
        if not line["verified"]:
            bad = next(rank for rank, peer in enumerate(gathered) if peer[2])
            line["wrong"] = "rank %d on %s: %s" % (bad, self.hosts[bad], gathered[bad][2])
        if plan["stability"]:
            line["iterations"] = [units.round_figure(slow * 1e6) for slow in units.slowest_times(iterations)]
        return line, cost


def _describe_sizes(sizes: list[int]) -> str:
    """Format sizes for a sentence."""
    first, last = units.format_size(sizes[0]), units.format_size(sizes[-1])
    return first if len(sizes) == 1 else "%d sizes from %s to %s" % (len(sizes), first, last)

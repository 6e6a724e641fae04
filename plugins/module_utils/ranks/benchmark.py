# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark as a rank runs it: collective operations and messages timed over many sizes, and their values checked.

Every decision (which sizes fit, how many trials) is made from what all ranks have told each other, so that all make the
same one. What talks is a carrier, :mod:`.rank_bandwidth_torch` or :mod:`.rank_bandwidth_mpi`. Python 3.8 or later.
"""

from __future__ import annotations

import collections
import socket
import time
from typing import Any, Callable, Mapping

from . import bandwidth_values
from . import plan as bandwidth_plan
from . import units as bandwidth
from .transport_mpi import MpiCarrier
from .transport_torch import TorchCarrier

FRACTIONS = {"cuda": 0.9, "cpu": 0.5}
"""Of the free memory, what the buffers may take; the rest is for the libraries' own, which on a CPU copy as well."""

SHARE = 0.5
"""Of the time that a size has, the part for its trials; the rest is for warming up and checking."""

Tell = Callable[[Mapping[str, Any], Mapping[str, Any]], None]


def measure_in_group(
    torch: Any, backend: str, device: str, rank: int, size: int, plan: Mapping[str, Any], group: Any = None,
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Measure over a process group that is there; all its ranks call this.

    Args:
        torch: the module; None for MPI through mpi4py.
        backend: ``gloo``, ``mpi`` or ``nccl``.
        device: ``cpu``, or ``cuda``, whose current device is this rank's.
        rank: which one this is in the group.
        size: how many there are.
        plan: see :func:`.bandwidth_plan.plan`.
        group: torch.distributed's group, None for all ranks; without torch a communicator of mpi4py.
        tell: called with the set and each of its rows as soon as it is there.

    Returns:
        The same on every rank: ``hosts`` of the ranks; ``measurements`` is a list of sets {``backend``, ``provider``,
        ``operation``, ``ranks``, ``nodes``, ``device``, ``dtype``, ``rows``: [see :func:`.bandwidth.row`, and
        ``verified``, ``wrong`` where it is not], ``left_out``: sentences}; ``latency`` is a list of rows, see
        :func:`.bandwidth.trip`, and ``backend``, ``provider``, ``hosts``, ``ranks``, ``verified``;
        ``latency_left_out`` says why there is none.

    Raises:
        ValueError: the plan cannot be used.
        RuntimeError: an operation failed on a part of the ranks.
    """
    asked = bandwidth_plan.plan(plan)
    carrier: Any
    if torch is None:
        carrier = MpiCarrier(group, rank, size)
    else:
        carrier = TorchCarrier(torch, backend, device, rank, size, group)
    return Bench(carrier, asked, tell).run()


class Budget:
    """The time that an operation may take, by the clock of the slowest rank."""

    def __init__(self, seconds: float, sizes: int) -> None:
        self.seconds, self.left = seconds, sizes
        self.started = time.monotonic()
        self.spent = 0.0

    def elapsed(self) -> float:
        """By this rank's clock; :attr:`spent` is what all have agreed on."""
        return time.monotonic() - self.started

    def share(self) -> float:
        """Seconds for the next size; without a limit, for ever."""
        return max(0.0, self.seconds - self.spent) / max(1, self.left) if self.seconds else float("inf")

    def allows(self, seconds: float) -> bool:
        """Whether there is so much left."""
        return not self.seconds or self.spent + seconds <= self.seconds


class Bench:
    """All operations of a plan over one carrier."""

    def __init__(self, carrier: Any, asked: Mapping[str, Any], tell: Tell | None) -> None:
        self.carrier, self.asked = carrier, asked
        self.tell = tell or (lambda group, line: None)
        self.hosts: list[str] = carrier.gather(socket.gethostname())

    def run(self) -> dict[str, Any]:
        """Everything, in order."""
        result: dict[str, Any] = {
            "hosts": list(dict.fromkeys(self.hosts)), "measurements": [], "latency": [], "latency_left_out": "",
        }
        for operation in self.asked["operations"]:
            result["measurements"].append(self.operation(operation))
        if self.asked["latency"]:
            result["latency"], result["latency_left_out"] = self.latency()
        return result

    # --- collective operations ---

    def operation(self, operation: str) -> dict[str, Any]:
        """One operation over all sizes."""
        carrier, ranks = self.carrier, self.carrier.size
        group: dict[str, Any] = {
            "backend": carrier.backend, "provider": carrier.provider, "operation": operation, "ranks": ranks,
            "nodes": len(set(self.hosts)), "device": carrier.device, "dtype": "float32", "rows": [], "left_out": "",
        }
        lacking = self._lacking(operation)
        if lacking:
            group["left_out"] = lacking
            return group
        fitting, reasons = self._fitting(operation)
        budget = Budget(self.asked["seconds"], len(fitting))
        last, cost = 0, 0.0
        for place, size in enumerate(fitting):
            # Twice for the checks, and one to warm up, and one trial, if time grows with the size.
            if last and not budget.allows(4 * cost * max(1.0, size / last)):
                reasons.append("%s left out: they would take longer than the %g seconds for this operation" % (
                    _listed(fitting[place:]), self.asked["seconds"]))
                break
            line, cost = self._row(operation, size, budget)
            last = size
            group["rows"].append(line)
            self.tell(group, line)
        fewer = [line["bytes"] for line in group["rows"] if line["trials"] < self.asked["trials"]]
        if fewer:
            reasons.append("%s with fewer than %d trials, to keep within %g seconds" % (
                _listed(fewer), self.asked["trials"], self.asked["seconds"]))
        group["left_out"] = "".join(reason[:1].upper() + reason[1:] + ". " for reason in reasons).strip()
        return group

    def _lacking(self, operation: str) -> str:
        """Why the carrier cannot do this at all, found out with a few elements; empty where it can.

        Raises:
            RuntimeError: it can on a part of the ranks.
        """
        if operation == "send_recv" and self.carrier.size == 1:
            return "One rank alone has nobody to send to."
        count = bandwidth.elements(operation, bandwidth.ALIGNED * self.carrier.size, self.carrier.size)
        try:
            self._checked(operation, count, 0)
            mine = ""
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            mine = "%s: %s" % (type(error).__name__, str(error).strip().partition("\n")[0][:300])
        told = self.carrier.gather(mine)
        if all(told):
            return "%s (%s) has no %s here: %s." % (
                self.carrier.backend, self.carrier.provider, operation, told[0].rstrip("."))
        if any(told):
            first = next(rank for rank, text in enumerate(told) if text)
            raise RuntimeError("%s failed on rank %d on %s: %s" % (
                operation, first, self.hosts[first], told[first]))
        return ""

    def _fitting(self, operation: str) -> tuple[list[int], list[str]]:
        """The sizes that all ranks have memory for, and what is left out and why."""
        carrier = self.carrier
        told = carrier.gather([self.hosts[carrier.rank], *carrier.room()])
        users = collections.Counter((host, place) for host, place, _room in told)
        fraction = FRACTIONS[carrier.device]
        rooms = [int(room * fraction / users[host, place]) for host, place, room in told]
        tight = rooms.index(min(rooms))
        fitting, large, small, counted = [], [], [], []
        for size in bandwidth_plan.sizes(self.asked):
            count = bandwidth.elements(operation, size, carrier.size)
            plan = bandwidth_values.layout(operation, carrier.rank, carrier.size, count)
            if not count:
                small.append(size)
            elif count > carrier.most:
                counted.append(size)
            elif (plan.source + plan.target) * bandwidth.ITEM > rooms[tight]:
                large.append(size)
            else:
                fitting.append(size)
        reasons = []
        if small:
            reasons.append("%s left out: too small to give each of %d ranks a part" % (_listed(small), carrier.size))
        if large:
            reasons.append("%s left out: rank %d on %s has %.3g GiB of memory for its buffers" % (
                _listed(large), tight, self.hosts[tight], rooms[tight] / 2.0**30))
        if counted:
            reasons.append("%s left out: MPI counts at most %d elements" % (_listed(counted), carrier.most))
        return fitting, reasons

    def _checked(self, operation: str, count: int, seed: int) -> tuple[Any, str, float]:
        """Do it once on fresh values: the buffers, what is wrong, and the seconds that it took."""
        plan = bandwidth_values.layout(operation, self.carrier.rank, self.carrier.size, count)
        work = self.carrier.work(operation, plan)
        return (work, *self._once(work, seed))

    def _once(self, work: Any, seed: int) -> tuple[str, float]:
        work.fill(seed)
        started = time.perf_counter()
        work.step()
        self.carrier.finish()
        seconds = time.perf_counter() - started
        return work.wrong(seed), seconds

    def _row(self, operation: str, size: int, budget: Budget) -> tuple[dict[str, Any], float]:
        """One size: checked, warmed up, timed, and checked again; and what one of it costs, in seconds."""
        carrier, asked = self.carrier, self.asked
        count = bandwidth.elements(operation, size, carrier.size)
        work, wrong, first = self._checked(operation, count, 1)
        allowed = budget.share()
        first = max(carrier.gather(first))
        warmups = asked["warmups"] if asked["warmups"] * first <= allowed / 4 else 1
        started = time.perf_counter()
        for _number in range(warmups):
            work.step()
        carrier.finish()
        warm = (time.perf_counter() - started) / warmups if warmups else first
        cost = max(carrier.gather(warm))
        trials = max(1, int(min(asked["trials"], allowed * SHARE / max(cost, 1e-9))))
        work.fill(2)
        batch, times = carrier.timed(work.step, trials, asked["blocking"])
        if work.plan.repeats:
            wrong = wrong or work.wrong(2)
        # Also on a rank that has seen enough: the others are in there and wait for it.
        after, _seconds = self._once(work, 3)
        wrong = wrong or after
        work.release()
        told = carrier.gather([batch, times, wrong, budget.elapsed()])
        budget.spent, budget.left = max(other[3] for other in told), budget.left - 1
        line = bandwidth.row(operation, size, count, [other[0] for other in told], [other[1] for other in told])
        line["verified"] = not any(other[2] for other in told)
        if not line["verified"]:
            bad = next(rank for rank, other in enumerate(told) if other[2])
            line["wrong"] = "rank %d on %s: %s" % (bad, self.hosts[bad], told[bad][2])
        if asked["stability"]:
            slowest = bandwidth.slowest_of([other[1] for other in told])
            line["iterations"] = [bandwidth.short(seconds * 1e6) for seconds in slowest]
        return line, cost

    # --- messages ---

    def latency(self) -> tuple[list[dict[str, Any]], str]:
        """Ping-pong between rank 0 and the farthest, over all sizes of the plan; or why there is none."""
        carrier = self.carrier
        if carrier.size == 1:
            return [], "One rank alone has nobody to send to."
        away = [rank for rank in range(carrier.size) if self.hosts[rank] != self.hosts[0]]
        far = away[-1] if away else carrier.size - 1
        rows = []
        budget = Budget(self.asked["seconds"], len(self.asked["latency"]["bytes"]))
        for size in self.asked["latency"]["bytes"]:
            line = self._trips(size, far, budget)
            line.update(
                backend=carrier.backend, provider=carrier.provider, device=carrier.device, ranks=[0, far],
                hosts=[self.hosts[0], self.hosts[far]],
            )
            rows.append(line)
            self.tell({"operation": "latency"}, line)
        return rows, ""

    def _trips(self, size: int, far: int, budget: Budget) -> dict[str, Any]:
        """Messages of one size between two ranks, while the others wait."""
        carrier = self.carrier
        trips = self.asked["latency"]["iterations"]
        # As the bandwidth begins to count, fewer tell as much.
        trips = trips if size <= 1 << 16 else max(10, trips // (10 if size <= 1 << 22 else 100))
        warmups = max(1, min(100, trips // 10))
        work, warm = None, 0.0
        if carrier.rank in (0, far):
            part = bandwidth_values.Part(0, size // bandwidth.ITEM, far if carrier.rank == 0 else 0, 0)
            work = carrier.work(
                "message", bandwidth_values.Layout(part.length, part.length, True, True, [part]), part.who
            )
            work.fill(1)
            work.step()
            carrier.finish()
            started = time.perf_counter()
            for _number in range(warmups):
                work.step()
            carrier.finish()
            warm = (time.perf_counter() - started) / warmups
        cost = max(carrier.gather(warm))
        trips = max(1, int(min(trips, budget.share() * SHARE / max(cost, 1e-9))))
        times: list[float] = []
        wrong = ""
        if work:
            _batch, times = carrier.timed(work.step, trips, False, alone=True)
            wrong = work.wrong(1)
            work.release()
        told = carrier.gather([times, wrong, budget.elapsed()])
        budget.spent, budget.left = max(other[2] for other in told), budget.left - 1
        line = bandwidth.trip(size, told[0][0])
        wrong = told[0][1] or told[far][1]
        line["verified"] = not wrong
        if wrong:
            line["wrong"] = wrong
        return line


def _listed(sizes: list[int]) -> str:
    """Sizes in words."""
    if len(sizes) == 1:
        return bandwidth.show_size(sizes[0])
    first, last = (bandwidth.show_size(sizes[place]) for place in (0, -1))
    return "%d sizes from %s to %s" % (len(sizes), first, last)

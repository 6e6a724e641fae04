# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What carries the benchmark's numbers where torch.distributed does: gloo and MPI on CPUs, NCCL (or RCCL) on GPUs.

On a GPU the operations of a batch are launched one behind the other, with an event between them: the first and the last
give the time that nccl-tests gives, which launches in the same way (its ``--blocking 0``).
"""

from __future__ import annotations

import time
from typing import Any, Callable

from . import bandwidth_values
from . import memory as rank_memory

RUN_IN = 3
"""Operations on a GPU before the clock starts. Python launches the first ones after a pause three times slower than the
later ones, and no rank begins at the same moment: that is the program's, not the network's."""

REPEATS = 1024
"""Periods of a pattern that lie ready, 64 MiB: large enough that the copies cost nothing, small beside the buffers."""


class TorchCarrier:
    """A process group.

    Args:
        torch: the module.
        backend: ``gloo``, ``mpi`` or ``nccl``.
        device: ``cpu`` or ``cuda``.
        rank: which one this is in the group.
        size: how many there are.
        group: None for all ranks.
    """

    provider = "torch"

    def __init__(self, torch: Any, backend: str, device: str, rank: int, size: int, group: Any) -> None:
        self.torch, self.backend, self.device, self.rank, self.size = torch, backend, device, rank, size
        self.distributed, self.group = torch.distributed, group
        self.most = (1 << 31) - 1 if backend == "mpi" else 1 << 62
        self.token = torch.zeros(1, device=device)
        self.ways: dict[str, int] = {}
        """Of each operation, which of PyTorch's functions the backend has, known since it was first done."""

    def gather(self, thing: Any) -> list[Any]:
        """What every rank has given, in their order."""
        told: list[Any] = [None] * self.size
        self.distributed.all_gather_object(told, thing, group=self.group)
        return told

    def room(self) -> tuple[str, int]:
        """Where this rank's buffers are, and the bytes that are free there."""
        if self.device == "cpu":
            return "cpu", rank_memory.available()
        index = self.torch.cuda.current_device()
        self.torch.cuda.empty_cache()
        identity = getattr(self.torch.cuda.get_device_properties(index), "uuid", "") or index
        return str(identity), self.torch.cuda.mem_get_info()[0]

    def finish(self) -> None:
        """Wait until all that was launched is done."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def work(self, operation: str, plan: bandwidth_values.Layout, other: int | None = None) -> TorchWork:
        """The buffers of an operation."""
        return TorchWork(self, operation, plan, other)

    def together(self) -> None:
        """Wait for all ranks."""
        self.distributed.all_reduce(self.token, group=self.group)
        self.finish()

    def timed(
        self, step: Callable[[], None], trials: int, blocking: bool, alone: bool = False
    ) -> tuple[float, list[float]]:
        """The seconds of all trials, and of each.

        Args:
            step: what to do.
            trials: how often.
            blocking: whether to wait for all ranks before each.
            alone: not all ranks do this; do not wait for the others.
        """
        self.finish()
        if not alone:
            self.together()
        if blocking:
            times = [self._apart(step) for _number in range(trials)]
            return sum(times), times
        if self.device == "cpu":
            clock = [time.perf_counter()]
            for _number in range(trials):
                step()
                clock.append(time.perf_counter())
            return clock[-1] - clock[0], [after - before for before, after in zip(clock, clock[1:])]
        marks = [self.torch.cuda.Event(enable_timing=True) for _number in range(trials + 1)]
        for _number in range(RUN_IN):
            step()
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        self.finish()
        times = [before.elapsed_time(after) / 1e3 for before, after in zip(marks, marks[1:])]
        return marks[0].elapsed_time(marks[-1]) / 1e3, times

    def _apart(self, step: Callable[[], None]) -> float:
        self.together()
        started = time.perf_counter()
        step()
        self.finish()
        return time.perf_counter() - started

    def name_of(self, rank: int) -> int:
        """The rank as the functions that send and receive want it: among all ranks, not in the group."""
        return rank if self.group is None else self.distributed.get_global_rank(self.group, rank)


class TorchWork:
    """The buffers of one operation.

    Args:
        carrier: over what.
        operation: one of :data:`.bandwidth.FACTORS`, or ``message``: to one other rank and back.
        plan: the buffers.
        other: the other rank of a message.
    """

    def __init__(
        self, carrier: TorchCarrier, operation: str, plan: bandwidth_values.Layout, other: int | None
    ) -> None:
        self.carrier, self.plan = carrier, plan
        torch = carrier.torch
        self.source = torch.empty(plan.source, dtype=torch.float32, device=carrier.device)
        self.target = self.source
        if plan.target:
            self.target = torch.empty(plan.target, dtype=torch.float32, device=carrier.device)
        self.other = other
        self.step: Callable[[], None] = getattr(self, "_" + operation)()

    def release(self) -> None:
        """Give the memory back, to the device as well."""
        del self.source, self.target, self.step
        if self.carrier.device == "cuda":
            self.carrier.torch.cuda.empty_cache()

    # --- values ---

    def fill(self, seed: int) -> None:
        """Put this rank's numbers in, shifted by ``seed``, and what nobody has where numbers will come."""
        if self.plan.target or not self.plan.given:
            self.target.fill_(-1)
        if self.plan.given:
            self._compare(self.source, bandwidth_values.Part(0, self.plan.source, self.carrier.rank, 0), seed, True)
        self.carrier.finish()

    def wrong(self, seed: int) -> str:
        """Where the result is first not what :meth:`fill` with this seed on all ranks leads to; empty if nowhere."""
        for part in self.plan.result:
            found = self._compare(self.target, part, seed, False)
            if found:
                return found
        return ""

    def _compare(self, buffer: Any, part: bandwidth_values.Part, seed: int, write: bool) -> str:
        block = self._block(part, seed)
        for begin in range(0, part.length, len(block)):
            stretch = buffer[part.start + begin:part.start + min(begin + len(block), part.length)]
            expected = block[:len(stretch)]
            if write:
                stretch.copy_(expected)
            elif not self.carrier.torch.equal(stretch, expected):
                first = int((stretch != expected).nonzero()[0])
                return "index %d: got %g, expected %g" % (
                    part.start + begin + first, stretch[first].item(), expected[first].item())
        return ""

    def _block(self, part: bandwidth_values.Part, seed: int) -> Any:
        """Whole periods of a contribution, or what is needed of it."""
        torch, length = self.carrier.torch, bandwidth_values.PERIOD
        once = torch.frombuffer(bandwidth_values.period(part.who, self.carrier.size), dtype=torch.float32)
        once = once.roll(-((part.offset + seed) % length)).to(self.carrier.device)
        return once.repeat(min(REPEATS, -(-part.length // length))) if part.length > length else once[:part.length]

    # --- operations ---

    def _all_reduce(self) -> Callable[[], None]:
        distributed, buffer, group = self.carrier.distributed, self.source, self.carrier.group
        return lambda: distributed.all_reduce(buffer, group=group)

    def _broadcast(self) -> Callable[[], None]:
        distributed, buffer, group = self.carrier.distributed, self.source, self.carrier.group
        root = self.carrier.name_of(0)
        return lambda: distributed.broadcast(buffer, root, group=group)

    def _all_gather(self) -> Callable[[], None]:
        distributed, source, target, group = self.carrier.distributed, self.source, self.target, self.carrier.group
        pieces = list(target.chunk(self.carrier.size))
        return self._first_that_works(
            "all_gather",
            lambda: distributed.all_gather_single(target, source, group=group),
            lambda: distributed.all_gather_into_tensor(target, source, group=group),
            lambda: distributed.all_gather(pieces, source, group=group),
        )

    def _reduce_scatter(self) -> Callable[[], None]:
        distributed, source, target, group = self.carrier.distributed, self.source, self.target, self.carrier.group
        pieces = list(source.chunk(self.carrier.size))
        return self._first_that_works(
            "reduce_scatter",
            lambda: distributed.reduce_scatter_single(target, source, group=group),
            lambda: distributed.reduce_scatter_tensor(target, source, group=group),
            lambda: distributed.reduce_scatter(target, pieces, group=group),
        )

    def _all_to_all(self) -> Callable[[], None]:
        distributed, source, target, group = self.carrier.distributed, self.source, self.target, self.carrier.group
        pieces, places = list(source.chunk(self.carrier.size)), list(target.chunk(self.carrier.size))
        return self._first_that_works(
            "all_to_all",
            lambda: distributed.all_to_all_single(target, source, group=group),
            lambda: distributed.all_to_all(places, pieces, group=group),
        )

    def _send_recv(self) -> Callable[[], None]:
        carrier = self.carrier
        distributed, group = carrier.distributed, carrier.group
        after, before = (carrier.name_of((carrier.rank + way) % carrier.size) for way in (1, -1))

        def ring() -> None:
            pair = [
                distributed.P2POp(distributed.isend, self.source, after, group),
                distributed.P2POp(distributed.irecv, self.target, before, group),
            ]
            for request in distributed.batch_isend_irecv(pair):
                request.wait()

        return ring

    def _message(self) -> Callable[[], None]:
        carrier = self.carrier
        distributed, group, source, target = carrier.distributed, carrier.group, self.source, self.target
        other = carrier.name_of(self.other or 0)

        def ping() -> None:
            distributed.send(source, other, group=group)
            distributed.recv(target, other, group=group)

        def pong() -> None:
            distributed.recv(target, other, group=group)
            distributed.send(source, other, group=group)

        return ping if carrier.rank == 0 else pong

    def _first_that_works(self, operation: str, *ways: Callable[[], Any]) -> Callable[[], None]:
        """The first way that the backend has; it says so before it sends anything, on every rank alike.

        Only the first time: whatever goes wrong later, such as memory that does not suffice, is no reason for one rank
        to do something else than the others.
        """
        known = self.carrier.ways
        if operation in known:
            return ways[known[operation]]

        def step() -> None:
            for number, way in enumerate(ways[:-1]):
                try:
                    way()
                except (RuntimeError, NotImplementedError, AttributeError):
                    continue
                known[operation] = number
                return
            ways[-1]()
            known[operation] = len(ways) - 1

        return step

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the benchmark's operations by torch.distributed: gloo and MPI on CPUs, NCCL or RCCL on GPUs.

On a GPU the operations of a batch are launched one behind the other, with an event between them: the first and the last
give the time that nccl-tests gives, which launches in the same way (its ``--blocking 0``).
"""

from __future__ import annotations

import time
from typing import Any, Callable

from . import expected_values, memory

WARMUP_LAUNCHES = 3
"""Operations on a GPU before the clock starts. Python launches the first ones after a pause three times slower than the
later ones, and no rank begins at the same moment: that is the program's, not the network's."""

MAX_PERIODS = 1024
"""Periods of a pattern that lie ready, 64 MiB: large enough that the copies cost nothing, small beside the buffers."""


class TorchTransport:
    """Use a process group of torch.distributed; None for all ranks."""

    provider = "torch"

    def __init__(self, torch: Any, backend: str, device: str, rank: int, size: int, group: Any) -> None:
        self.torch, self.backend, self.device, self.rank, self.size = torch, backend, device, rank, size
        self.distributed, self.group = torch.distributed, group
        self.max_elements = (1 << 31) - 1 if backend == "mpi" else 1 << 62
        self.barrier_tensor = torch.zeros(1, device=device)
        self.variants: dict[str, int] = {}
        """Of each operation, which of PyTorch's functions the backend has, known since it was first done."""

    def all_gather(self, thing: Any) -> list[Any]:
        """Gather what every rank gives, in their order."""
        gathered: list[Any] = [None] * self.size
        self.distributed.all_gather_object(gathered, thing, group=self.group)
        return gathered

    def free_memory(self) -> tuple[str, int]:
        """Name the memory of this rank's buffers, and count the bytes that are free there."""
        if self.device == "cpu":
            return "cpu", memory.available_memory()
        index = self.torch.cuda.current_device()
        self.torch.cuda.empty_cache()
        identity = getattr(self.torch.cuda.get_device_properties(index), "uuid", "") or index
        return str(identity), self.torch.cuda.mem_get_info()[0]

    def synchronize(self) -> None:
        """Wait until all operations that were launched are done."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def prepare(self, operation: str, plan: expected_values.Layout, peer: int | None = None) -> TorchOperation:
        """Allocate the buffers of an operation."""
        return TorchOperation(self, operation, plan, peer)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.distributed.all_reduce(self.barrier_tensor, group=self.group)
        self.synchronize()

    def time_trials(
        self, step: Callable[[], None], trials: int, blocking: bool, alone: bool = False
    ) -> tuple[float, list[float]]:
        """Measure the seconds of all trials together, and of each, see :class:`.transport.Transport`."""
        self.synchronize()
        if not alone:
            self.barrier()
        if blocking:
            times = [self._time_blocking(step) for _number in range(trials)]
            return sum(times), times
        if self.device == "cpu":
            clock = [time.perf_counter()]
            for _number in range(trials):
                step()
                clock.append(time.perf_counter())
            return clock[-1] - clock[0], [after - before for before, after in zip(clock, clock[1:])]
        marks = [self.torch.cuda.Event(enable_timing=True) for _number in range(trials + 1)]
        for _number in range(WARMUP_LAUNCHES):
            step()
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        self.synchronize()
        times = [before.elapsed_time(after) / 1e3 for before, after in zip(marks, marks[1:])]
        return marks[0].elapsed_time(marks[-1]) / 1e3, times

    def _time_blocking(self, step: Callable[[], None]) -> float:
        self.barrier()
        started = time.perf_counter()
        step()
        self.synchronize()
        return time.perf_counter() - started

    def global_rank(self, rank: int) -> int:
        """Return the rank among all ranks, not in the group, as send and receive want it."""
        return rank if self.group is None else self.distributed.get_global_rank(self.group, rank)


class TorchOperation:
    """Run one operation with its buffers."""

    def __init__(
        self, transport: TorchTransport, operation: str, plan: expected_values.Layout, peer: int | None
    ) -> None:
        self.transport, self.plan, self.peer = transport, plan, peer
        self.distributed, self.group = transport.distributed, transport.group
        kind = {"dtype": transport.torch.float32, "device": transport.device}
        self.source = transport.torch.empty(plan.source, **kind)
        self.target = transport.torch.empty(plan.target, **kind) if plan.target else self.source
        self.step: Callable[[], None] = getattr(self, "_" + operation)()

    def release(self) -> None:
        """Free the buffers, on the device as well."""
        del self.source, self.target, self.step
        if self.transport.device == "cuda":
            self.transport.torch.cuda.empty_cache()

    # --- values ---

    def fill(self, seed: int) -> None:
        """Fill the buffers with this rank's values, shifted by ``seed``; results with other values."""
        if self.plan.target or not self.plan.contributes:
            self.target.fill_(-1)
        if self.plan.contributes:
            self._compare(self.source, expected_values.Part(0, self.plan.source, self.transport.rank, 0), seed, True)
        self.transport.synchronize()

    def mismatch(self, seed: int) -> str:
        """Describe the first wrong value after :meth:`fill` with this seed on all ranks; empty if none."""
        for part in self.plan.result:
            found = self._compare(self.target, part, seed, False)
            if found:
                return found
        return ""

    def _compare(self, buffer: Any, part: expected_values.Part, seed: int, write: bool) -> str:
        block = self._block(part, seed)
        for begin in range(0, part.length, len(block)):
            stretch = buffer[part.start + begin:part.start + min(begin + len(block), part.length)]
            expected = block[:len(stretch)]
            if write:
                stretch.copy_(expected)
            elif not self.transport.torch.equal(stretch, expected):
                first = int((stretch != expected).nonzero()[0])
                return "index %d: got %g, expected %g" % (
                    part.start + begin + first, stretch[first].item(), expected[first].item())
        return ""

    def _block(self, part: expected_values.Part, seed: int) -> Any:
        """Make whole periods of a contribution, or what is needed of it."""
        torch, length = self.transport.torch, expected_values.PERIOD
        once = torch.frombuffer(expected_values.period(part.rank, self.transport.size), dtype=torch.float32)
        once = once.roll(-((part.offset + seed) % length)).to(self.transport.device)
        return once.repeat(min(MAX_PERIODS, -(-part.length // length))) if part.length > length else once[:part.length]

    # --- operations ---

    def _all_reduce(self) -> Callable[[], None]:
        distributed, buffer, group = self.distributed, self.source, self.group
        return lambda: distributed.all_reduce(buffer, group=group)

    def _broadcast(self) -> Callable[[], None]:
        distributed, buffer, group, root = self.distributed, self.source, self.group, self.transport.global_rank(0)
        return lambda: distributed.broadcast(buffer, root, group=group)

    def _all_gather(self) -> Callable[[], None]:
        distributed, source, target, group = self.distributed, self.source, self.target, self.group
        pieces = list(target.chunk(self.transport.size))
        return self._first_supported(
            "all_gather", lambda: distributed.all_gather_single(target, source, group=group),
            lambda: distributed.all_gather_into_tensor(target, source, group=group),
            lambda: distributed.all_gather(pieces, source, group=group))

    def _reduce_scatter(self) -> Callable[[], None]:
        distributed, source, target, group = self.distributed, self.source, self.target, self.group
        pieces = list(source.chunk(self.transport.size))
        return self._first_supported(
            "reduce_scatter", lambda: distributed.reduce_scatter_single(target, source, group=group),
            lambda: distributed.reduce_scatter_tensor(target, source, group=group),
            lambda: distributed.reduce_scatter(target, pieces, group=group))

    def _all_to_all(self) -> Callable[[], None]:
        distributed, source, target, group = self.distributed, self.source, self.target, self.group
        pieces, places = list(source.chunk(self.transport.size)), list(target.chunk(self.transport.size))
        return self._first_supported(
            "all_to_all", lambda: distributed.all_to_all_single(target, source, group=group),
            lambda: distributed.all_to_all(places, pieces, group=group))

    def _send_recv(self) -> Callable[[], None]:
        transport = self.transport
        distributed, group = transport.distributed, transport.group
        after, before = (transport.global_rank((transport.rank + way) % transport.size) for way in (1, -1))

        def ring() -> None:
            pair = [
                distributed.P2POp(distributed.isend, self.source, after, group),
                distributed.P2POp(distributed.irecv, self.target, before, group),
            ]
            for request in distributed.batch_isend_irecv(pair):
                request.wait()

        return ring

    def _message(self) -> Callable[[], None]:
        transport = self.transport
        distributed, group, source, target = transport.distributed, transport.group, self.source, self.target
        peer = transport.global_rank(self.peer or 0)

        def ping() -> None:
            distributed.send(source, peer, group=group)
            distributed.recv(target, peer, group=group)

        def pong() -> None:
            distributed.recv(target, peer, group=group)
            distributed.send(source, peer, group=group)

        return ping if transport.rank == 0 else pong

    def _first_supported(self, operation: str, *ways: Callable[[], Any]) -> Callable[[], None]:
        """Find the first variant that the backend has; a missing one fails before it sends, on all ranks.

        Only the first time: whatever goes wrong later, such as memory that does not suffice, is no reason for one rank
        to do something else than the others.
        """
        known = self.transport.variants
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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the benchmark's operations by MPI through mpi4py, in plain memory."""

from __future__ import annotations

import time
from typing import Any, Callable

from . import expected_values, memory, units

MAX_PERIODS = 256
"""Periods of a pattern that lie ready, 16 MiB."""


class MpiTransport:
    """Use a communicator of mpi4py; None for all ranks."""

    backend, provider, device = "mpi", "mpi4py", "cpu"
    max_elements = (1 << 31) - 1
    """The largest count of MPI before version 4."""

    def __init__(self, communicator: Any, rank: int, size: int) -> None:
        from mpi4py import MPI

        self.mpi, self.communicator = MPI, communicator if communicator is not None else MPI.COMM_WORLD
        self.rank, self.size = rank, size

    def all_gather(self, thing: Any) -> list[Any]:
        """Gather what every rank gives, in their order."""
        return self.communicator.allgather(thing)

    def free_memory(self) -> tuple[str, int]:
        """Name the memory of this rank's buffers, and count the bytes that are free there."""
        return "cpu", memory.available_memory()

    def synchronize(self) -> None:
        """Do nothing: all operations block."""

    def prepare(self, operation: str, plan: expected_values.Layout, peer: int | None = None) -> MpiOperation:
        """Allocate the buffers of an operation."""
        return MpiOperation(self, operation, plan, peer)

    def time_trials(
        self, step: Callable[[], None], trials: int, blocking: bool, alone: bool = False
    ) -> tuple[float, list[float]]:
        """Measure the seconds of all trials together, and of each, see :class:`.transport.Transport`."""
        if not alone:
            self.communicator.Barrier()
        times = []
        for _number in range(trials):
            if blocking:
                self.communicator.Barrier()
            started = time.perf_counter()
            step()
            times.append(time.perf_counter() - started)
        return sum(times), times


class MpiOperation:
    """Run one operation with its buffers."""

    def __init__(self, transport: MpiTransport, operation: str, plan: expected_values.Layout, peer: int | None) -> None:
        self.transport, self.plan, self.peer = transport, plan, peer
        self.source = bytearray(plan.source * units.ITEM_BYTES)
        self.target = bytearray(plan.target * units.ITEM_BYTES) if plan.target else self.source
        self.step: Callable[[], None] = getattr(self, "_" + operation)()

    def release(self) -> None:
        """Free the buffers."""
        del self.source, self.target, self.step

    # --- values ---

    def fill(self, seed: int) -> None:
        """Fill the buffers with this rank's values, shifted by ``seed``; results with other values."""
        if self.plan.target or not self.plan.contributes:
            for begin, end in _chunks(0, len(self.target)):
                memoryview(self.target)[begin:end] = bytes(end - begin)
        if self.plan.contributes:
            mine = expected_values.Part(0, self.plan.source, self.transport.rank, 0)
            block = self._block(mine, seed)
            for begin, end in _chunks(0, len(self.source), len(block)):
                memoryview(self.source)[begin:end] = block[:end - begin]

    def mismatch(self, seed: int) -> str:
        """Describe the first wrong value after :meth:`fill` with this seed on all ranks; empty if none."""
        for part in self.plan.result:
            block = self._block(part, seed)
            start = part.start * units.ITEM_BYTES
            for begin, end in _chunks(start, part.length * units.ITEM_BYTES, len(block)):
                # Comparing bytes is one call of memcmp; memoryviews are compared number by number.
                if bytes(memoryview(self.target)[begin:end]) != bytes(block[:end - begin]):
                    got, expected = memoryview(self.target)[begin:end].cast("f"), block[:end - begin].cast("f")
                    first = next(place for place in range(len(got)) if got[place] != expected[place])
                    return "index %d: got %g, expected %g" % (
                        begin // units.ITEM_BYTES + first, got[first], expected[first])
        return ""

    def _block(self, part: expected_values.Part, seed: int) -> memoryview:
        """Make whole periods of a contribution, or what is needed of it."""
        once = expected_values.period(part.rank, self.transport.size)
        shift = (part.offset + seed) % expected_values.PERIOD
        once = once[shift:] + once[:shift]
        times = min(MAX_PERIODS, -(-part.length // expected_values.PERIOD))
        return memoryview((once * max(1, times)).tobytes())

    # --- operations ---

    def _views(self) -> tuple[list[Any], list[Any]]:
        real = self.transport.mpi.FLOAT
        return [self.source, real], [self.target, real]

    def _all_reduce(self) -> Callable[[], None]:
        mpi, (source, _target) = self.transport.mpi, self._views()
        return lambda: self.transport.communicator.Allreduce(mpi.IN_PLACE, source, op=mpi.SUM)

    def _broadcast(self) -> Callable[[], None]:
        source, _target = self._views()
        return lambda: self.transport.communicator.Bcast(source, root=0)

    def _all_gather(self) -> Callable[[], None]:
        source, target = self._views()
        return lambda: self.transport.communicator.Allgather(source, target)

    def _reduce_scatter(self) -> Callable[[], None]:
        source, target = self._views()
        return lambda: self.transport.communicator.Reduce_scatter_block(source, target, op=self.transport.mpi.SUM)

    def _all_to_all(self) -> Callable[[], None]:
        source, target = self._views()
        return lambda: self.transport.communicator.Alltoall(source, target)

    def _send_recv(self) -> Callable[[], None]:
        (source, target), transport = self._views(), self.transport
        after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
        return lambda: transport.communicator.Sendrecv(source, after, recvbuf=target, source=before)

    def _message(self) -> Callable[[], None]:
        (source, target), communicator, peer = self._views(), self.transport.communicator, self.peer

        def ping() -> None:
            communicator.Send(source, peer)
            communicator.Recv(target, peer)

        def pong() -> None:
            communicator.Recv(target, peer)
            communicator.Send(source, peer)

        return ping if self.transport.rank == 0 else pong


def _chunks(start: int, length: int, step: int = 1 << 24) -> list[tuple[int, int]]:
    """List begin and end of chunks of at most ``step`` bytes."""
    return [(start + done, start + min(done + step, length)) for done in range(0, length, step)]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What carries the benchmark's numbers where no torch.distributed does: MPI through mpi4py, with plain memory."""

from __future__ import annotations

import time
from typing import Any, Callable

from . import bandwidth_values
from . import memory as rank_memory
from . import units as bandwidth

REPEATS = 256
"""Periods of a pattern that lie ready, 16 MiB."""


class MpiCarrier:
    """A communicator.

    Args:
        communicator: mpi4py's; None for all ranks.
        rank: which one this is.
        size: how many there are.
    """

    backend, provider, device = "mpi", "mpi4py", "cpu"
    most = (1 << 31) - 1
    """What MPI before version 4 can count."""

    def __init__(self, communicator: Any, rank: int, size: int) -> None:
        from mpi4py import MPI

        self.mpi, self.communicator = MPI, communicator if communicator is not None else MPI.COMM_WORLD
        self.rank, self.size = rank, size

    def gather(self, thing: Any) -> list[Any]:
        """What every rank has given, in their order."""
        return self.communicator.allgather(thing)

    def room(self) -> tuple[str, int]:
        """Where this rank's buffers are, and the bytes that are free there."""
        return "cpu", rank_memory.available()

    def finish(self) -> None:
        """Nothing is left to wait for: all operations block."""

    def work(self, operation: str, plan: bandwidth_values.Layout, other: int | None = None) -> MpiWork:
        """The buffers of an operation."""
        return MpiWork(self, operation, plan, other)

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


class MpiWork:
    """The buffers of one operation.

    Args:
        carrier: over what.
        operation: one of :data:`.bandwidth.FACTORS`, or ``message``: to one other rank and back.
        plan: the buffers.
        other: the other rank of a message.
    """

    def __init__(self, carrier: MpiCarrier, operation: str, plan: bandwidth_values.Layout, other: int | None) -> None:
        self.carrier, self.plan, self.other = carrier, plan, other
        self.source = bytearray(plan.source * bandwidth.ITEM)
        self.target = bytearray(plan.target * bandwidth.ITEM) if plan.target else self.source
        self.step: Callable[[], None] = getattr(self, "_" + operation)()

    def release(self) -> None:
        """Give the memory back."""
        del self.source, self.target, self.step

    # --- values ---

    def fill(self, seed: int) -> None:
        """Put this rank's numbers in, shifted by ``seed``, and what nobody has where numbers will come."""
        if self.plan.target or not self.plan.given:
            for begin, end in _chunks(0, len(self.target)):
                memoryview(self.target)[begin:end] = bytes(end - begin)
        if self.plan.given:
            mine = bandwidth_values.Part(0, self.plan.source, self.carrier.rank, 0)
            block = self._block(mine, seed)
            for begin, end in _chunks(0, len(self.source), len(block)):
                memoryview(self.source)[begin:end] = block[:end - begin]

    def wrong(self, seed: int) -> str:
        """Where the result is first not what :meth:`fill` with this seed on all ranks leads to; empty if nowhere."""
        for part in self.plan.result:
            block = self._block(part, seed)
            start = part.start * bandwidth.ITEM
            for begin, end in _chunks(start, part.length * bandwidth.ITEM, len(block)):
                # Comparing bytes is one call of memcmp; comparing views goes number by number.
                if bytes(memoryview(self.target)[begin:end]) != bytes(block[:end - begin]):
                    got, expected = memoryview(self.target)[begin:end].cast("f"), block[:end - begin].cast("f")
                    first = next(place for place in range(len(got)) if got[place] != expected[place])
                    return "index %d: got %g, expected %g" % (
                        begin // bandwidth.ITEM + first, got[first], expected[first])
        return ""

    def _block(self, part: bandwidth_values.Part, seed: int) -> memoryview:
        """Whole periods of a contribution, or what is needed of it."""
        once = bandwidth_values.period(part.who, self.carrier.size)
        shift = (part.offset + seed) % bandwidth_values.PERIOD
        once = once[shift:] + once[:shift]
        times = min(REPEATS, -(-part.length // bandwidth_values.PERIOD))
        return memoryview((once * max(1, times)).tobytes())

    # --- operations ---

    def _views(self) -> tuple[list[Any], list[Any]]:
        real = self.carrier.mpi.FLOAT
        return [self.source, real], [self.target, real]

    def _all_reduce(self) -> Callable[[], None]:
        mpi, (source, _target) = self.carrier.mpi, self._views()
        return lambda: self.carrier.communicator.Allreduce(mpi.IN_PLACE, source, op=mpi.SUM)

    def _broadcast(self) -> Callable[[], None]:
        source, _target = self._views()
        return lambda: self.carrier.communicator.Bcast(source, root=0)

    def _all_gather(self) -> Callable[[], None]:
        source, target = self._views()
        return lambda: self.carrier.communicator.Allgather(source, target)

    def _reduce_scatter(self) -> Callable[[], None]:
        source, target = self._views()
        return lambda: self.carrier.communicator.Reduce_scatter_block(source, target, op=self.carrier.mpi.SUM)

    def _all_to_all(self) -> Callable[[], None]:
        source, target = self._views()
        return lambda: self.carrier.communicator.Alltoall(source, target)

    def _send_recv(self) -> Callable[[], None]:
        (source, target), carrier = self._views(), self.carrier
        after, before = (carrier.rank + 1) % carrier.size, (carrier.rank - 1) % carrier.size
        return lambda: carrier.communicator.Sendrecv(source, after, recvbuf=target, source=before)

    def _message(self) -> Callable[[], None]:
        (source, target), communicator, other = self._views(), self.carrier.communicator, self.other

        def ping() -> None:
            communicator.Send(source, other)
            communicator.Recv(target, other)

        def pong() -> None:
            communicator.Recv(target, other)
            communicator.Send(source, other)

        return ping if self.carrier.rank == 0 else pong


def _chunks(start: int, length: int, step: int = 1 << 24) -> list[tuple[int, int]]:
    """Where stretches of at most ``step`` bytes begin and end."""
    return [(start + done, start + min(done + step, length)) for done in range(0, length, step)]

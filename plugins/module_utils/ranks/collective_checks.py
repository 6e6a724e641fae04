# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What every backend of a release has to get right: sums, broadcasts, gathers, scattered sums, and sends to one rank.

A backend is given as an object with these methods, of which each takes and returns PyTorch's tensors; one that it does
not have raises :class:`.rank_errors.Unusable`, which is said and never passed over:

    reduce(tensor, kind)              the ``sum`` or ``average`` of all ranks' tensors
    broadcast(tensor, root)           the tensor of rank ``root``
    gather(tensor)                    all ranks' tensors, one after the other
    scatter(tensor)                   this rank's part of the sum of all ranks' tensors
    exchange(tensor, target, source)  send the tensor to one rank, receive as much from another
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from .expected_values import (
    COUNTS,
    TOLERANCE,
    contribution,
    contributions,
    difference,
    exact,
    lone,
    lones,
    pattern,
    share,
    signature,
    told_apart,
    total,
)
from .rank_errors import Unusable

OPERATIONS = ("all_reduce", "average", "broadcast", "all_gather", "reduce_scatter", "send_recv")
"""In the order in which they are checked."""

SUMS = ("all_reduce", "average")
"""Those whose arithmetic depends on the type at every length."""


class Outcome(NamedTuple):
    """What was checked: a sentence's part, and what the backend does not have, with the reason."""

    note: str
    lacks: dict[str, str]


def shifts(size: int) -> list[int]:
    """How far ranks send: to the next one, and to the one that is farthest in a ring of them all."""
    return sorted({1, size // 2} - {0}) if size > 1 else []


class Values:
    """The checks of one backend on one device.

    Args:
        torch: PyTorch.
        rank: which rank this is.
        size: how many there are.
        device: ``cpu`` or ``cuda``.
        problems: to which a sentence is added for each wrong tensor; all ranks go on, as they wait for each other.
    """

    def __init__(self, torch: Any, rank: int, size: int, device: str, problems: list[str]) -> None:
        self.torch, self.rank, self.size, self.device = torch, rank, size, device
        self.problems = problems

    def check(self, backend: Any, types: Sequence[str]) -> Outcome:
        """Check all operations with all types, and sizes from one element to a million.

        Args:
            backend: see the top of this file.
            types: names of PyTorch's types.
        """
        done, lacks = [], {}
        for operation in OPERATIONS:
            try:
                for name in types:
                    # What only moves does so by bytes: a million of one type show what depends on the length.
                    for count in COUNTS if operation in SUMS or name == types[0] else COUNTS[:2]:
                        getattr(self, operation)(backend, name, count)
                done.append(operation)
            except Unusable as reason:
                # An average is a sum and a division, which not every backend has as one.
                if operation != "average":
                    lacks[operation] = str(reason)
        note = "%s of %s on %s" % (", ".join(done) or "nothing", ", ".join(types), self.device)
        return Outcome("; ".join([note, *("no %s: %s" % item for item in lacks.items())]), lacks)

    def judge(self, what: str, got: Any, expected: Any, tolerance: float = 0.0) -> None:
        """Add a sentence to the problems if values are wrong."""
        wrong = difference(got, expected, tolerance)
        if wrong:
            self.problems.append("%s: %s" % (what, wrong))

    def _what(self, operation: str, count: int, name: str, more: str = "") -> str:
        return "%s of %d %s on %s%s" % (operation, count, name, self.device, more)

    def _positions(self, count: int, first: int = 0) -> Any:
        return self.torch.arange(first, first + count, device=self.device)

    def _mine(self, name: str, count: int) -> Any:
        """This rank's tensor for a sum, which stays whole in its type."""
        part = contribution if exact(name, self.size) else lone
        return part(self._positions(count), self.rank, self.size).to(getattr(self.torch, name))

    def _sums(self, name: str, count: int, first: int = 0) -> Any:
        """The sum of all ranks' tensors, of so many positions from the first on."""
        whole = contributions if exact(name, self.size) else lones
        return whole(self._positions(count, first), self.size).to(self.torch.float64)

    def _signed(self, name: str, count: int, rank: int) -> Any:
        """A rank's tensor that goes to others as it is."""
        return signature(self._positions(count), rank, told_apart(name)).to(getattr(self.torch, name))

    def all_reduce(self, backend: Any, name: str, count: int) -> None:
        """The sum of all ranks' tensors."""
        got = backend.reduce(self._mine(name, count), "sum")
        self.judge(self._what("sum", count, name), got, self._sums(name, count))

    def average(self, backend: Any, name: str, count: int) -> None:
        """Their average, of types that have one."""
        if name in TOLERANCE:
            got = backend.reduce(self._mine(name, count), "average")
            self.judge(self._what("average", count, name), got, self._sums(name, count) / self.size, TOLERANCE[name])

    def broadcast(self, backend: Any, name: str, count: int) -> None:
        """From the last rank; all others start with what it never has."""
        root = self.size - 1
        expected = self._signed(name, count, root)
        given = expected.clone() if self.rank == root else self.torch.full_like(expected, -1)
        what = self._what("broadcast", count, name, " from rank %d" % root)
        self.judge(what, backend.broadcast(given, root), expected)

    def all_gather(self, backend: Any, name: str, count: int) -> None:
        """All ranks' tensors, of which each is so long that together they have the count."""
        part = share(count, self.size)
        owners = self._positions(self.size).repeat_interleave(part)
        expected = signature(self._positions(part).repeat(self.size), owners, told_apart(name))
        self.judge(self._what("all_gather", part, name), backend.gather(self._signed(name, part, self.rank)), expected)

    def reduce_scatter(self, backend: Any, name: str, count: int) -> None:
        """This rank's part of the sum."""
        part = share(count, self.size)
        got = backend.scatter(self._mine(name, part * self.size))
        self.judge(self._what("reduce_scatter", part, name), got, self._sums(name, part, self.rank * part))

    def send_recv(self, backend: Any, name: str, count: int) -> None:
        """Round the ring, and to the farthest rank in it."""
        if self.size == 1:
            raise Unusable("there is one rank")
        for shift in shifts(self.size):
            target, source = (self.rank + shift) % self.size, (self.rank - shift) % self.size
            got = backend.exchange(self._signed(name, count, self.rank), target, source)
            what = self._what("receive", count, name, " from rank %d" % source)
            self.judge(what, got, self._signed(name, count, source))


class TorchGroup:
    """The process group of torch.distributed that has been made last.

    Args:
        torch: PyTorch.
        backend: ``gloo``, ``nccl`` or ``mpi``.
    """

    def __init__(self, torch: Any, backend: str) -> None:
        self.torch, self.distributed, self.backend = torch, torch.distributed, backend

    def reduce(self, tensor: Any, kind: str) -> Any:
        """See the top of this file."""
        if kind == "average" and (self.backend != "nccl" or not hasattr(self.distributed.ReduceOp, "AVG")):
            raise Unusable("%s of this PyTorch has none" % self.backend)
        operation = self.distributed.ReduceOp.SUM if kind == "sum" else self.distributed.ReduceOp.AVG
        self.distributed.all_reduce(tensor, op=operation)
        return tensor

    def broadcast(self, tensor: Any, root: int) -> Any:
        """See the top of this file."""
        self.distributed.broadcast(tensor, src=root)
        return tensor

    def gather(self, tensor: Any) -> Any:
        """See the top of this file."""
        parts = [self.torch.full_like(tensor, -1) for _rank in range(self.distributed.get_world_size())]
        self.distributed.all_gather(parts, tensor)
        return self.torch.cat(parts)

    def scatter(self, tensor: Any) -> Any:
        """See the top of this file."""
        parts = list(tensor.chunk(self.distributed.get_world_size()))
        got = self.torch.full_like(parts[0], -1)
        try:
            self.distributed.reduce_scatter(got, parts)
        except RuntimeError as error:
            # Said before anything is sent, and so by all ranks alike.
            if "not support" in str(error) or "not implemented" in str(error).lower():
                raise Unusable("%s of this PyTorch has none" % self.backend) from error
            raise
        return got

    def exchange(self, tensor: Any, target: int, source: int) -> Any:
        """See the top of this file."""
        got = self.torch.full_like(tensor, -1)
        distributed = self.distributed
        if self.backend == "nccl":
            # One after the other, NCCL's would wait for each other (its manual, "Point-to-point communication").
            works = distributed.batch_isend_irecv([
                distributed.P2POp(distributed.isend, tensor, target),
                distributed.P2POp(distributed.irecv, got, source),
            ])
        else:
            works = [distributed.isend(tensor, target), distributed.irecv(got, source)]
        for work in works:
            work.wait()
        return got


class Horovod:
    """Horovod, which must have begun.

    Args:
        horovod: the Python module ``horovod.torch``.
    """

    def __init__(self, horovod: Any) -> None:
        self.horovod = horovod

    def reduce(self, tensor: Any, kind: str) -> Any:
        """See the top of this file."""
        return self.horovod.allreduce(tensor, op=self.horovod.Sum if kind == "sum" else self.horovod.Average)

    def broadcast(self, tensor: Any, root: int) -> Any:
        """See the top of this file."""
        return self.horovod.broadcast(tensor, root)

    def gather(self, tensor: Any) -> Any:
        """See the top of this file."""
        return self.horovod.allgather(tensor)

    def scatter(self, tensor: Any) -> Any:
        """See the top of this file."""
        if not hasattr(self.horovod, "reducescatter"):
            raise Unusable("this Horovod has none")
        return self.horovod.reducescatter(tensor, op=self.horovod.Sum)

    def exchange(self, tensor: Any, target: int, source: int) -> Any:
        """See the top of this file."""
        raise Unusable("Horovod has none")

    def fused(self, values: Values) -> None:
        """Sums of many tensors at once, which Horovod puts together into one message.

        Args:
            values: where they are judged.
        """
        torch, counts = values.torch, range(100, 116)
        handles = [
            self.horovod.allreduce_async(
                pattern(torch, count, values.rank, values.size, torch.float32, values.device),
                name="fused.%s.%d" % (values.device, count), op=self.horovod.Sum,
            )
            for count in counts
        ]
        for count, handle in zip(counts, handles):
            what = "sum of %d float32 on %s among %d at once" % (count, values.device, len(counts))
            expected = total(torch, count, values.size, values.device)
            values.judge(what, self.horovod.synchronize(handle), expected)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check sums, broadcasts, gathers, scattered sums and sends of every backend of a release.

A backend is given as an object with these methods, of which each takes and returns PyTorch's tensors; one that it does
not have raises :class:`.errors.CheckUnavailable`, which is said and never passed over:

    reduce(tensor, kind)              the ``sum`` or ``average`` of all ranks' tensors
    broadcast(tensor, root)           the tensor of rank ``root``
    gather(tensor)                    all ranks' tensors, one after the other
    scatter(tensor)                   this rank's part of the sum of all ranks' tensors
    exchange(tensor, target, source)  send the tensor to one rank, receive as much from another
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from .errors import CheckUnavailable
from .expected_values import (
    COUNTS,
    TOLERANCE,
    contribution,
    contribution_sum,
    contribution_tensor,
    describe_difference,
    distinct_ranks,
    is_exact,
    part_size,
    signature,
    sparse_contribution,
    sparse_sum,
    sum_tensor,
)

OPERATIONS = ("all_reduce", "average", "broadcast", "all_gather", "reduce_scatter", "send_recv")
"""In the order in which they are checked."""

SUMS = ("all_reduce", "average")
"""Those whose arithmetic depends on the type at every length."""


class Outcome(NamedTuple):
    """Hold a check's note, and the operations that the backend does not have, each with the reason."""

    note: str
    lacks: dict[str, str]


def ring_shifts(size: int) -> list[int]:
    """Compute the distances of sends: to the next rank, and to the farthest one in the ring."""
    return sorted({1, size // 2} - {0}) if size > 1 else []


class TensorChecks:
    """Check one backend on one device, ``cpu`` or ``cuda``.

    For each wrong tensor a sentence is added to ``problems``; all ranks go on, as they wait for each other.
    """

    def __init__(self, torch: Any, rank: int, size: int, device: str, problems: list[str]) -> None:
        self.torch, self.rank, self.size, self.device = torch, rank, size, device
        self.problems = problems

    def check(self, backend: Any, types: Sequence[str]) -> Outcome:
        """Check all operations of a backend (see above) with all types, and sizes from one element to a million."""
        done, lacks = [], {}
        for operation in OPERATIONS:
            try:
                for name in types:
                    # Operations that only move data move bytes: a million of one type show what depends on length.
                    for count in COUNTS if operation in SUMS or name == types[0] else COUNTS[:2]:
                        getattr(self, operation)(backend, name, count)
                done.append(operation)
            except CheckUnavailable as reason:
                # Not every backend has an average; users then divide the sum.
                if operation != "average":
                    lacks[operation] = str(reason)
        note = "%s of %s on %s" % (", ".join(done) or "nothing", ", ".join(types), self.device)
        return Outcome("; ".join([note, *("no %s: %s" % item for item in lacks.items())]), lacks)

    def compare(self, what: str, got: Any, expected: Any, tolerance: float = 0.0) -> None:
        """Compare a tensor with the expected one, and add a sentence to the problems if it is wrong."""
        wrong = describe_difference(got, expected, tolerance)
        if wrong:
            self.problems.append("%s: %s" % (what, wrong))

    def _describe(self, operation: str, count: int, name: str, more: str = "") -> str:
        return "%s of %d %s on %s%s" % (operation, count, name, self.device, more)

    def _positions(self, count: int, first: int = 0) -> Any:
        return self.torch.arange(first, first + count, device=self.device)

    def _addends(self, name: str, count: int) -> Any:
        """Return this rank's tensor for a sum, whose sum is exact in its type."""
        part = contribution if is_exact(name, self.size) else sparse_contribution
        return part(self._positions(count), self.rank, self.size).to(getattr(self.torch, name))

    def _reductions(self, name: str, count: int, first: int = 0) -> Any:
        """Return the sum of all ranks' tensors at ``count`` positions from ``first`` on."""
        whole = contribution_sum if is_exact(name, self.size) else sparse_sum
        return whole(self._positions(count, first), self.size).to(self.torch.float64)

    def _signature(self, name: str, count: int, rank: int) -> Any:
        """Return a rank's tensor for operations that move data unchanged."""
        return signature(self._positions(count), rank, distinct_ranks(name)).to(getattr(self.torch, name))

    def all_reduce(self, backend: Any, name: str, count: int) -> None:
        """Check the sum of all ranks' tensors."""
        got = backend.reduce(self._addends(name, count), "sum")
        self.compare(self._describe("sum", count, name), got, self._reductions(name, count))

    def average(self, backend: Any, name: str, count: int) -> None:
        """Check the average of all ranks' tensors, for types that have one."""
        if name in TOLERANCE:
            got = backend.reduce(self._addends(name, count), "average")
            expected = self._reductions(name, count) / self.size
            self.compare(self._describe("average", count, name), got, expected, TOLERANCE[name])

    def broadcast(self, backend: Any, name: str, count: int) -> None:
        """Check a broadcast from the last rank; the others start with values that it never has."""
        root = self.size - 1
        expected = self._signature(name, count, root)
        given = expected.clone() if self.rank == root else self.torch.full_like(expected, -1)
        what = self._describe("broadcast", count, name, " from rank %d" % root)
        self.compare(what, backend.broadcast(given, root), expected)

    def all_gather(self, backend: Any, name: str, count: int) -> None:
        """Check the gathering of all ranks' tensors, which together have ``count`` elements."""
        part = part_size(count, self.size)
        owners = self._positions(self.size).repeat_interleave(part)
        expected = signature(self._positions(part).repeat(self.size), owners, distinct_ranks(name))
        got = backend.gather(self._signature(name, part, self.rank))
        self.compare(self._describe("all_gather", part, name), got, expected)

    def reduce_scatter(self, backend: Any, name: str, count: int) -> None:
        """Check this rank's part of the sum."""
        part = part_size(count, self.size)
        got = backend.scatter(self._addends(name, part * self.size))
        self.compare(self._describe("reduce_scatter", part, name), got, self._reductions(name, part, self.rank * part))

    def send_recv(self, backend: Any, name: str, count: int) -> None:
        """Check sends to the next rank in the ring, and to the farthest one."""
        if self.size == 1:
            raise CheckUnavailable("there is one rank")
        for shift in ring_shifts(self.size):
            target, source = (self.rank + shift) % self.size, (self.rank - shift) % self.size
            got = backend.exchange(self._signature(name, count, self.rank), target, source)
            what = self._describe("receive", count, name, " from rank %d" % source)
            self.compare(what, got, self._signature(name, count, source))


class TorchGroup:
    """Adapt the default process group of torch.distributed."""

    def __init__(self, torch: Any, backend: str) -> None:
        self.torch, self.distributed, self.backend = torch, torch.distributed, backend

    def reduce(self, tensor: Any, kind: str) -> Any:
        """Reduce a tensor over all ranks."""
        operations = self.distributed.ReduceOp
        if kind == "average" and (self.backend != "nccl" or not hasattr(operations, "AVG")):
            raise CheckUnavailable("%s of this PyTorch has none" % self.backend)
        self.distributed.all_reduce(tensor, op=operations.SUM if kind == "sum" else operations.AVG)
        return tensor

    def broadcast(self, tensor: Any, root: int) -> Any:
        """Broadcast a tensor."""
        self.distributed.broadcast(tensor, src=root)
        return tensor

    def gather(self, tensor: Any) -> Any:
        """Gather the tensors of all ranks."""
        parts = [self.torch.full_like(tensor, -1) for _rank in range(self.distributed.get_world_size())]
        self.distributed.all_gather(parts, tensor)
        return self.torch.cat(parts)

    def scatter(self, tensor: Any) -> Any:
        """Reduce a tensor and scatter the sum."""
        parts = list(tensor.chunk(self.distributed.get_world_size()))
        got = self.torch.full_like(parts[0], -1)
        try:
            self.distributed.reduce_scatter(got, parts)
        except RuntimeError as error:
            # This is raised before anything is sent, and so by all ranks alike.
            if "not support" in str(error) or "not implemented" in str(error).lower():
                raise CheckUnavailable("%s of this PyTorch has none" % self.backend) from error
            raise
        return got

    def exchange(self, tensor: Any, target: int, source: int) -> Any:
        """Send a tensor to one rank, and receive one from another."""
        got, distributed = self.torch.full_like(tensor, -1), self.distributed
        if self.backend == "nccl":
            # NCCL's sends one after the other would deadlock (its manual, "Point-to-point communication").
            send = distributed.P2POp(distributed.isend, tensor, target)
            works = distributed.batch_isend_irecv([send, distributed.P2POp(distributed.irecv, got, source)])
        else:
            works = [distributed.isend(tensor, target), distributed.irecv(got, source)]
        for work in works:
            work.wait()
        return got


class Horovod:
    """Adapt the Python module ``horovod.torch``, which is initialised already."""

    def __init__(self, horovod: Any) -> None:
        self.horovod = horovod

    def reduce(self, tensor: Any, kind: str) -> Any:
        """Reduce a tensor over all ranks."""
        return self.horovod.allreduce(tensor, op=self.horovod.Sum if kind == "sum" else self.horovod.Average)

    def broadcast(self, tensor: Any, root: int) -> Any:
        """Broadcast a tensor."""
        return self.horovod.broadcast(tensor, root)

    def gather(self, tensor: Any) -> Any:
        """Gather the tensors of all ranks."""
        return self.horovod.allgather(tensor)

    def scatter(self, tensor: Any) -> Any:
        """Reduce a tensor and scatter the sum."""
        if not hasattr(self.horovod, "reducescatter"):
            raise CheckUnavailable("this Horovod has none")
        return self.horovod.reducescatter(tensor, op=self.horovod.Sum)

    def exchange(self, tensor: Any, target: int, source: int) -> Any:
        """Refuse: Horovod has no send."""
        raise CheckUnavailable("Horovod has none")

    def check_fused(self, values: TensorChecks) -> None:
        """Check sums of many tensors at once, which Horovod fuses into one message."""
        torch, counts, handles = values.torch, range(100, 116), []
        for count in counts:
            mine = contribution_tensor(torch, count, values.rank, values.size, torch.float32, values.device)
            name = "fused.%s.%d" % (values.device, count)
            handles.append(self.horovod.allreduce_async(mine, name=name, op=self.horovod.Sum))
        for count, handle in zip(counts, handles):
            what = "sum of %d float32 on %s among %d at once" % (count, values.device, len(counts))
            expected = sum_tensor(torch, count, values.size, values.device)
            values.compare(what, self.horovod.synchronize(handle), expected)

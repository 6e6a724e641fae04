# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of two nodes measure what goes between them: through torch.distributed, MPI, or plain sockets.

Each class has ``offer`` (what others need to reach this rank, made once), ``join``, ``measure`` and ``leave``.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import threading
import time
from typing import Any, Mapping, NamedTuple, Sequence

from .benchmark import measure_in_group
from .rendezvous import listening, reachable

PATIENCE = 60.0
"""Seconds that the ranks of a pair wait for each other at most: then something is wrong with one of them."""

CHUNK = 1 << 20
"""Bytes that are received at once."""

PERIOD = 65521
"""Bytes after which a pattern begins again: a prime, so that a piece that is missing or twice there shows."""


class Team(NamedTuple):
    """The ranks of a pair of nodes."""

    name: str
    """Of this team alone, in the whole job."""
    members: Sequence[int]
    """Ranks, those of the lower node first; as many of each node."""
    mine: int
    """This rank's place among them."""
    offers: Sequence[Mapping[str, Any]]
    """What each of them has offered, with the ``addresses`` of its host."""


def _one_row(found: Mapping[str, Any]) -> float:
    """The bus bandwidth of a benchmark with one operation and one size, in GB/s.

    Raises:
        RuntimeError: it was not measured, or the values are wrong.
    """
    group = found["measurements"][0]
    if not group["rows"]:
        raise RuntimeError(group["left_out"] or "nothing was measured")
    line = group["rows"][0]
    if not line["verified"]:
        raise RuntimeError("wrong values: %s" % line["wrong"])
    return float(line["busbw"])


class TorchLink:
    """A process group of torch.distributed for each pair, which meets at a store of the lower node.

    Args:
        torch: the module.
        backend: ``gloo`` or ``nccl``.
        plan: what to measure, see :func:`.bandwidth_plan.plan`.
        limit: seconds until the deadline.
    """

    def __init__(self, torch: Any, backend: str, plan: Mapping[str, Any], limit: float) -> None:
        self.torch, self.backend, self.plan = torch, backend, plan
        self.patience = datetime.timedelta(seconds=min(limit, PATIENCE))
        self.own: Any = None
        self.team: Team | None = None

    def offer(self, leader: bool) -> dict[str, Any]:
        """A port; only the first rank of a node has a store."""
        if not leader:
            return {}
        self.own = self.torch.distributed.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=self.patience
        )
        return {"port": self.own.port}

    def join(self, team: Team) -> None:
        """Make the pair's process group."""
        distributed, store = self.torch.distributed, self.own
        if team.mine:
            port = team.offers[0]["port"]
            store = distributed.TCPStore(
                reachable(team.offers[0]["addresses"], port), port, is_master=False, wait_for_workers=False,
                timeout=self.patience,
            )
        distributed.init_process_group(
            self.backend, store=distributed.PrefixStore(team.name, store), rank=team.mine,
            world_size=len(team.members), timeout=self.patience,
        )
        self.team = team

    def measure(self) -> float:
        """The pair's bus bandwidth in GB/s, the same on all its ranks."""
        if self.team is None:
            raise RuntimeError("there is no process group")
        device = "cuda" if self.backend == "nccl" else "cpu"
        ranks = len(self.team.members)
        return _one_row(measure_in_group(self.torch, self.backend, device, self.team.mine, ranks, self.plan))

    def leave(self) -> None:
        """Give the process group up."""
        self.team = None
        if self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()


class MpiLink:
    """A communicator of MPI for each pair, made by its ranks alone, through mpi4py.

    Args:
        mpi: the module ``mpi4py.MPI``.
        plan: what to measure, see :func:`.bandwidth_plan.plan`.
    """

    def __init__(self, mpi: Any, plan: Mapping[str, Any]) -> None:
        self.mpi, self.plan = mpi, plan
        self.team: Team | None = None
        self.communicator: Any = None

    def offer(self, leader: bool) -> dict[str, Any]:
        """Nothing: all ranks know each other."""
        return {}

    def join(self, team: Team) -> None:
        """Make the pair's communicator."""
        world = self.mpi.COMM_WORLD
        everyone = world.Get_group()
        group = everyone.Incl(list(team.members))
        self.communicator = world.Create_group(group)
        group.Free()
        everyone.Free()
        self.team = team

    def measure(self) -> float:
        """The pair's bus bandwidth in GB/s, the same on all its ranks."""
        if self.team is None:
            raise RuntimeError("there is no communicator")
        ranks = len(self.team.members)
        return _one_row(
            measure_in_group(None, "mpi", "cpu", self.team.mine, ranks, self.plan, group=self.communicator)
        )

    def leave(self) -> None:
        """Give the communicator up."""
        self.team = None
        if self.communicator is not None:
            self.communicator.Free()
            self.communicator = None


class SocketLink:
    """A TCP connection of each rank with its counterpart on the other node; needs nothing but Python.

    Both send at once, for networks are used both ways at once, too.

    Args:
        rank: which one this is.
        plan: ``largest`` (bytes), ``warmups`` and ``trials``.
        limit: seconds until the deadline.
    """

    def __init__(self, rank: int, plan: Mapping[str, Any], limit: float) -> None:
        self.rank, self.plan, self.limit = rank, plan, min(limit, PATIENCE)
        self.door = listening()
        self.door.settimeout(self.limit)
        self.wire: socket.socket | None = None
        self.team: Team | None = None

    def offer(self, leader: bool) -> dict[str, Any]:
        """A port."""
        return {"port": self.door.getsockname()[1]}

    def _counterpart(self, team: Team) -> int:
        """The place of this rank's counterpart in the team."""
        return (team.mine + len(team.members) // 2) % len(team.members)

    def join(self, team: Team) -> None:
        """Connect; the rank of the lower node is called."""
        other = self._counterpart(team)
        called = ("%s/%d\n" % (team.name, min(team.mine, other))).encode("ascii")
        if team.mine > other:
            offer = team.offers[other]
            place = reachable(offer["addresses"], offer["port"])
            self.wire = socket.create_connection((place, offer["port"]), timeout=self.limit)
            self.wire.sendall(called)
        while self.wire is None:
            wire, _address = self.door.accept()
            wire.settimeout(self.limit)
            # Whoever only tries the port says nothing, or something else.
            with contextlib.suppress(OSError):
                if _received(wire, len(called)) == called:
                    self.wire = wire
        self.team = team

    def measure(self) -> float:
        """What goes each way between the two, in GB/s, for this rank and its counterpart alone."""
        if self.wire is None or self.team is None:
            raise RuntimeError("there is no connection")
        size = self.plan["largest"]
        mine, theirs = (_pattern(self.team.members[place], size) for place in (
            self.team.mine, self._counterpart(self.team)))
        for _number in range(max(1, self.plan["warmups"])):
            got = self._exchange(mine)
        # The counterpart does not know, and goes on.
        wrong = got != theirs
        started = time.perf_counter()
        for _number in range(self.plan["trials"]):
            got = self._exchange(mine)
        seconds = time.perf_counter() - started
        if wrong or got != theirs:
            raise RuntimeError("wrong values: rank %d got others than were sent" % self.rank)
        return size * self.plan["trials"] / max(seconds, 1e-9) / 1e9

    def _exchange(self, mine: bytes) -> bytes:
        wire = self.wire
        if wire is None:
            raise RuntimeError("there is no connection")
        failures = []

        def send() -> None:
            try:
                wire.sendall(mine)
            except OSError as error:
                failures.append(error)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        got = _received(wire, len(mine))
        sender.join()
        if failures:
            raise failures[0]
        return got

    def leave(self) -> None:
        """Close the connection."""
        self.team = None
        if self.wire is not None:
            self.wire.close()
            self.wire = None


def _received(wire: socket.socket, count: int) -> bytes:
    """So many bytes.

    Raises:
        ConnectionError: the other end has left.
    """
    buffer = bytearray(count)
    view, place = memoryview(buffer), 0
    while place < count:
        got = wire.recv_into(view[place:place + CHUNK])
        if not got:
            raise ConnectionError("the other rank has left")
        place += got
    return bytes(buffer)


def _pattern(rank: int, size: int) -> bytes:
    """Bytes that tell this rank from others, and each place from those around it."""
    once = bytes((place * 7 + place // 251 + rank * 13) % 256 for place in range(PERIOD))
    return (once * (size // PERIOD + 1))[:size]

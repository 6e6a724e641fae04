# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the bandwidth between the ranks of two nodes, by torch.distributed, MPI or sockets.

Each class has ``offer`` (what others need to reach this rank, made once), ``join``, ``measure`` and ``leave``.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import threading
import time
from typing import Any, Mapping, NamedTuple, Sequence, cast

from .benchmark import measure_in_group
from .rendezvous import end_group
from .socket_group import first_reachable, listen

PEER_TIMEOUT = 60.0
"""Seconds that the ranks of a pair wait for each other at most: then something is wrong with one of them."""

CHUNK = 1 << 20
"""Bytes that are received at once."""

PERIOD = 65521
"""Bytes after which a pattern begins again: a prime, so that a piece that is missing or twice there shows."""


class Team(NamedTuple):
    """Describe the ranks of a pair of nodes, those of the lower node first, and this rank's place among them.

    The name is of this team alone in the whole job. Each offer has the ``addresses`` of its host as well.
    """

    name: str
    members: Sequence[int]
    position: int
    offers: Sequence[Mapping[str, Any]]


def _single_bandwidth(found: Mapping[str, Any]) -> float:
    """Return the bus bandwidth in GB/s of a benchmark with one row; RuntimeError without one, and for wrong values."""
    group = found["measurements"][0]
    if not group["rows"]:
        raise RuntimeError(group["left_out"] or "nothing was measured")
    line = group["rows"][0]
    if not line["verified"]:
        raise RuntimeError("wrong values: %s" % line["wrong"])
    return float(line["busbw"])


class TorchLink:
    """Measure in a process group of torch.distributed for each pair; its store is on the lower node."""

    def __init__(self, torch: Any, backend: str, plan: Mapping[str, Any], limit: float) -> None:
        self.torch, self.backend, self.plan = torch, backend, plan
        self.patience = datetime.timedelta(seconds=min(limit, PEER_TIMEOUT))
        self.own: Any = None
        self.team: Team | None = None

    def offer(self, leader: bool) -> dict[str, Any]:
        """Open a store at the first rank of a node, and return its port."""
        if not leader:
            return {}
        self.own = self.torch.distributed.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=self.patience)
        return {"port": self.own.port}

    def join(self, team: Team) -> None:
        """Create the pair's process group."""
        distributed, store = self.torch.distributed, self.own
        if team.position:
            port = team.offers[0]["port"]
            store = distributed.TCPStore(
                first_reachable(team.offers[0]["addresses"], port), port, is_master=False, wait_for_workers=False,
                timeout=self.patience)
        distributed.init_process_group(
            self.backend, store=distributed.PrefixStore(team.name, store), rank=team.position,
            world_size=len(team.members), timeout=self.patience)
        self.team = team

    def measure(self) -> float:
        """Measure the pair's bus bandwidth in GB/s, the same on all its ranks."""
        if self.team is None:
            raise RuntimeError("there is no process group")
        device, ranks = "cuda" if self.backend == "nccl" else "cpu", len(self.team.members)
        return _single_bandwidth(
            measure_in_group(self.torch, self.backend, device, self.team.position, ranks, self.plan))

    def close(self) -> None:
        """Destroy the process group."""
        self.team = None
        if self.torch.distributed.is_initialized():
            end_group(self.torch.distributed)


class MpiLink:
    """Measure in a communicator of MPI for each pair, through mpi4py; its ranks alone create it."""

    def __init__(self, mpi: Any, plan: Mapping[str, Any]) -> None:
        self.mpi, self.plan = mpi, plan
        self.team: Team | None = None
        self.communicator: Any = None

    def offer(self, leader: bool) -> dict[str, Any]:
        """Return nothing: all ranks know each other."""
        return {}

    def join(self, team: Team) -> None:
        """Create the pair's communicator."""
        world = self.mpi.COMM_WORLD
        everyone = world.Get_group()
        group = everyone.Incl(list(team.members))
        self.communicator = world.Create_group(group)
        group.Free()
        everyone.Free()
        self.team = team

    def measure(self) -> float:
        """Measure the pair's bus bandwidth in GB/s, the same on all its ranks."""
        if self.team is None:
            raise RuntimeError("there is no communicator")
        ranks = len(self.team.members)
        return _single_bandwidth(
            measure_in_group(None, "mpi", "cpu", self.team.position, ranks, self.plan, self.communicator))

    def close(self) -> None:
        """Free the communicator."""
        self.team = None
        if self.communicator is not None:
            self.communicator.Free()
            self.communicator = None


class SocketLink:
    """Measure TCP connections, one of each rank with its counterpart, both ways at once; needs nothing but Python.

    ``plan`` has ``largest`` (bytes), ``warmups`` and ``trials``.
    """

    def __init__(self, rank: int, plan: Mapping[str, Any], limit: float) -> None:
        self.rank, self.plan, self.limit = rank, plan, min(limit, PEER_TIMEOUT)
        self.server = listen()
        self.server.settimeout(self.limit)
        self.connection: socket.socket | None = None
        self.team: Team | None = None

    def offer(self, leader: bool) -> dict[str, Any]:
        """Return the port of this rank."""
        return {"port": self.server.getsockname()[1]}

    def _counterpart(self, team: Team) -> int:
        """Return the position of this rank's counterpart in the team."""
        return (team.position + len(team.members) // 2) % len(team.members)

    def join(self, team: Team) -> None:
        """Connect to the counterpart; the rank of the lower node accepts."""
        other = self._counterpart(team)
        called = ("%s/%d\n" % (team.name, min(team.position, other))).encode("ascii")
        if team.position > other:
            offer = team.offers[other]
            place = first_reachable(offer["addresses"], offer["port"])
            self.connection = socket.create_connection((place, offer["port"]), timeout=self.limit)
            self.connection.sendall(called)
        while self.connection is None:
            wire, _address = self.server.accept()
            wire.settimeout(self.limit)
            # A port scanner sends nothing, or something else.
            with contextlib.suppress(OSError):
                if _receive(wire, len(called)) == called:
                    self.connection = wire
        self.team = team

    def measure(self) -> float:
        """Measure the bandwidth each way to the counterpart, in GB/s, of this rank alone."""
        if self.connection is None or self.team is None:
            raise RuntimeError("there is no connection")
        size = self.plan["largest"]
        places = self.team.position, self._counterpart(self.team)
        sent, theirs = (_test_bytes(self.team.members[place], size) for place in places)
        for _number in range(max(1, self.plan["warmups"])):
            got = self._exchange(sent)
        # The counterpart goes on, and so does this rank.
        wrong = got != theirs
        started = time.perf_counter()
        for _number in range(self.plan["trials"]):
            got = self._exchange(sent)
        seconds = time.perf_counter() - started
        if wrong or got != theirs:
            raise RuntimeError("wrong values: rank %d got others than were sent" % self.rank)
        return size * self.plan["trials"] / max(seconds, 1e-9) / 1e9

    def _exchange(self, sent: bytes) -> bytes:
        wire, failures = cast(socket.socket, self.connection), []

        def send() -> None:
            try:
                wire.sendall(sent)
            except OSError as error:
                failures.append(error)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        got = _receive(wire, len(sent))
        sender.join()
        if failures:
            raise failures[0]
        return got

    def close(self) -> None:
        """Close the connection."""
        self.team = None
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def _receive(wire: socket.socket, count: int) -> bytes:
    """Receive ``count`` bytes; ConnectionError where the other end has left."""
    buffer = bytearray(count)
    view, place = memoryview(buffer), 0
    while place < count:
        got = wire.recv_into(view[place:place + CHUNK])
        if not got:
            raise ConnectionError("the other rank has left")
        place += got
    return bytes(buffer)


def _test_bytes(rank: int, size: int) -> bytes:
    """Make bytes that tell this rank from others, and each place from those around it."""
    once = bytes((place * 7 + place // 251 + rank * 13) % 256 for place in range(PERIOD))
    return (once * (size // PERIOD + 1))[:size]

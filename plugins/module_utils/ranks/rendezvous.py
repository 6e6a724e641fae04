# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job find each other before any backend is tried, and hand small things around."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import json
import os
import resource
import socket
import sys
import time
from typing import Any, Callable, Mapping, NoReturn, Sequence

from .rank_errors import Refused

JOIN_SECONDS = 0.2
"""Between two attempts to reach rank 0, which may begin later than the others."""

GREETING_SECONDS = 10.0
"""For whoever has come to say which rank it is, which a rank does at once."""

SHOWN = 12
"""Of ranks that are missing, how many are named."""

SPARE_FILES = 64
"""Descriptors beside one for each rank at rank 0's table."""


def listening(port: int = 0, seats: int = 128) -> socket.socket:
    """A socket on all addresses of this host, of both families where it has them.

    Args:
        port: on which; a free one by default.
        seats: how many may come at once.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=max(1, seats))


class Table:
    """Where all ranks meet, at rank 0's address and a port: a star of connections, one for each other rank.

    What it costs at rank 0: one descriptor for each other rank, and the time to read and write as many lines.

    Args:
        rank: which one this is.
        size: how many there are.
        address: rank 0's.
        port: on which it listens.
        limit: how long one waits for the others, in seconds.
        server: what rank 0 listens with already.
    """

    def __init__(
        self, rank: int, size: int, address: str, port: int, limit: float, server: socket.socket | None = None
    ) -> None:
        self.rank, self.size = rank, size
        self.seats: dict[int, Any] = {}
        if rank:
            self.seats[0] = self._sit_down(address, port, time.monotonic() + limit, limit)
            return
        _more_files(size + SPARE_FILES)
        end = time.monotonic() + limit
        with server or listening(port, size) as door:
            while len(self.seats) < size - 1:
                door.settimeout(max(0.01, end - time.monotonic()))
                try:
                    connection, _address = door.accept()
                except socket.timeout as error:
                    missing = sorted(set(range(1, size)) - set(self.seats))
                    raise ConnectionError("%d of %d ranks have not come to rank 0 within %d s: %s%s" % (
                        len(missing), size, limit, ", ".join(map(str, missing[:SHOWN])),
                        " ..." if missing[SHOWN:] else "")) from error
                connection.settimeout(GREETING_SECONDS)
                seat = connection.makefile("rwb")
                # A line of anything else, such as of whoever tries all ports, is no rank of this job.
                with contextlib.suppress(ValueError, OSError):
                    guest = int(seat.readline(16))
                    if 0 < guest < size:
                        connection.settimeout(limit)
                        self.seats[guest] = seat

    @classmethod
    def by(cls, exchange: Callable[[Any], Sequence[Any]], rank: int, size: int, limit: float) -> Table:
        """A table that needs nothing more of what the ranks have met by, such as MPI.

        Args:
            exchange: gives what every rank has given.
            rank: which one this is.
            size: how many there are.
            limit: how long one waits for the others, in seconds.
        """
        host = socket.gethostname()
        server = None if rank else listening(0, size)
        offer = None
        if server is not None:
            offer = {"port": server.getsockname()[1], "host": host, "addresses": addresses(host)}
        offer = exchange(offer)[0]
        near = ["127.0.0.1"] if offer["host"] == host else []
        address = reachable([*near, *offer["addresses"]], offer["port"]) if rank else ""
        return cls(rank, size, address, offer["port"], limit, server)

    def _sit_down(self, address: str, port: int, end: float, limit: float) -> Any:
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=limit)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise ConnectionError("rank 0 is not reached at %s port %d: %s" % (address, port, error)) from error
                time.sleep(JOIN_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seat = connection.makefile("rwb")
        self._tell(seat, self.rank)
        return seat

    def gather(self, thing: Any) -> list[Any]:
        """What every rank has given, in their order.

        Raises:
            ConnectionError: another rank has left.
        """
        return self.share(self.collect(thing))

    def collect(self, thing: Any) -> list[Any] | None:
        """At rank 0 what every rank has given, in their order; None elsewhere.

        Raises:
            ConnectionError: another rank has left.
        """
        if self.rank:
            self._tell(self.seats[0], thing)
            return None
        return [thing, *(self._hear(guest) for guest in range(1, self.size))]

    def share(self, thing: Any) -> Any:
        """What rank 0 has given.

        Raises:
            ConnectionError: another rank has left.
        """
        if self.rank:
            return self._hear(0)
        line = _line(thing)
        for seat in self.seats.values():
            seat.write(line)
            seat.flush()
        return thing

    def answer(self, things: Sequence[Any] | None) -> Any:
        """What rank 0 has for this rank.

        Args:
            things: at rank 0 one thing for each rank, in their order.

        Raises:
            ConnectionError: another rank has left.
        """
        if self.rank or things is None:
            return self._hear(0)
        for guest, seat in self.seats.items():
            self._tell(seat, things[guest])
        return things[0]

    def barrier(self) -> None:
        """Wait for all ranks.

        Raises:
            ConnectionError: another rank has left.
        """
        self.collect(None)
        self.share(None)

    @staticmethod
    def _tell(seat: Any, thing: Any) -> None:
        seat.write(_line(thing))
        seat.flush()

    def _hear(self, other: int) -> Any:
        line = self.seats[other].readline()
        if not line:
            raise ConnectionError("rank %d has left" % other)
        return json.loads(line.decode("ascii"))


def _line(thing: Any) -> bytes:
    return json.dumps(thing).encode("ascii") + b"\n"


def _more_files(wanted: int) -> None:
    """Allow this process so many open files, as far as its limit can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Meeting:
    """What the ranks hand small things around by: whatever the launcher and the release offer.

    Args:
        place: ``rank``, ``size``, ``source`` and ``host`` of this rank.
        modules: the Python modules that it has imported, by name.
        limit: how long one waits for the others, in seconds.
    """

    def __init__(self, place: Mapping[str, Any], modules: Mapping[str, Any], limit: float) -> None:
        self.rank, self.size = place["rank"], place["size"]
        self.source, self.host = place["source"], place["host"]
        self.modules, self.limit = modules, limit
        self.sizes: dict[str, list[int]] = {}
        self.port: int | None = None
        self.store: Any = None
        self.rounds = 0
        self._exchange: Callable[[Any], Sequence[Any]] | None = None

    def patience(self) -> datetime.timedelta:
        """How long to wait for the others, as a duration."""
        return datetime.timedelta(seconds=self.limit)

    def connect(self) -> None:
        """Start the parallel libraries and find a way to hand small things around.

        Raises:
            Refused: there is none, or a library counts other ranks than the launcher.
        """
        address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        mpi = self.modules.get("mpi4py.MPI")
        if mpi is None and self.size > 1 and not (address and port) and "horovod.torch" not in self.modules:
            # Not asked for, and better than not to meet.
            with contextlib.suppress(ImportError):
                mpi = importlib.import_module("mpi4py.MPI")
        if mpi is not None:
            self.sizes["mpi4py"] = [mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()]
            self._exchange = mpi.COMM_WORLD.allgather
        if "horovod.torch" in self.modules:
            horovod = self.modules["horovod.torch"]
            horovod.init()
            self.sizes["horovod"] = [horovod.rank(), horovod.size()]
            # Without a name Horovod names it after the type of the thing, which differs between the ranks.
            by_name = functools.partial(horovod.allgather_object, name="acceptance")
            self._exchange = self._exchange or by_name
        for library, seen in self.sizes.items():
            if seen != [self.rank, self.size]:
                raise Refused("%s sees rank %d of %d where the launcher started rank %d of %d" % (
                    library, *seen, self.rank, self.size))
        torch = self.modules.get("torch")
        if self._exchange is None and torch is not None and self.source == "torchrun":
            self.store = torch.distributed.TCPStore(address, int(port), is_master=False, timeout=self.patience())
            self._exchange = self._through_store
        if self._exchange is None and address and port:
            self._exchange = Table(self.rank, self.size, address, int(port), self.limit).gather
        if self._exchange is None and self.size == 1:
            self._exchange = _alone
        if self._exchange is None:
            raise Refused(
                "nothing here can hand a port from rank 0 to the others: there is no mpi4py, none of the checks uses "
                "Horovod, the launcher is not torchrun, and nobody has set MASTER_ADDR and MASTER_PORT"
            )

    def exchange(self, thing: Any) -> list[Any]:
        """What every rank has given, in their order."""
        if self._exchange is None:
            raise Refused("the ranks have not met")
        return list(self._exchange(thing))

    def table(self) -> Table:
        """Sockets between the ranks, which need no library any more."""
        return Table.by(self.exchange, self.rank, self.size, self.limit)

    def _through_store(self, thing: Any) -> list[Any]:
        """What every rank has given, by way of torchrun's own store, in which rank 0 puts it together."""
        self.rounds += 1
        keys = ["acceptance/%d/%d" % (self.rounds, rank) for rank in range(self.size)]
        whole = "acceptance/%d" % self.rounds
        self.store.set(keys[self.rank], json.dumps(thing))
        if self.rank == 0:
            told = [json.loads(self.store.get(key).decode("utf-8")) for key in keys]
            self.store.set(whole, json.dumps(told))
        return json.loads(self.store.get(whole).decode("utf-8"))

    def open_store(self) -> Any:
        """A rendezvous store of this job alone: rank 0 takes a free port and hands it out."""
        if self.store is not None:
            return self.store
        distributed, offer = self.modules["torch"].distributed, None
        if self.rank == 0:
            self.store = distributed.TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=self.patience()
            )
            offer = {"port": self.store.port, "host": self.host, "addresses": addresses(self.host)}
        offer = self.exchange(offer)[0]
        if self.store is None:
            near = ["127.0.0.1"] if offer["host"] == self.host else []
            self.store = distributed.TCPStore(
                reachable([*near, *offer["addresses"]], offer["port"]), offer["port"], is_master=False,
                wait_for_workers=False, timeout=self.patience(),
            )
        self.port = offer["port"]
        return self.store


def leave(code: int) -> NoReturn:
    """End this rank at once, and with it those that wait for it in MPI.

    Many launchers end them all when one leaves without MPI_Finalize; srun does so only where the site has set
    KillOnBadExit (slurm.conf(5)).
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(code)
    os._exit(code)


def _alone(thing: Any) -> list[Any]:
    return [thing]


def addresses(host: str) -> list[str]:
    """Names and addresses under which others may reach this host, the likeliest first."""
    found = [host]
    for name in (host, socket.getfqdn()):
        with contextlib.suppress(OSError):
            found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return list(dict.fromkeys(found))


def reachable(candidates: Sequence[str], port: int) -> str:
    """The first address at which somebody listens.

    Raises:
        ConnectionError: none of them.
    """
    reasons = []
    for address in candidates:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return address
        except OSError as error:
            reasons.append("%s (%s)" % (address, error))
    raise ConnectionError("rank 0 cannot be reached at port %d: %s" % (port, ", ".join(reasons)))

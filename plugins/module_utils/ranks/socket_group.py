# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Connect the ranks of a job to rank 0 by TCP, and exchange JSON over these connections."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import resource
import secrets
import selectors
import socket
import time
from typing import Any, Callable, Mapping, Sequence

JOIN_SECONDS = 0.2
"""Between two attempts to reach rank 0, which may begin later than the others."""

GREETING_SECONDS = 10.0
"""For whoever has come to say which rank it is, which a rank does at once."""

SHOWN = 12
"""Number of missing ranks that are named."""

SPARE_FILES = 64
"""Descriptors beside one for each rank at rank 0."""

SECRET = "TORCHSTACK_SEATS"
"""Environment variable with what only ranks of one job know, where they meet by an address alone."""

MOST_GUESTS = 32
"""Connections at rank 0 whose ranks are not known yet."""

_GREETING_BYTES = 128


def listen(port: int = 0, connections: int = 128) -> socket.socket:
    """Open a socket on all addresses of this host, of both families where it has them."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=max(1, connections))


class _Guest:
    """Somebody who has come, and what they have said so far."""

    def __init__(self) -> None:
        self.until = time.monotonic() + GREETING_SECONDS
        self.line = bytearray()

    def hear(self, connection: socket.socket) -> bool:
        """Hear what they say, and not a byte beyond the end of their line; tell whether that is all."""
        while not self.line.endswith(b"\n") and len(self.line) < _GREETING_BYTES:
            try:
                said = connection.recv(1)
            except BlockingIOError:
                return False
            except OSError:
                said = b""
            if not said:
                self.line.clear()
                return True
            self.line += said
        return True


class SocketGroup:
    """Connect all ranks to rank 0, at its address and a port: a star of connections.

    What it costs at rank 0: one descriptor for each other rank, and the time to read and write as many lines. All
    methods raise ConnectionError where another rank has left.

    Args:
        limit: how long one waits for the others, in seconds.
        server: what rank 0 listens with already.
        secret: what only ranks of this job know, without which nobody is one; else the one of the environment.
    """

    def __init__(
        self, rank: int, size: int, address: str, port: int, limit: float, server: socket.socket | None = None,
        secret: str = "",
    ) -> None:
        self.rank, self.size = rank, size
        self._secret = (secret or os.environ.get(SECRET, "")).encode("utf-8", "surrogateescape")
        self.connections: dict[int, Any] = {}
        if rank:
            self.connections[0] = self._connect(address, port, time.monotonic() + limit, limit)
            return
        _raise_open_file_limit(size + SPARE_FILES)
        with server or listen(port, size) as door:
            self._seat_all(door, limit)

    def _seat_all(self, door: socket.socket, limit: float) -> None:
        """Give each rank its seat; whoever says nothing, or nothing of a rank, keeps nobody waiting."""
        end = time.monotonic() + limit
        door.setblocking(False)
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as unseated:
            selector.register(door, selectors.EVENT_READ)
            guests: dict[socket.socket, _Guest] = {}
            unseated.callback(_send_all_away, guests, selector)
            while len(self.connections) < self.size - 1:
                now = time.monotonic()
                if now >= end:
                    missing = sorted(set(range(1, self.size)) - set(self.connections))
                    raise ConnectionError("%d of %d ranks have not come to rank 0 within %d s: %s%s" % (
                        len(missing), self.size, limit, ", ".join(map(str, missing[:SHOWN])),
                        " ..." if missing[SHOWN:] else ""))
                for key, _events in selector.select(max(0.01, min(1.0, end - now))):
                    guest = _admit(door, guests, selector) if key.fileobj is door else key.fileobj
                    if isinstance(guest, socket.socket) and guest in guests and guests[guest].hear(guest):
                        selector.unregister(guest)
                        self._seat(guest, guests.pop(guest), limit)
                for late in [one for one, said in guests.items() if said.until < time.monotonic()]:
                    _send_away(late, guests, selector)

    def _seat(self, connection: socket.socket, said: _Guest, limit: float) -> None:
        """Take a guest for the rank that it says it is, if it knows the secret."""
        # A line of anything else, such as of a port scanner, is no rank of this job.
        peer = 0
        with contextlib.suppress(ValueError):
            number, _space, secret = bytes(said.line).strip().partition(b" ")
            peer = int(number) if hmac.compare_digest(secret, self._secret) else 0
        if not 0 < peer < self.size:
            connection.close()
        elif peer in self.connections:
            connection.close()
            raise ConnectionError("two have come to rank 0 as rank %d" % peer)
        else:
            connection.settimeout(limit)
            self.connections[peer] = connection.makefile("rwb")

    @classmethod
    def from_exchange(cls, exchange: Callable[[Any], Sequence[Any]], rank: int, size: int, limit: float) -> SocketGroup:
        """Create a group of ranks that can exchange data already, as by MPI, without using that later."""
        host = socket.gethostname()
        server = None if rank else listen(0, size)
        # Whoever else reaches the port does not know what comes with it.
        own = dict(make_offer(server.getsockname()[1], host), secret=secrets.token_hex(16)) if server else None
        offer = exchange(own)[0]
        address = address_of(offer, host) if rank else ""
        return cls(rank, size, address, offer["port"], limit, server, offer["secret"])

    def _connect(self, address: str, port: int, end: float, limit: float) -> Any:
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=limit)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise ConnectionError("rank 0 is not reached at %s port %d: %s" % (address, port, error)) from error
                time.sleep(JOIN_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rwb")
        _send(stream, b"%d %s\n" % (self.rank, self._secret))
        return stream

    def all_gather(self, value: Any) -> list[Any]:
        """Gather what every rank gives, in their order."""
        return self.broadcast(self.gather(value))

    def gather(self, value: Any) -> list[Any] | None:
        """Gather at rank 0 what every rank gives, in their order; return None elsewhere."""
        if self.rank:
            _send(self.connections[0], _line(value))
            return None
        return [value, *(self._receive(peer) for peer in range(1, self.size))]

    def broadcast(self, value: Any) -> Any:
        """Broadcast what rank 0 gives."""
        if self.rank:
            return self._receive(0)
        line = _line(value)
        for stream in self.connections.values():
            _send(stream, line)
        return value

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather(None)
        self.broadcast(None)

    def _receive(self, other: int) -> Any:
        line = self.connections[other].readline()
        if not line:
            raise ConnectionError("rank %d has left" % other)
        return json.loads(line.decode("ascii"))


def _admit(
    door: socket.socket, guests: dict[socket.socket, _Guest], selector: selectors.BaseSelector
) -> socket.socket | None:
    """Let the next one in; who has said nothing for longest goes where there are too many."""
    try:
        connection, _address = door.accept()
    except OSError:
        return None
    if len(guests) >= MOST_GUESTS:
        _send_away(next(iter(guests)), guests, selector)
    connection.setblocking(False)
    guests[connection] = _Guest()
    selector.register(connection, selectors.EVENT_READ)
    return connection


def _send_all_away(guests: dict[socket.socket, _Guest], selector: selectors.BaseSelector) -> None:
    for guest in list(guests):
        _send_away(guest, guests, selector)


def _send_away(
    connection: socket.socket, guests: dict[socket.socket, _Guest], selector: selectors.BaseSelector
) -> None:
    selector.unregister(connection)
    del guests[connection]
    connection.close()


def _send(stream: Any, line: bytes) -> None:
    stream.write(line)
    stream.flush()


def _line(value: Any) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _raise_open_file_limit(wanted: int) -> None:
    """Raise this process' limit of open files to ``wanted``, as far as it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def addresses(host: str) -> list[str]:
    """List names and addresses under which others may reach this host, the likeliest first."""
    found = [host]
    for name in (host, socket.getfqdn()):
        with contextlib.suppress(OSError):
            found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return list(dict.fromkeys(found))


def make_offer(port: int, host: str) -> dict[str, Any]:
    """Describe a port that listens on this host, for :func:`address_of` of other ranks."""
    return {"port": port, "host": host, "addresses": addresses(host)}


def address_of(offer: Mapping[str, Any], host: str) -> str:
    """Find the address at which an offer is reached from this host."""
    near = ["127.0.0.1"] if offer["host"] == host else []
    return first_reachable([*near, *offer["addresses"]], offer["port"])


def addresses_towards(address: str) -> list[str]:
    """List this host's own address on the way to another one, where its name may not resolve."""
    if not address:
        return []
    with contextlib.suppress(OSError):
        family, _type, _protocol, _name, place = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the kernel only chooses the route.
            probe.connect(place)
            return [str(probe.getsockname()[0])]
    return []


def first_reachable(candidates: Sequence[str], port: int) -> str:
    """Return the first address at which a connection is accepted; ConnectionError where none is."""
    reasons = []
    for address in candidates:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return address
        except OSError as error:
            reasons.append("%s (%s)" % (address, error))
    raise ConnectionError("rank 0 cannot be reached at port %d: %s" % (port, ", ".join(reasons)))

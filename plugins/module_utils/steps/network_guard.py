# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuse the network to a step, by a listener on the loopback that answers and records requests.

A step on a compute node has no way out anyway, and what a download there says is a name that does not resolve, or a
silence of minutes. Here every program that honours proxy variables is told to ask a listener, which refuses at once; so
the step fails with the host, the address and its own name, on a login node as on a compute node.

That is no wall: a program that opens its own sockets is not held up. A network namespace would hold it, and with it the
ranks of an MPI on several nodes and the daemons of a batch system; and not every kernel gives one to accounts.

The listener is a thread of the supervisor, so that it lives exactly as long, and no process of the job can end it. It
holds a bounded number of connections at a time; more wait in the kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shlex
import socket
import threading
import time
from typing import Any, Callable, NamedTuple, Sequence

from ..core import tcp_connections as connections
from ..core.clock import utc
from ..core.redaction import without_credentials
from .network_refusals import NO_NETWORK, describe_refused
from .proxy_requests import (
    GREETED,
    MAX_REQUEST_BYTES,
    UNKNOWN,
    Asked,
    address_in,
    is_greeting,
    parse_request,
    refusal,
)

MAX_RECORDED = 200
"""Addresses that are recorded; of what is asked for after that only the number is known."""

MAX_EXAMINED = 2000
"""Refusals that are examined; more are only counted, so that a program that asks without end costs little."""

MAX_ATTRIBUTED = 50
"""Refusals whose client is searched for among the account's processes."""

MAX_IN_OUTCOME = 10
"""Addresses in the record of how the step ended."""

MAX_CONNECTIONS = 64

CLIENT_SECONDS = 10.0
"""Seconds that a client has for its request, and for taking the answer."""

_LOCAL = "localhost,127.0.0.1,::1"
_TICK = 1.0
_PAUSE = 0.1
_COMMAND_LENGTH = 200
_QUERY = re.compile(r"(?<=\S)\?\S+")
"""In a command, the query of an address: some hosts have their credentials there, under any name."""
_SSH = (
    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf \"SSH %%s\\r\\n\\r\\n\" \"$*\" >&3 && cat <&3 >&2; exit 1' ssh"
)


def variables(port: int) -> dict[str, str]:
    """Return the variables of a script without network; :data:`.NO_NETWORK` is shell text that the script runs itself.

    The proxy variables reach curl, wget, git, pip, conda, npm, CMake, Python's urllib and requests, and Go. Some get
    settings of their own, as their configuration comes first; and git reaches some hosts by other ways than http.
    """
    proxy = "http://127.0.0.1:%d" % port
    found = {"no_proxy": _LOCAL}
    found.update((scheme + "_proxy", proxy) for scheme in ("http", "https", "ftp", "all"))
    found.update([(name.upper(), value) for name, value in found.items()])
    # A refusal is final: pip and cargo would ask again and again, pip once so that it says what it asked for.
    found.update(PIP_PROXY=proxy, PIP_RETRIES="1", CARGO_HTTP_PROXY=proxy, CARGO_NET_RETRY="0")
    found.update(npm_config_proxy=proxy, npm_config_https_proxy=proxy, npm_config_noproxy=_LOCAL)
    found.update(npm_config_fetch_retries="0")
    found.update(GIT_SSH_COMMAND=_SSH % port, GIT_SSH_VARIANT="ssh")
    lines = ["export %s=%s" % (name, shlex.quote(value)) for name, value in sorted(found.items())]
    # Behind the settings that the script has for git by then, which git counts.
    for key, value in (("http.proxy", proxy), ("url.http://.insteadOf", "git://")):
        lines += [
            'export "GIT_CONFIG_KEY_${GIT_CONFIG_COUNT:-0}=%s"' % key,
            'export "GIT_CONFIG_VALUE_${GIT_CONFIG_COUNT:-0}=%s"' % value,
            "export GIT_CONFIG_COUNT=$((${GIT_CONFIG_COUNT:-0} + 1))",
        ]
    return dict(found, **{NO_NETWORK: "\n".join(lines)})


class _Client(NamedTuple):
    """One connection that is being answered."""

    data: bytearray
    until: float
    answered: bool = False


class RefusingListener:
    """Refuse what the processes of one attempt at a step ask for, and record it in a new file."""

    def __init__(self, step: str, record: str, note: Callable[[str], None]) -> None:
        self._step, self._record, self._note = step, record, note
        self._clients: dict[socket.socket, _Client] = {}
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._refused = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="refused-network", daemon=True)
        with contextlib.suppress(OSError):
            os.unlink(record)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        """Begin to answer. Whoever asked before waits: no thread is there yet when the supervisor forks."""
        self._thread.start()

    def close(self) -> None:
        """End all connections, and take no more."""
        self._ended.set()
        if self._thread.ident is not None:
            with contextlib.suppress(OSError):
                # It wakes for a connection.
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            self._thread.join(CLIENT_SECONDS)
        self._listener.close()

    def outcome(self) -> dict[str, Any]:
        """Return what belongs to the record of the end: ``refused``, the first addresses, and ``refusals``."""
        found = list(self._known.values())[:MAX_IN_OUTCOME]
        return {"refused": found, "refusals": self._refused} if self._refused else {}

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _events in selector.select(_TICK):
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket):
                        self._read(selector, key.fileobj)
                now = time.monotonic()
                for connection in [one for one, client in self._clients.items() if client.until < now]:
                    self._finish(selector, connection)
            for connection in list(self._clients):
                self._drop(selector, connection)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:
            # No descriptor is left for it: not asked again at once.
            self._ended.wait(_PAUSE)
            return
        end = connections.socket_of(address, connection.getsockname())
        if end is not None and end.user != os.geteuid():
            # Another account of this machine, which has found the port: it takes nobody's place.
            connection.close()
            return
        connection.setblocking(False)
        self._clients[connection] = _Client(bytearray(), time.monotonic() + CLIENT_SECONDS)
        selector.register(connection, selectors.EVENT_READ)
        if len(self._clients) >= MAX_CONNECTIONS:
            selector.unregister(self._listener)

    def _drop(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        if len(self._clients) == MAX_CONNECTIONS and not self._ended.is_set():
            selector.register(self._listener, selectors.EVENT_READ)
        del self._clients[connection]
        selector.unregister(connection)
        connection.close()

    def _finish(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        """Answer a client that says no more, if it said something, and let it go."""
        client = self._clients[connection]
        if client.data and not client.answered:
            self._answer(connection, bytes(client.data), parse_request(bytes(client.data)) or UNKNOWN)
        self._drop(selector, connection)

    def _read(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        client = self._clients[connection]
        try:
            block = connection.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block:
            self._finish(selector, connection)
        elif not client.answered:
            client.data.extend(block)
            data = bytes(client.data)
            asked = parse_request(data)
            if is_greeting(data):
                with contextlib.suppress(OSError):
                    connection.send(GREETED)
            elif asked is not None:
                self._answer(connection, data, asked)
                # It is closed when the client has closed, as a close before that could take the answer back.
                self._clients[connection] = client._replace(answered=True, until=time.monotonic() + CLIENT_SECONDS)

    def _answer(self, connection: socket.socket, data: bytes, asked: Asked) -> None:
        self._refused += 1
        if self._refused <= MAX_EXAMINED and len(self._known) < MAX_RECORDED:
            asked = self._noted(connection, asked)
        reason = "Step %s: build steps have no network" % self._step
        what = describe_refused(asked._asdict())
        text = "Step %s tried to download %s: build steps have no network" % (self._step, what)
        with contextlib.suppress(OSError):
            connection.send(refusal(data, reason, text))
            connection.shutdown(socket.SHUT_WR)

    def _noted(self, connection: socket.socket, asked: Asked) -> Asked:
        """Record a refusal, with the command that asked; and complete the address from that."""
        with contextlib.suppress(OSError):
            end = connections.socket_of(connection.getpeername(), connection.getsockname())
            if end is None or end.user != os.geteuid():
                # Nobody knows whose it was: it is refused, and no reason why a step has failed.
                self._refused -= 1
                return asked
            holders = connections.holders(end.inode) if self._refused <= MAX_ATTRIBUTED else []
            pid = holders[0] if holders else None
            words = connections.arguments(pid) if pid is not None else []
            if not asked.whole:
                asked = asked._replace(url=address_in(" ".join(words), asked.host) or asked.url)
            self._keep(asked, pid, words)
        return asked

    def _keep(self, asked: Asked, pid: int | None, words: Sequence[str]) -> None:
        key = (asked.host, asked.url)
        if key in self._known:
            return
        entry = {
            "time": utc(time.time()), "step": self._step, "host": asked.host,
            "url": asked.url, "way": asked.way, "pid": pid,
            "command": without_credentials(_QUERY.sub("?...", " ".join(words)))[:_COMMAND_LENGTH],
        }
        self._known[key] = entry
        self._note("refused: %s, by %s" % (describe_refused(entry), entry["command"] or "an unknown process"))
        # A full disk is no reason to let it pass.
        with contextlib.suppress(OSError), open(self._record, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, sort_keys=True) + "\n")

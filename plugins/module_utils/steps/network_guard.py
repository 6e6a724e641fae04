# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A step without network: what tries to download is refused by a listener on the loopback, named and recorded.

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
from typing import Callable, Mapping, NamedTuple, Sequence

from ..core import tcp_connections as connections
from ..core.redaction import without_credentials
from .proxy_requests import (
    GREETED,
    LONGEST,
    UNKNOWN,
    Asked,
    address_in,
    is_greeting,
    public,
    refusal,
    understood,
)
from .step import NO_NETWORK

RECORD = "refused.jsonl"
"""In the step's directory: a line for each address that the last attempt was refused; at most :data:`RECORDED`."""

RECORDED = 200
"""Addresses that are recorded; of what is asked for after that only the number is known."""

LOOKED_AT = 2000
"""Refusals that are looked at; more are only counted, so that a program that asks without end costs little."""

LOOKED_UP = 50
"""Refusals whose client is looked for among the account's processes."""

KEPT = 10
"""Addresses in the record of how the step ended."""

CONNECTIONS = 64
"""Connections at a time."""

PATIENCE = 10.0
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
    """What a script gets in its environment, and as shell text what it sets itself, see :data:`.steps.NO_NETWORK`.

    The proxy variables reach curl, wget, git, pip, conda, npm, CMake, Python's urllib and requests, and Go. A proxy in
    the configuration of some of these comes before the variables, so that they get settings of their own; and git
    reaches some hosts by other ways than http.

    Args:
        port: of the listener.
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
    """Refuses what the processes of one attempt at a step ask for.

    Args:
        step: the step's name, which the refusals carry.
        record: the file that they are recorded in; what an earlier attempt left there is removed.
        note: writes a line into the step's log.
    """

    def __init__(self, step: str, record: str, note: Callable[[str], None]) -> None:
        self._step, self._record, self._note = step, record, note
        self._clients: dict[socket.socket, _Client] = {}
        self._known: dict[tuple[str, str], dict] = {}
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
            self._thread.join(PATIENCE)
        self._listener.close()

    def outcome(self) -> dict:
        """What the record of the attempt's end says: ``refused``, the first addresses, and how many more times."""
        found = list(self._known.values())[:KEPT]
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
            connection, _address = self._listener.accept()
        except OSError:
            # No descriptor is left for it: not asked again at once.
            self._ended.wait(_PAUSE)
            return
        connection.setblocking(False)
        self._clients[connection] = _Client(bytearray(), time.monotonic() + PATIENCE)
        selector.register(connection, selectors.EVENT_READ)
        if len(self._clients) >= CONNECTIONS:
            selector.unregister(self._listener)

    def _drop(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        if len(self._clients) == CONNECTIONS and not self._ended.is_set():
            selector.register(self._listener, selectors.EVENT_READ)
        del self._clients[connection]
        selector.unregister(connection)
        connection.close()

    def _finish(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        """Of a client that says no more: answer what it said, if it did; and let it go."""
        client = self._clients[connection]
        if client.data and not client.answered:
            self._answer(connection, bytes(client.data), understood(bytes(client.data)) or UNKNOWN)
        self._drop(selector, connection)

    def _read(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        client = self._clients[connection]
        try:
            block = connection.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block:
            self._finish(selector, connection)
        elif not client.answered:
            client.data.extend(block)
            data = bytes(client.data)
            asked = understood(data)
            if is_greeting(data):
                with contextlib.suppress(OSError):
                    connection.send(GREETED)
            elif asked is not None:
                self._answer(connection, data, asked)
                # It is closed when the client has closed, as a close before that could take the answer back.
                self._clients[connection] = client._replace(answered=True, until=time.monotonic() + PATIENCE)

    def _answer(self, connection: socket.socket, data: bytes, asked: Asked) -> None:
        self._refused += 1
        if self._refused <= LOOKED_AT and len(self._known) < RECORDED:
            asked = self._noted(connection, asked)
        reason = "Step %s: build steps have no network" % self._step
        text = "Step %s tried to download %s: build steps have no network" % (self._step, _what(asked._asdict()))
        with contextlib.suppress(OSError):
            connection.send(refusal(data, reason, text))
            connection.shutdown(socket.SHUT_WR)

    def _noted(self, connection: socket.socket, asked: Asked) -> Asked:
        """Record a refusal, with the command that asked; and complete the address from that."""
        with contextlib.suppress(OSError):
            end = connections.socket_of(connection.getpeername()[1], self.port)
            if end is not None and end.user != os.geteuid():
                # Another account of this machine, which has found the port.
                self._refused -= 1
                return asked
            holders = connections.holders(end.inode) if end is not None and self._refused <= LOOKED_UP else []
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
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "step": self._step, "host": asked.host,
            "url": asked.url, "way": asked.way, "pid": pid,
            "command": without_credentials(_QUERY.sub("?...", " ".join(words)))[:_COMMAND_LENGTH],
        }
        self._known[key] = entry
        self._note("refused: %s, by %s" % (_what(entry), entry["command"] or "an unknown process"))
        # A full disk is no reason to let it pass.
        with contextlib.suppress(OSError), open(self._record, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, sort_keys=True) + "\n")


def _what(entry: Mapping) -> str:
    if not entry["host"]:
        return "something that is no request to a proxy"
    return "%s from host %s" % (entry["url"], entry["host"])


def fetch_step(step: str, needs: Sequence[str]) -> str:
    """Which of the steps that a step needs fetches for it, by its name; empty where none does.

    Args:
        step: such as ``horovod``.
        needs: such as ``["base", "horovod-source"]``.
    """
    return next((need for need in sorted(needs) if need in (step + "-fetch", step + "-source")), "")


def refused_sentence(step: str, needs: Sequence[str], outcome: Mapping, log: bytes = b"") -> str:
    """What a step was refused, for the message about it; empty where it was refused nothing.

    Args:
        step: its name.
        needs: the steps that it needs.
        outcome: the record of its end.
        log: the end of its log, where programs may name an address of which the listener saw only the host.
    """
    refused = outcome.get("refused")
    if not refused:
        return ""
    first = dict(next((entry for entry in refused if entry["host"]), refused[0]))
    if first["way"] not in ("http", "ssh"):
        first["url"] = _in_log(log.decode("utf-8", "replace"), first["host"]) or first["url"]
    more = outcome["refusals"] - 1
    fetch = fetch_step(step, needs)
    return "step %s tried to download %s%s: build steps have no network; fetch it in %s" % (
        step, _what(first), " (and %d more)" % more if more else "",
        "the fetch step %s" % fetch if fetch else "a step before it that may use the network",
    )


def _in_log(text: str, host: str) -> str:
    """The address of a host that a log names; of urllib3, which pip and requests use, host and path apart."""
    found = address_in(text, host)
    if _path(found):
        return found
    match = re.search(r"host='%s'.{0,200}?with url: (/\S*)" % re.escape(host), text) or re.search(
        r"Tunnel connection failed: 403[^\n]*?: (/\S*)", text)
    return public("https://%s%s" % (host, match.group(1))) if match and host else found


def _path(url: str) -> str:
    """The path of an address; empty for the root."""
    return url.partition("://")[2].partition("/")[2]

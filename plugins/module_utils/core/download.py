# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Download files whole and with the right content, or leave nothing under their name.

A half file has a name of its own, and a later attempt goes on where it ends, if the server can do that.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, BinaryIO, Mapping

from .digests import sha256_of
from .errors import StackError, system_remedy
from .files import flush_directory

CHUNK = 1 << 20
ATTEMPTS = 3
PAUSE = 1.0
"""Seconds before the second attempt; before the third, twice that."""

STEP = "fetch"
_HALF = ".part"
_NOT_SATISFIABLE = 416
_PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Answers of a server that may be others in a moment (RFC 9110)."""


class Unreachable(Exception):
    """Signal an address that gives nothing: the end of a sentence, and the code of an answer of HTTP."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Network:
    """Open addresses: http, https and file. A server may be silent for ``timeout`` seconds.

    Empty stands for the system's certificate authorities, and for the proxies of the environment.
    """

    def __init__(self, timeout: float, certificates: str = "", proxy: str = "") -> None:
        self.timeout = timeout
        self.logins = {}  # type: dict[str, str]
        self.netrc = _own_netrc()
        handlers = []  # type: list[Any]
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        if certificates:
            context = ssl.create_default_context()
            context.load_verify_locations(**{"capath" if os.path.isdir(certificates) else "cafile": certificates})
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self.opener = urllib.request.build_opener(*handlers)

    def without_login(self, url: str) -> str:
        """Return the address without name and password, which are kept for its host and never shown."""
        parts = urllib.parse.urlsplit(url)
        login, at, host = parts.netloc.rpartition("@")
        if at:
            self.logins[host] = login
        return urllib.parse.urlunsplit(parts._replace(netloc=host))

    def login(self, parts: urllib.parse.SplitResult) -> str:
        """Return name and password for an address, from one of the same host or from the account's netrc."""
        written = self.logins.get(parts.netloc.rpartition("@")[2])
        if written:
            return urllib.parse.unquote(written)
        found = self.netrc.authenticators(parts.hostname or "") if self.netrc and parts.scheme != "file" else None
        return "%s:%s" % (found[0], found[2]) if found else ""

    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Any:
        """Begin to read an address; a passing failure is waited for. Unreachable: it cannot be read."""
        request = urllib.request.Request(self.without_login(url), headers=dict(headers or {}))
        login = self.login(urllib.parse.urlsplit(url))
        if login:
            word = base64.b64encode(login.encode("utf-8")).decode("ascii")
            request.add_unredirected_header("Authorization", "Basic " + word)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.opener.open(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                error.close()
                problem = Unreachable("it answers %d %s" % (error.code, error.reason), error.code)
                if error.code not in _PASSING:
                    raise problem from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = Unreachable(_reason(error))
                if not isinstance(error, (TimeoutError, ConnectionResetError, http.client.HTTPException)):
                    raise problem from error
            if attempt < ATTEMPTS:
                time.sleep(PAUSE * attempt)
        raise problem


def _own_netrc() -> netrc.netrc | None:
    """Read the account's netrc; None where it has none that can be used."""
    try:
        return netrc.netrc()
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None


def _reason(error: Exception) -> str:
    """Say why an address cannot be read, as the end of a sentence."""
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason).rstrip(".") or type(error).__name__


def half_name(path: str) -> str:
    """Return the name of a file while it is not whole."""
    directory, name = os.path.split(path)
    return os.path.join(directory, ".%s%s" % (name[:200], _HALF))


def is_half(name: str) -> bool:
    """Tell whether a name is one of :func:`half_name`."""
    return name.startswith(".") and name.endswith(_HALF)


def fetch(network: Network, url: str, path: str, sha256: str) -> int:
    """Download an address to ``path``, an existing file too, once the new one is whole; return its size in bytes.

    StackError: it cannot be fetched or written, or has another digest; ``path`` is as it was.
    """
    half = half_name(path)
    shown = network.without_login(url)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        size, found = _transfer(network, url, half)
        if found != sha256:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(half)
            raise StackError(
                "%s is another file: its sha256 is %s, and the release file asks for %s." % (shown, found, sha256),
                STEP, "Correct the release file, or fetch from elsewhere.", path,
            )
        os.chmod(half, 0o644)
        os.replace(half, path)
        flush_directory(os.path.dirname(path))
    except Unreachable as error:
        raise StackError(
            "%s cannot be fetched: %s." % (shown, error), STEP, "Run it again; what is there already is kept.", path
        ) from error
    except OSError as error:
        raise StackError(
            "%s cannot be written: %s." % (path, error.strerror or error), STEP,
            system_remedy(error, "Check that this account may write there") + ", then run it again.", path,
        ) from error
    return size


def _transfer(network: Network, url: str, half: str) -> tuple[int, str]:
    """Write an address to the half file, after what is there of it; return size and digest of the whole."""
    for attempt in range(1, ATTEMPTS + 1):
        there = os.path.getsize(half) if os.path.exists(half) else 0
        try:
            answer = network.open(url, {"Range": "bytes=%d-" % there} if there else None)
        except Unreachable as error:
            if error.code != _NOT_SATISFIABLE or not there or attempt == ATTEMPTS:
                raise
            os.unlink(half)  # it is as long as the file or longer, so it is none of it
            continue
        with answer:
            continued = there and getattr(answer, "status", None) == 206
            with open(half, "ab" if continued else "wb") as stream:
                if _copied(answer, stream):
                    os.fsync(stream.fileno())
                    break
        if attempt == ATTEMPTS:
            raise Unreachable("the connection ends before the file does")
        time.sleep(PAUSE * attempt)
    return os.path.getsize(half), sha256_of(half)


def _copied(answer: Any, stream: BinaryIO) -> bool:
    """Copy what a server sends, and return whether it sent all of it."""
    announced = answer.headers.get("Content-Length")
    copied = 0
    try:
        for chunk in iter(lambda: answer.read(CHUNK), b""):
            stream.write(chunk)
            copied += len(chunk)
    except (ConnectionError, TimeoutError, http.client.HTTPException):
        return False
    return announced is None or not announced.isdigit() or copied >= int(announced)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse what a client asks a proxy for, and write the answers that refuse it. Pure.

HTTP as in RFC 9112 (request line, absolute form, CONNECT with its authority form), SOCKS5 as in RFC 1928, SOCKS4 and 4a
as their authors describe them. ``SSH`` with the arguments of ssh(1) is this collection's own, see
:func:`.network_guard.variables`.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from typing import NamedTuple

MAX_REQUEST_BYTES = 8192
"""Bytes of a request that are read at most; whatever is longer is not understood."""

MAX_URL_CHARACTERS = 500

_SOCKS5_ADDRESS = {1: 4, 4: 16}
_SOCKS5_NAME = 3
_LINE = re.compile(r"([A-Z]{2,20}) (\S+) HTTP/\d")
_SSH_DESTINATION = re.compile(r"(?:[^@\s]+@)?([A-Za-z0-9.-]+)\Z")
_SSH_VALUE = re.compile(r"-[A-Za-z]*[BbcDEeFIiJLlmOopQRSWw]\Z")
"""Options of ssh(1) whose value is the next word."""


class Asked(NamedTuple):
    """What a client wanted from the network."""

    host: str
    """name or address of the machine; empty where the request does not say"""
    url: str
    """as far as the request says it: of https only scheme and host travel in the clear"""
    way: str
    """``http``, ``connect``, ``socks``, ``ssh``, or ``unknown``"""

    @property
    def whole(self) -> bool:
        """Whether the address is more than the name of the host."""
        return self.way in ("http", "ssh")


UNKNOWN = Asked("", "", "unknown")


def parse_request(data: bytes) -> Asked | None:
    """Parse what a client asks for; None while that is not complete, :data:`UNKNOWN` for what is no request."""
    if not data:
        return None
    if data[:1] == b"\x05":
        return _socks5(data)
    if data[:1] == b"\x04":
        return _socks4(data)
    if not (data[:1].isalpha() and data[:1].isupper()):
        return UNKNOWN
    head, end, _rest = data.replace(b"\r\n", b"\n").partition(b"\n\n")
    if not end:
        return UNKNOWN if len(data) >= MAX_REQUEST_BYTES else None
    return _http(head.decode("utf-8", "replace"))


def is_greeting(data: bytes) -> bool:
    """Tell whether this is a whole SOCKS5 greeting without the request that follows an answer to it."""
    return data[:1] == b"\x05" and len(data) >= 2 and len(data) == 2 + data[1]


GREETED = b"\x05\x00"
"""To a SOCKS5 greeting: no authentication, go on."""


def refusal(data: bytes, reason: str, text: str) -> bytes:
    """Write the answer to a request: its status has the one line that many programs print, others show the body."""
    if data[:1] == b"\x05":
        return b"\x05\x02\x00\x01" + bytes(6)
    if data[:1] == b"\x04":
        return b"\x00\x5b" + bytes(6)
    body = (text.rstrip("\n") + "\n").encode("utf-8", "replace")
    head = (
        "HTTP/1.1 403 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        % (reason.encode("ascii", "replace").decode("ascii"), len(body))
    )
    return body if data.startswith(b"SSH ") else head.encode("ascii") + body


def public(url: str) -> str:
    """Return an address as it may be recorded: without name, password and query, which may be signed."""
    text = "".join(character if character.isprintable() else "?" for character in url)
    try:
        parts = urllib.parse.urlsplit(text)
        shown = parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="..." if parts.query else "", fragment=""
        ).geturl()
    except ValueError:
        shown = text.partition("?")[0]
    return shown[:MAX_URL_CHARACTERS]


def address_in(text: str, host: str) -> str:
    """Find the first address of a host in a text, such as a command or a log; empty where there is none."""
    match = re.search(r"(?:https?|ftp)://(?:[^/@\s\"']+@)?%s(?::\d+)?(?:/[^\s\"'<>()\[\],;]*)?" % re.escape(host), text)
    return public(match.group(0).rstrip(".:")) if match and host else ""


def _http(head: str) -> Asked:
    line, _end, fields = head.partition("\n")
    if line.startswith("SSH "):
        return _ssh(line.split()[1:])
    match = _LINE.match(line)
    if match is None:
        return UNKNOWN
    method, target = match.groups()
    if method == "CONNECT":
        host, port = _authority(target)
        scheme = "http" if port == "80" else "https"
        return Asked(host, "%s://%s/" % (scheme, host if port in ("80", "443") else target), "connect")
    if target.startswith("/"):
        named = re.search(r"(?im)^host:\s*(\S+)\s*$", fields)
        target = "http://%s%s" % (named.group(1) if named else "", target)
    try:
        host = urllib.parse.urlsplit(target).hostname or ""
    except ValueError:
        return UNKNOWN
    return Asked(host, public(target), "http")


def _authority(text: str) -> tuple[str, str]:
    """Split host and port of ``host:port``; an IPv6 address stands in brackets."""
    host, _colon, port = text.rpartition(":")
    return (host or text).strip("[]")[:MAX_URL_CHARACTERS], port


def _ssh(words: list[str]) -> Asked:
    """Find the destination among the arguments of ssh(1), and the path that git(1) asks for behind it."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if _SSH_VALUE.match(words[place]) else 1
    match = _SSH_DESTINATION.match(words[place]) if place < len(words) else None
    if match is None:
        return UNKNOWN
    path = words[-1].strip("'\"").lstrip("/") if len(words) > place + 2 else ""
    return Asked(match.group(1), public("ssh://%s/%s" % (match.group(1), path)), "ssh")


def _socks5(data: bytes) -> Asked | None:
    if len(data) < 2 or len(data) < 2 + data[1] + 5:
        return None
    request = data[2 + data[1]:]
    kind = request[3]
    if kind == _SOCKS5_NAME:
        start, size = 5, request[4]
    elif kind in _SOCKS5_ADDRESS:
        start, size = 4, _SOCKS5_ADDRESS[kind]
    else:
        return UNKNOWN
    if len(request) < start + size + 2:
        return None
    raw = request[start:start + size]
    host = raw.decode("ascii", "replace") if kind == _SOCKS5_NAME else str(ipaddress.ip_address(raw))
    return _by_port(host, int.from_bytes(request[start + size:start + size + 2], "big"))


def _socks4(data: bytes) -> Asked | None:
    if len(data) < 9 or b"\0" not in data[8:]:
        return UNKNOWN if len(data) >= MAX_REQUEST_BYTES else None
    host, rest = str(ipaddress.ip_address(data[4:8])), data[8:].partition(b"\0")[2]
    if data[4:7] == b"\0\0\0" and data[7:8] != b"\0":
        # SOCKS4a: an address that cannot be, and the name behind the user's.
        name, end, _rest = rest.partition(b"\0")
        if not end:
            return UNKNOWN if len(data) >= MAX_REQUEST_BYTES else None
        host = name.decode("ascii", "replace")
    return _by_port(host, int.from_bytes(data[2:4], "big"))


def _by_port(host: str, port: int) -> Asked:
    host = "".join(character if character.isprintable() else "?" for character in host)[:MAX_URL_CHARACTERS]
    shown = "[%s]" % host if ":" in host else host
    scheme = {80: "http", 443: "https"}.get(port)
    return Asked(host, "%s://%s/" % (scheme, shown) if scheme else "%s:%d" % (shown, port), "socks")

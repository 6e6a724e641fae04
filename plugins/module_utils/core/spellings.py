# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Spell a secret in all the ways in which programs print one. Pure."""

from __future__ import annotations

import base64
import json
import re
import shlex
import urllib.parse
from typing import Iterable, Iterator

from .masks import SHORTEST

_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")


def spellings(secrets: Iterable[str]) -> list[str]:
    """Spell each secret as it is, in an address, in JSON, for a shell, in Python, in hexadecimal and in base64.

    The longest come first. In base64 three bytes are four characters, so that a secret behind a user's name and a colon
    is another text than alone: all three places where it may begin are spelt.
    """
    found = {text for secret in secrets if len(secret) >= SHORTEST for text in _spelt(secret)}
    return sorted((text for text in found if len(text) >= SHORTEST), key=lambda text: (-len(text), text))


def _spelt(secret: str) -> Iterator[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    yield secret
    for quoted in (urllib.parse.quote(raw, safe=""), urllib.parse.quote(raw), urllib.parse.quote_plus(raw)):
        yield quoted
        yield _ESCAPE.sub(lambda match: match.group().lower(), quoted)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield shlex.quote(secret).strip("'")
    # A dictionary in which another value has a quote is printed with this one's quotes, too.
    for text in (repr(secret), ascii(secret), repr(raw)[1:]):
        yield text[1:-1]
        yield text[1:-1].replace("'", "\\'")
    yield raw.hex()
    yield raw.hex().upper()
    for text in (base64.b64encode(raw).decode("ascii").rstrip("="), *(_inside(raw, before) for before in range(3))):
        yield text
        yield text.translate(_URL_SAFE)


def _inside(raw: bytes, before: int) -> str:
    """Return those characters of base64 that depend on nothing but ``raw``, with so many bytes before it."""
    text = base64.b64encode(bytes(before) + raw + bytes(2)).decode("ascii")
    return text[-(-8 * before // 6):8 * (before + len(raw)) // 6]

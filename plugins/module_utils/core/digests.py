# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read files: their digest, their text, and where a ``file://`` address leads."""

from __future__ import annotations

import hashlib
import urllib.parse
from typing import Callable

_BLOCK = 1 << 20


def local_path(url: str) -> str | None:
    """Return the path of a ``file://`` address; None for others."""
    return urllib.parse.unquote(url[len("file://"):]) if url.startswith("file://") else None


def sha256_of(path: str, tick: Callable[[], object] = lambda: None) -> str:
    """Compute the SHA-256 of a file's content, with a call between blocks; OSError: it cannot be read."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
            tick()
    return digest.hexdigest()


def text_of(path: str) -> str:
    """Read the text of a file; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Files of this machine that addresses name, and the digests and texts of files."""

from __future__ import annotations

import hashlib
import urllib.parse

_BLOCK = 1 << 20


def local_path(url: str) -> str | None:
    """The file behind a ``file://`` address; None for others."""
    return urllib.parse.unquote(url[len("file://"):]) if url.startswith("file://") else None


def sha256_of(path: str) -> str:
    """The digest of a file's content.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def text_of(path: str) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""

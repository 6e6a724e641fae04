# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what a patch does: its files and their hunks. Pure."""

from __future__ import annotations

import hashlib
import io
from typing import NamedTuple


class Hunk(NamedTuple):
    """Describe one hunk, its two sides as exact lines (with their newline, where the file has one).

    ``first`` is the 1-based line of the old file where ``old`` begins; for an empty ``old`` the line before which
    ``new`` is inserted. ``prefix`` and ``suffix`` count the context lines before the first and after the last change.
    ``line`` is where the hunk begins in the patch file.
    """

    line: int
    first: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    prefix: int
    suffix: int


class FilePatch(NamedTuple):
    """Describe what a patch does to one file.

    ``kind`` is modify, create, delete, rename or copy. ``old`` and ``new`` are paths below the tree. A plain diff that
    names two different files keeps both, and :func:`reconcile_names` picks one. ``old_mode`` and ``new_mode`` say
    whether the file is executable; ``mode_change`` is true for git's pair of mode lines. Ids are those of blobs.
    """

    line: int
    kind: str
    old: bytes
    new: bytes
    hunks: tuple[Hunk, ...] = ()
    old_mode: bool | None = None
    new_mode: bool | None = None
    mode_change: bool = False
    old_id: str | None = None
    new_id: str | None = None

    @property
    def paths(self) -> tuple[bytes, bytes]:
        """Return both paths."""
        return self.old, self.new


class Patch(NamedTuple):
    """Describe one patch file: its base name, the sha256 of its bytes, what it does, and what was odd about it."""

    name: bytes
    sha256: str
    files: tuple[FilePatch, ...]
    notes: tuple[str, ...] = ()


def split_lines(content: bytes) -> list[bytes]:
    """Split a content into lines; only a newline ends a line, and the last line may lack it."""
    return io.BytesIO(content).readlines()


def blob_id(content: bytes, digits: int = 40) -> str:
    """Compute git's object id of a content; sha256 for more than 40 digits (git's newer format)."""
    algorithm = hashlib.sha256() if digits > 40 else hashlib.sha1()
    algorithm.update(b"blob %d\0" % len(content))
    algorithm.update(content)
    return algorithm.hexdigest()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the content of files with what a manifest recorded of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from typing import NamedTuple

from ..trees.boundary import open_parent
from ..trees.manifest_entry import FILE, Entry, decode_entry
from ..trees.manifest_file import Record
from ..trees.manifest_reader import BLOCK, open_quietly

MAX_QUICK_BYTES = 1 << 30
"""Bytes that a quick comparison reads at most: some seconds."""


class Content(NamedTuple):
    """What reading some files showed."""

    differing: list[tuple[str, str, str, str]]
    """Path, ``content``, recorded and present digest."""
    unknown: list[str]
    """What was not read: too much, not readable, or not to be told from its name as results show it."""


def compare_content(prefix: str, record: str, paths: list[str]) -> Content:
    """Read files of a tree, and say which have another content than its record, compared in step with it just now."""
    keys = {b'{"path": %s' % json.dumps(path).encode("ascii"): path for path in paths}
    entries: dict[str, Entry] = {}
    with contextlib.closing(Record(record, check=False)) as earlier:
        for lines in earlier.pieces() if keys else ():
            for line in lines.splitlines():
                path = keys.get(line.partition(b', "type": "')[0])
                if path is not None:
                    entries[path] = decode_entry(line)
    differing, unknown, left = [], sorted(set(paths) - set(entries)), MAX_QUICK_BYTES
    for path, entry in sorted(entries.items()):
        if entry.kind != FILE:
            continue
        left -= entry.size or 0
        try:
            found = _digest_of(prefix, path) if entry.sha256 and left >= 0 else ""
        except OSError:
            found = ""
        if not found:
            unknown.append(path)
        elif found != entry.sha256:
            differing.append((path, "content", entry.sha256 or "", found))
    return Content(differing, unknown)


def _digest_of(prefix: str, path: str) -> str:
    digest = hashlib.sha256()
    with open_parent(os.path.realpath(prefix), path) as (parent, name):
        descriptor = open_quietly(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, parent)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            for block in iter(lambda: os.read(descriptor, BLOCK), b""):
                digest.update(block)
    finally:
        os.close(descriptor)
    return digest.hexdigest()

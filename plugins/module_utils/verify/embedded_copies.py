# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Search files for copies of a library, which the loader does not see.

Files are read, not mapped: one that somebody truncates meanwhile would end a process that has it mapped.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from typing import Callable, Mapping, NamedTuple, Sequence

from ..elf.reader import OPEN_FILE
from .library_rules import Embedded
from .library_walk import close
from .rule_globs import Paths

CHUNK = 1 << 20  # bytes that are read at once
REACH = 4096
"""Bytes of the longest text that is found wherever it lies; a longer one may be cut by the end of a chunk."""


class Copy(NamedTuple):
    """Describe where a file holds what only another may hold."""

    path: bytes
    rule: Embedded
    offset: int
    text: bytes


def search(
    files: Sequence[bytes], rules: Sequence[Embedded], paths: Paths, progress: Callable[[int], None] | None = None,
    identities: Mapping[bytes, tuple[int, int]] | None = None,
) -> tuple[list[Copy], list[tuple[bytes, OSError]]]:
    """Look for every pattern in every file that is not its provider; a file is read only once.

    ``progress`` is told how many files were read. One that another file has replaced meanwhile, as device and inode in
    ``identities`` tell, is not read.

    Returns:
        the first find of each rule in each file, and the files that could not be read.
    """
    found: list[Copy] = []
    failed: list[tuple[bytes, OSError]] = []
    known: dict[tuple[int, int], list[tuple[Embedded, int, bytes]]] = {}
    for count, path in enumerate(files if rules else ()):
        if progress is not None:
            progress(count)
        wanted = [rule for rule in rules if not paths.match(rule.providers, path)]
        try:
            descriptor = os.open(path, OPEN_FILE)
            try:
                status = os.fstat(descriptor)
                if not wanted or not stat.S_ISREG(status.st_mode):
                    continue
                identity = (status.st_dev, status.st_ino)
                if identities is not None and identities.get(path, identity) != identity:
                    raise OSError(errno.ESTALE, "another file has taken its place while the tree was verified")
                shared = status.st_nlink > 1
                hits = known.get(identity) if shared else None
                if hits is None:
                    hits = search_stream(functools.partial(os.read, descriptor), rules if shared else wanted)
                if shared:
                    known[identity] = hits
            finally:
                close(descriptor)
        except OSError as error:
            failed.append((path, error))
            continue
        found += [Copy(path, rule, offset, text) for rule, offset, text in hits if rule in wanted]
    return found, failed


def search_stream(
    read: Callable[[int], bytes], rules: Sequence[Embedded], chunk: int = CHUNK
) -> list[tuple[Embedded, int, bytes]]:
    """Find the first match of each rule in a stream, in the order of the rules: rule, offset, text."""
    finds: dict[int, tuple[int, bytes]] = {}
    start, data, block = 0, b"", b"more"
    while block and len(finds) < len(rules):
        block = read(chunk)
        data += block
        # What begins in the reach of the end may go on behind it; it is seen whole the next time.
        limit = len(data) - REACH if block else len(data)
        for number, rule in enumerate(rules):
            hit = first_find(data, rule, limit) if number not in finds else None
            if hit is not None:
                finds[number] = (start + hit[0], hit[1])
        if limit > 0:
            start += limit
            data = data[limit:]
    return [(rules[number], *find) for number, find in sorted(finds.items())]


def first_find(data: bytes, rule: Embedded, limit: int) -> tuple[int, bytes] | None:
    """Find the first match that is not empty and begins before ``limit``."""
    position = 0
    while position < limit:
        if rule.literal:
            position = data.find(rule.literal, position, limit + len(rule.literal))
            match = rule.expression.match(data, position) if 0 <= position < limit else None
            if position < 0:
                return None
        else:
            match = rule.expression.search(data, position)
            if match is None or match.start() >= limit:
                return None
            position = match.start()
        if match is not None and match.end() > match.start():
            return match.start(), match.group()[:REACH]
        position += 1
    return None

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A copy of a library inside another file: invisible to the loader, but not to a search for what it says of itself.

Files are read, not mapped: one that somebody truncates meanwhile would end a process that has it mapped.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from typing import Callable, Mapping, NamedTuple, Sequence

from ..elf.reader import OPEN_FILE
from .library_rules import Embedded, Paths
from .library_walk import close

CHUNK = 1 << 20
"""Bytes that are read at once."""

REACH = 4096
"""Bytes of the longest text that is found wherever it lies; a longer one may be cut by the end of a chunk."""


class Copy(NamedTuple):
    """Where a file holds what only another may hold."""

    path: bytes
    rule: Embedded
    offset: int
    text: bytes


def search(
    files: Sequence[bytes], rules: Sequence[Embedded], paths: Paths, progress: Callable[[int], None] | None = None,
    identities: Mapping[bytes, tuple[int, int]] | None = None,
) -> tuple[list[Copy], list[tuple[bytes, OSError]]]:
    """Look for every pattern in every file that is not its provider; a file with several names is read once.

    Args:
        files: what to read.
        rules: what to look for.
        paths: matches the provider's glob.
        progress: is told how many files were read.
        identities: device and inode of the files; one that another file has replaced meanwhile is not read.

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
                if status.st_nlink == 1 or identity not in known:
                    read = functools.partial(os.read, descriptor)
                    hits = search_stream(read, rules if status.st_nlink > 1 else wanted)
                    if status.st_nlink > 1:
                        known[identity] = hits
                else:
                    hits = known[identity]
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
    """The first find of each rule in a stream, in the order of the rules: rule, offset, text."""
    left = list(rules)
    finds: dict[int, tuple[int, bytes]] = {}
    start, data = 0, b""
    while left:
        block = read(chunk)
        data += block
        last = not block
        # What begins in the reach of the end may go on behind it; it is seen whole the next time.
        limit = len(data) if last else len(data) - REACH
        for rule in list(left):
            hit = first_find(data, rule, limit)
            if hit is not None:
                finds[id(rule)] = (start + hit[0], hit[1])
                left.remove(rule)
        if last:
            break
        if limit > 0:
            start += limit
            data = data[limit:]
    return [(rule, finds[id(rule)][0], finds[id(rule)][1]) for rule in rules if id(rule) in finds]


def first_find(data: bytes, rule: Embedded, limit: int) -> tuple[int, bytes] | None:
    """The first match that is not empty and begins before ``limit``."""
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

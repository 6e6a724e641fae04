# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List the directories of a tree in the order of its manifest."""

from __future__ import annotations

import os
import sys
from typing import Iterator, List, NamedTuple, Union

from .dir_handles import OPEN_DIRECTORY, Directory, Handles, retry_interrupted
from .manifest_collector import Found, describe_error
from .manifest_entry import TOP, as_text
from .manifest_exclude import Exclusion
from .manifest_reader import Part, open_quietly, times

BATCH_SIZE = 128
"""Entries that are given to a thread or a process at a time."""

_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_SLASH = ord("/")
_NONE: frozenset[bytes] = frozenset()
Batch = List[Union[Found, Part]]


class _Level(NamedTuple):
    """Describe a directory that is being listed."""

    directory: Directory
    prefix: bytes
    keys: Iterator[bytes]
    """What is left of it: names, and once more with a slash where what a directory holds has its place."""
    others: frozenset[bytes]
    """Names that are no regular files."""
    before: tuple[int, ...]


class DirectoryLister:
    """List the directories of a tree."""

    def __init__(self, handles: Handles, exclusion: Exclusion) -> None:
        self._handles = handles
        self._exclusion = exclusion
        self.left_out = 0

    def batches(self, top: Directory, descriptor: int, before: tuple[int, ...]) -> Iterator[Batch]:
        """Yield all entries in order, some at a time.

        A directory stands where its name sorts, what it holds where that with a slash does: ``a``, ``a-b``, ``a/c``.
        """
        batch: Batch = []
        size = 0
        stack: list[_Level] = []
        self._list(top, b"", descriptor, before, stack, batch)
        while stack:
            level = stack[-1]
            names: list[bytes] = []
            below, finished = b"", False
            for key in level.keys:
                if key[-1] == _SLASH:
                    below = key
                    break
                names.append(key)
                if size + len(names) >= BATCH_SIZE:
                    break
            else:
                finished = True
                stack.pop()
            if names or finished:
                if not finished:
                    self._handles.expect(level.directory)
                others = level.others.intersection(names) if level.others else _NONE
                batch.append(Part(level.directory, level.prefix, names, others, level.before if finished else None))
            if below:
                self._enter(level, below, stack, batch)
            size += len(names) + bool(below or finished)  # or a tree of empty directories would be one batch
            if size >= BATCH_SIZE:
                yield batch
                batch, size = [], 0
        yield batch

    def _enter(self, above: _Level, key: bytes, stack: list[_Level], batch: Batch) -> None:
        """Open a directory below another one and list it."""
        prefix, name = above.prefix + key, os.fsdecode(key[:-1])
        directory = Directory(above.directory, name)
        try:
            with self._handles.use(above.directory) as held:
                descriptor = open_quietly(name, OPEN_DIRECTORY, held)
            try:
                seen = retry_interrupted(os.fstat, descriptor)
            except OSError:
                os.close(descriptor)
                raise
        except OSError as error:
            batch.append(describe_error(prefix[:-1], error))
            return
        directory.identity = (seen.st_dev, seen.st_ino)
        self._list(directory, prefix, descriptor, times(seen), stack, batch)

    def _list(
        self, directory: Directory, prefix: bytes, descriptor: int, before: tuple[int, ...], stack: list[_Level],
        batch: Batch,
    ) -> None:
        """List an open directory, whose descriptor is kept from now on."""
        try:
            keys, others, left_out = retry_interrupted(self._keys, descriptor, prefix)
        except OSError as error:
            if prefix:
                os.close(descriptor)
            batch.append(describe_error(prefix[:-1] or TOP, error))
            return
        self._handles.keep(directory, descriptor)
        self.left_out += left_out
        keys.sort()
        stack.append(_Level(directory, prefix, iter(keys), others, before))

    def _keys(self, descriptor: int, prefix: bytes) -> tuple[list[bytes], frozenset[bytes], int]:
        """Return what an open directory holds: keys and others of a level, and how many were left out."""
        keys: list[bytes] = []
        others: list[bytes] = []
        left_out = 0
        ask = self._exclusion.within(prefix)
        with os.scandir(descriptor) as entries:
            for entry in entries:
                key = entry.name.encode(*_ENCODING)
                if ask and self._exclusion(as_text(prefix + key)):
                    left_out += 1
                    continue
                keys.append(key)
                if not entry.is_file(follow_symlinks=False):
                    others.append(key)
                    if entry.is_dir(follow_symlinks=False):
                        keys.append(key + b"/")
        return keys, frozenset(others), left_out

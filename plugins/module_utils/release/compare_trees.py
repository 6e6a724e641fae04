# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare two releases on disk, path by path; nothing is written or executed."""

from __future__ import annotations

import collections
import os
import re
import stat
from typing import Any, Callable, NamedTuple

from ..core.errors import StackError
from . import path_masks
from .compare_files import (
    BYTECODE,
    CLASSES,
    OTHER,
    PLACE,
    RECORDS,
    SAME,
    VOLATILE,
    Classified,
    Sides,
    classify,
    common_name,
)

STEP = "compare"
CHUNK = 1 << 20
MAX_COMPARED = 8 << 30
"""Bytes of a file from which two that differ are not looked into."""

_BYTECODE = re.compile(r"(?P<directory>.*?/?)__pycache__/(?P<name>.+)\.[a-z]+-[0-9]+(?:\.opt-[0-9])?\.pyc\Z")


class Difference(NamedTuple):
    """Describe a path that is not the same on both sides."""

    path: str
    kind: str
    detail: str


class Comparison(NamedTuple):
    """Hold the outcome of a comparison."""

    counts: dict[str, int]
    differences: list[Difference]

    def as_result(self, limit: int) -> dict[str, Any]:
        """Return plain data, with at most ``limit`` differences of each class."""
        listed: dict[str, list[dict[str, str]]] = collections.defaultdict(list)
        for one in self.differences:
            if len(listed[one.kind]) < limit:
                listed[one.kind].append({"path": one.path, "detail": one.detail})
        return {
            "counts": {name: self.counts.get(name, 0) for name in CLASSES},
            "differences": {name: listed[name] for name in CLASSES if name in listed},
            "equivalent": not self.counts.get(OTHER),
        }


def compare(first: str, second: str, progress: Callable[[str, int, int], None] | None = None) -> Comparison:
    """Compare two directories, telling ``progress`` what is done, and how much of how much. Raises StackError."""
    trees = [_Tree(path) for path in (first, second)]
    sides = Sides(path_masks.masks_of_release(first), path_masks.masks_of_release(second))
    names = sorted(trees[0].paths.keys() | trees[1].paths.keys())
    classified: dict[str, Classified] = {}
    for count, name in enumerate(names):
        if progress is not None:
            progress("paths", count, len(names))
        classified[name] = _classify(name, trees[0], trees[1], sides)
    found = {name: _check_source(name, one, classified) for name, one in classified.items()}
    counts = collections.Counter(one.kind for one in found.values())
    return Comparison(dict(counts), [Difference(name, *one) for name, one in found.items() if one.kind != SAME])


class _Tree:
    """Map a release's paths by what they are called in every release."""

    def __init__(self, top: str) -> None:
        self.top = os.path.abspath(top)
        if not os.path.isdir(self.top):
            raise StackError("%s is no directory." % top, STEP, "Name the directories of two releases.", top)
        self.paths: dict[str, str] = {}
        try:
            self._list("")
        except OSError as error:
            raise _unreadable(error) from error

    def _list(self, below: str) -> None:
        with os.scandir(os.path.join(self.top, below)) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, directory in names:
            path = os.path.join(below, name)
            self.paths[common_name(path)] = path
            if directory:
                self._list(path)

    def full(self, name: str) -> str:
        """Return where a path lies."""
        return os.path.join(self.top, self.paths[name])


def _unreadable(error: OSError) -> StackError:
    return StackError(
        "%s cannot be read: %s." % (error.filename, error.strerror), STEP, "Compare as an account that may read both.",
        str(error.filename))


def _classify(name: str, first: _Tree, second: _Tree, sides: Sides) -> Classified:
    for tree, words in ((second, "only in the first"), (first, "only in the second")):
        if name not in tree.paths:
            kind = RECORDS if name.startswith(VOLATILE) else BYTECODE if name.endswith(".pyc") else OTHER
            return Classified(kind, words)
    paths = first.full(name), second.full(name)
    try:
        states = [os.lstat(path) for path in paths]
        if stat.S_IFMT(states[0].st_mode) != stat.S_IFMT(states[1].st_mode):
            return Classified(OTHER, "of another type")
        classified = _compare_contents(name, paths, states, sides)
    except OSError as error:
        raise _unreadable(error) from error
    modes = [stat.S_IMODE(state.st_mode) for state in states]
    if modes[0] != modes[1] and not stat.S_ISLNK(states[0].st_mode) and classified.kind != OTHER:
        return Classified(OTHER, "mode %04o and %04o" % (modes[0], modes[1]))
    return classified


def _compare_contents(name: str, paths: tuple[str, str], states: list[os.stat_result], sides: Sides) -> Classified:
    if stat.S_ISLNK(states[0].st_mode):
        targets = [os.fsencode(os.readlink(path)) for path in paths]
        if targets[0] == targets[1]:
            return Classified(SAME)
        masked = sides.first.mask(targets[0]), sides.second.mask(targets[1])
        return Classified(PLACE) if masked[0] == masked[1] else Classified(OTHER, "another target")
    if not stat.S_ISREG(states[0].st_mode) or _same_bytes(paths, states):
        return Classified(SAME)
    if max(state.st_size for state in states) > MAX_COMPARED:
        return Classified(OTHER, "content; too large to be looked into")
    contents = []
    for path in paths:
        with open(path, "rb") as stream:
            contents.append(stream.read())
    return classify(name, contents[0], contents[1], sides)


def _same_bytes(paths: tuple[str, str], states: list[os.stat_result]) -> bool:
    if states[0].st_size != states[1].st_size:
        return False
    with open(paths[0], "rb") as first, open(paths[1], "rb") as second:
        while True:
            blocks = first.read(CHUNK), second.read(CHUNK)
            if blocks[0] != blocks[1]:
                return False
            if not blocks[0]:
                return True


def _check_source(name: str, classified: Classified, others: dict[str, Classified]) -> Classified:
    """Check differing bytecode by its source, which has to be the same but for its place."""
    match = _BYTECODE.match(name) if classified.kind == BYTECODE else None
    if match is None:
        return classified
    source = others.get("%s%s.py" % (match.group("directory"), match.group("name")))
    if source is None:
        return Classified(OTHER, "bytecode without a source")
    return classified if source.kind in (SAME, PLACE) else Classified(OTHER, "bytecode of a source that differs")

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Apply or undo one patch in memory. Pure."""

from __future__ import annotations

import collections
from typing import Callable, NamedTuple, Optional, Sequence

from .diff_model import FilePatch, Patch, blob_id
from .header_paths import display
from .hunks import FileLines, Mismatch, apply_hunks, reverse_hunks
from .source_files import TreeFile

Reader = Callable[[bytes], Optional[TreeFile]]


class Fault(NamedTuple):
    """Describe what does not fit: patch and file by name, hunk number or 0 for the file as a whole."""

    patch: bytes
    path: bytes
    hunk: int
    line: int
    reason: str
    undoing: bool


class Note(NamedTuple):
    """Describe why a file is unverified: the patch names no blob, or another one than is there."""

    patch: bytes
    path: bytes
    named: str | None
    actual: str
    side: str

    def as_result(self) -> dict[str, str | None]:
        """Return the note as a module returns it."""
        patch, file = display(self.patch), display(self.path)
        return {"patch": patch, "file": file, "side": self.side, "named": self.named, "actual": self.actual}


class Outcome(NamedTuple):
    """Hold what became of one patch: faults, if it does not fit, notes, and per file the offsets of its hunks."""

    faults: list[Fault]
    notes: list[Note]
    offsets: list[tuple[int, ...]]


class LineCache:
    """Keep the last files as lines, of at most ``limit`` bytes: the lines keep the contents too."""

    def __init__(self, limit: int = 8 << 20) -> None:
        self._known: collections.OrderedDict[int, FileLines] = collections.OrderedDict()
        self._limit = limit
        self._size = 0

    def of(self, content: bytes) -> FileLines:
        """Return a content as lines."""
        if id(content) in self._known:
            self._known.move_to_end(id(content))
            return self._known[id(content)]
        lines = FileLines(content)
        if len(content) <= self._limit:
            # What is kept here keeps its identity.
            self._known[id(content)] = lines
            self._size += len(content)
            while self._size > self._limit:
                self._size -= len(self._known.popitem(last=False)[1].content)
        return lines


class MemoryTree:
    """Hold a tree in memory: what was read stays, what is set covers it."""

    def __init__(self, read: Reader, lines: LineCache | None = None) -> None:
        self._read = read
        self._found: dict[bytes, TreeFile | None] = {}
        self._files: dict[bytes, TreeFile | None] = {}
        self._lines = lines or LineCache()

    def get(self, path: bytes) -> TreeFile | None:
        """Return a file; None where there is none."""
        if path not in self._files:
            self._files[path] = self._found[path] = self._read(path)
        return self._files[path]

    def lines(self, file: TreeFile) -> FileLines:
        """Return the lines of a file."""
        return self._lines.of(file.content)

    def set(self, path: bytes, file: TreeFile | None) -> None:
        """Put a file in the place of another one, or take it away."""
        found = self._found.get(path)
        # A file that is as it was found needs no second copy: it may be large.
        self._files[path] = found if found == file else file


def apply_patch(
    patch: Patch, files: MemoryTree, max_offset: int, pins: Sequence[Sequence[int]] | None = None, undo: bool = False,
    broken: set[bytes] | None = None,
) -> Outcome:
    """Apply or undo one patch file in memory.

    Sources of renames and copies are read as they were before the patch, as git means them.

    Args:
        files: changed in place, also by the sections before a fault.
        pins: known offsets per file.
        broken: paths to leave out; given, faults are collected and their paths added, otherwise the first one ends it.
    """
    sections = [_inverse(section) for section in reversed(patch.files)] if undo else list(patch.files)
    pins = pins[::-1] if pins is not None and undo else pins
    before = {section.old: files.get(section.old) for section in sections if section.kind in ("rename", "copy")}
    leaving = {section.old for section in sections if section.kind in ("rename", "delete", "drop")}
    written: set[bytes] = set()
    outcome = Outcome([], [], [])
    for index, section in enumerate(sections):
        if broken is not None and broken.intersection(section.paths):
            continue
        try:
            source = before[section.old] if section.kind in ("rename", "copy") else files.get(section.old)
            free = files.get(section.new) is None or section.new in leaving - written
            pinned = pins[index] if pins is not None else None
            result, used = _apply_section(section, source, free, files, max_offset, pinned)
        except Mismatch as misfit:
            outcome.faults.append(Fault(patch.name, section.new, misfit.hunk, misfit.line, misfit.reason, undo))
            if broken is None:
                return outcome
            broken.update(section.paths)
            continue
        if not undo:
            outcome.notes.extend(_find_unverified(patch.name, section, source, result))
        outcome.offsets.append(used)
        if section.kind == "rename" and section.old not in written:
            files.set(section.old, None)
        if result is not None or section.new not in written:
            files.set(section.new, result)
        written.add(section.new)
    return outcome


def _apply_section(
    section: FilePatch, source: TreeFile | None, free: bool, files: MemoryTree, max_offset: int,
    pins: Sequence[int] | None,
) -> tuple[TreeFile | None, tuple[int, ...]]:
    """Apply one file's part; returns the new file (None when it goes), and the offsets used."""
    if section.kind in ("create", "rename", "copy") and not free:
        raise Mismatch("the file is there already")
    if section.kind == "create":
        source = TreeFile(b"", 0o755 if section.new_mode else 0o644)
    elif source is None:
        raise Mismatch("the file %sis not there" % ("" if section.old == section.new else display(section.old) + " "))
    if section.kind == "drop":
        return None, ()
    if section.mode_change and source.executable != section.old_mode:
        raise Mismatch("the file is %s already" % ("executable" if section.new_mode else "not executable"))
    used: tuple[int, ...] = ()
    if section.hunks:
        content, used = apply_hunks(files.lines(source), section.hunks, max_offset, pins)
        source = source._replace(content=content)
    if section.kind == "delete":
        if source.content:
            raise Mismatch("lines are left that the patch does not delete", len(section.hunks), section.line)
        return None, used
    if section.mode_change:
        source = source.with_executable(bool(section.new_mode))
    return source, used


def _inverse(section: FilePatch) -> FilePatch:
    """Invert a section; a copy is undone by dropping it."""
    kinds = {"create": "delete", "delete": "create", "copy": "drop"}
    return section._replace(
        kind=kinds.get(section.kind, section.kind), old=section.new,
        new=section.new if section.kind == "copy" else section.old,
        hunks=reverse_hunks(section.hunks), old_mode=section.new_mode, new_mode=section.old_mode,
    )


def _find_unverified(patch: bytes, section: FilePatch, source: TreeFile | None, result: TreeFile | None) -> list[Note]:
    """Find what the header does not name, or names differently; nothing to name without hunks."""
    found = []
    if section.hunks and section.kind != "create" and source is not None:
        actual = blob_id(source.content, len(section.old_id or ""))
        if section.old_id is None or not actual.startswith(section.old_id):
            found.append(Note(patch, section.old, section.old_id, actual, "before"))
    if section.hunks and section.new_id is not None and result is not None:
        actual = blob_id(result.content, len(section.new_id))
        if not actual.startswith(section.new_id):
            found.append(Note(patch, section.new, section.new_id, actual, "after"))
    return found

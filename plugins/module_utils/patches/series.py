# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A directory of patches as one unit: read it, and apply or undo its patches in memory."""

from __future__ import annotations

import collections
import errno
import hashlib
import os
import stat
from typing import Callable, NamedTuple, Optional, Sequence

from ..core.errors import StackError
from .header_paths import display
from .hunks import (
    FileLines,
    Misfit,
    apply_hunks,
    reverse_hunks,
)
from .parser import (
    FilePatch,
    Patch,
    blob_id,
    parse_patch,
    settle_names,
)
from .source_files import TreeFile

SUFFIXES = (b".patch", b".diff")
PACKED = (b".gz", b".bz2", b".xz", b".zst")

Reader = Callable[[bytes], Optional[TreeFile]]


class Series(NamedTuple):
    """The patches in order, the digest over their names and contents, and the names that were passed over."""

    patches: tuple[Patch, ...]
    digest: str
    ignored: tuple[bytes, ...]
    strip: int

    @property
    def touched(self) -> set[bytes]:
        """Every path that any patch names."""
        return {path for patch in self.patches for section in patch.files for path in (section.old, section.new)}

    @property
    def mode_paths(self) -> set[bytes]:
        """The paths whose execute bit the series changes, so that it tells levels apart."""
        changed = [section for patch in self.patches for section in patch.files if section.mode_change]
        return {path for section in changed for path in (section.old, section.new)}


class Fault(NamedTuple):
    """Something that does not fit: patch and file by name, hunk number or 0 for the file as a whole."""

    patch: bytes
    path: bytes
    hunk: int
    line: int
    reason: str
    undoing: bool


class Note(NamedTuple):
    """Why a file is unverified: the patch's header names no blob, or another one than is there."""

    patch: bytes
    path: bytes
    named: str | None
    actual: str
    side: str

    def as_result(self) -> dict[str, str | None]:
        """The note as a module returns it."""
        return {
            "patch": display(self.patch), "file": display(self.path), "side": self.side, "named": self.named,
            "actual": self.actual,
        }


class Outcome(NamedTuple):
    """What became of one patch: faults (empty when it fits), notes, and per file the offsets of its hunks."""

    faults: list[Fault]
    notes: list[Note]
    offsets: list[tuple[int, ...]]


class Lines:
    """Files as lines. Only the last ones are kept, of at most ``limit`` bytes: they keep the contents too."""

    def __init__(self, limit: int = 8 << 20) -> None:
        self._known: collections.OrderedDict[int, FileLines] = collections.OrderedDict()
        self._limit = limit
        self._size = 0

    def of(self, content: bytes) -> FileLines:
        known = self._known.get(id(content))
        if known is not None:
            self._known.move_to_end(id(content))
            return known
        lines = FileLines(content)
        if len(content) <= self._limit:
            # What is kept here keeps its identity.
            self._known[id(content)] = lines
            self._size += len(content)
            while self._size > self._limit:
                self._size -= len(self._known.popitem(last=False)[1].content)
        return lines


class Files:
    """A tree in memory: what was read stays, what is set covers it."""

    def __init__(self, read: Reader, lines: Lines | None = None) -> None:
        self._read = read
        self._found: dict[bytes, TreeFile | None] = {}
        self._files: dict[bytes, TreeFile | None] = {}
        self._lines = lines or Lines()

    def get(self, path: bytes) -> TreeFile | None:
        if path not in self._files:
            self._files[path] = self._found[path] = self._read(path)
        return self._files[path]

    def lines(self, file: TreeFile) -> FileLines:
        return self._lines.of(file.content)

    def set(self, path: bytes, file: TreeFile | None) -> None:
        found = self._found.get(path)
        # A file that is as it was found needs no second copy: it may be large.
        self._files[path] = found if found == file else file


# -- reading -----------------------------------------------------------------------------------------------------


def load_series(directory: str, strip: int = 1) -> Series:
    """Read and parse every ``*.patch`` and ``*.diff`` of a directory, links followed, in byte order of their names.

    Raises:
        StackError: the directory or a patch cannot be read, or a patch is malformed or refused.
    """
    folder = os.fsencode(directory)
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise StackError(
            "Cannot read the series directory %s: %s." % (display(folder), error.strerror), "read series",
            "Name the directory on the target that holds the *.patch files.", path=directory,
        ) from error
    for name in names:
        if any(name.endswith(suffix + packing) for suffix in SUFFIXES for packing in PACKED):
            raise StackError(
                "%s in the series is compressed." % display(name), "read series",
                "Unpack it in the series directory.", patch=display(name),
            )
    chosen = [name for name in names if name.endswith(SUFFIXES) and not name.startswith(b".")]
    patches = []
    for name in chosen:
        path = os.path.join(folder, name)
        try:
            content = _read_patch(path)
        except OSError as error:
            raise StackError(
                "Cannot read the patch %s: %s." % (display(path), error.strerror), "read series",
                "Make it a readable file or a link to one.", path=os.fsdecode(path), patch=display(name),
            ) from error
        patches.append(parse_patch(content, name, strip))
    digest = hashlib.sha256()
    for patch in patches:
        digest.update(b"%s\0%s\n" % (patch.name, patch.sha256.encode("ascii")))
    passed = tuple(name for name in names if name not in set(chosen))
    return Series(tuple(patches), digest.hexdigest(), passed, strip)


def _read_patch(path: bytes) -> bytes:
    # A named pipe would be waited for, and a device may never end.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        return stream.read()


def settle_series(series: Series, read: Reader) -> Series:
    """The series with every plain diff's file name decided by what the tree and other patches provide."""
    created = {section.new for patch in series.patches for section in patch.files if section.kind != "modify"}

    def exists(path: bytes) -> bool:
        return path in created or read(path) is not None

    return series._replace(patches=tuple(settle_names(patch, exists) for patch in series.patches))


# -- one patch in memory -----------------------------------------------------------------------------------------


def apply_patch(
    patch: Patch, files: Files, max_offset: int, pins: Sequence[Sequence[int]] | None = None, undo: bool = False,
    broken: set[bytes] | None = None,
) -> Outcome:
    """Apply or undo one patch file in memory.

    Sources of renames and copies are read as they were before the patch, as git means them.

    Args:
        files: changed in place, also by the sections before a fault.
        max_offset: how far a hunk may lie from its header's line.
        pins: known offsets per file.
        undo: apply the inverse, last file first.
        broken: paths to leave out; given, faults are collected and their paths added, otherwise the first one ends it.
    """
    sections = [_inverse(section) for section in reversed(patch.files)] if undo else list(patch.files)
    if pins is not None and undo:
        pins = list(reversed(pins))
    before = {section.old: files.get(section.old) for section in sections if section.kind in ("rename", "copy")}
    leaving = {section.old for section in sections if section.kind in ("rename", "delete", "drop")}
    written: set[bytes] = set()
    outcome = Outcome([], [], [])
    for index, section in enumerate(sections):
        if broken is not None and broken.intersection((section.old, section.new)):
            continue
        try:
            source = before[section.old] if section.kind in ("rename", "copy") else files.get(section.old)
            free = files.get(section.new) is None or section.new in leaving - written
            result, used = _apply_section(
                section, source, free, files, max_offset, pins[index] if pins is not None else None
            )
        except Misfit as misfit:
            outcome.faults.append(Fault(patch.name, section.new, misfit.hunk, misfit.line, misfit.reason, undo))
            if broken is None:
                return outcome
            broken.update((section.old, section.new))
            continue
        if not undo:
            outcome.notes.extend(_notes(patch.name, section, source, result))
        outcome.offsets.append(used)
        if section.kind == "rename" and section.old not in written:
            files.set(section.old, None)
        if result is not None or section.new not in written:
            files.set(section.new, result)
        written.add(section.new)
    return outcome


def _apply_section(
    section: FilePatch, source: TreeFile | None, free: bool, files: Files, max_offset: int,
    pins: Sequence[int] | None,
) -> tuple[TreeFile | None, tuple[int, ...]]:
    """One file's outcome: the new file (None when it goes), and the offsets used."""
    if section.kind in ("create", "rename", "copy") and not free:
        raise Misfit("the file is there already")
    if section.kind == "create":
        source = TreeFile(b"", 0o755 if section.new_mode else 0o644)
    elif source is None:
        raise Misfit("the file %sis not there" % ("" if section.old == section.new else display(section.old) + " "))
    if section.kind == "drop":
        return None, ()
    if section.mode_change and source.executable != section.old_mode:
        raise Misfit("the file is %s already" % ("executable" if section.new_mode else "not executable"))
    used: tuple[int, ...] = ()
    if section.hunks:
        content, used = apply_hunks(files.lines(source), section.hunks, max_offset, pins)
        source = source._replace(content=content)
    if section.kind == "delete":
        if source.content:
            raise Misfit("lines are left that the patch does not delete", len(section.hunks), section.line)
        return None, used
    if section.mode_change:
        source = source.with_executable(bool(section.new_mode))
    return source, used


def _inverse(section: FilePatch) -> FilePatch:
    """What undoes this section; a copy is undone by dropping it."""
    kinds = {"create": "delete", "delete": "create", "copy": "drop"}
    return section._replace(
        kind=kinds.get(section.kind, section.kind), old=section.new,
        new=section.new if section.kind == "copy" else section.old,
        hunks=reverse_hunks(section.hunks), old_mode=section.new_mode, new_mode=section.old_mode,
    )


def _notes(patch: bytes, section: FilePatch, source: TreeFile | None, result: TreeFile | None) -> list[Note]:
    """What the header does not name, or names differently from what is there. Nothing to name without hunks."""
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

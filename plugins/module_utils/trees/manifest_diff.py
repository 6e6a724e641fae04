# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find how a tree differs from its record, both read side by side, so that neither is in memory."""

from __future__ import annotations

import functools
import os
from typing import Iterator

from ..core.text import in_words, readable
from .counters import BoundedList
from .manifest_collector import UNSTABLE, Found
from .manifest_entry import Entry, Run, as_text, decode_entry, order, without_content
from .manifest_exclude import Exclusion
from .manifest_file import Record

KINDS = ("added", "removed", "type", "mode", "size", "content", "target", "attributes")
"""What may be different about a path, in the words of the results."""


class TreeDiff:
    """Hold what differs between a record and a tree, and what could not be compared."""

    def __init__(self, limit: int) -> None:
        self.totals = dict.fromkeys(KINDS, 0)
        self.added, self.removed, self.differing = BoundedList(limit), BoundedList(limit), BoundedList(limit)
        self.unstable, self.unreadable, self.foreign = BoundedList(limit), BoundedList(limit), BoundedList(limit)
        self.touched = BoundedList(limit)
        self.unknown: set[bytes] = set()

    @property
    def any(self) -> bool:
        """Tell whether record and tree differ, or part of the tree could not be compared."""
        return any(self.totals.values()) or bool(self.unstable.total or self.unreadable.total)

    def note(self, found: Found) -> None:
        """List what is reported of a name whatever the record says."""
        if found.trouble:
            listing = self.unstable if found.trouble == UNSTABLE else self.unreadable
            listing.add(lambda: "%s (%s)" % (readable_path(found.path), found.reason))
            if not found.line:
                self.unknown.add(found.path)
        elif found.foreign:
            self.foreign.add(lambda: readable_path(found.path))

    def differ(self, before: Entry | None, after: Entry | None) -> None:
        """List how an entry differs from the recorded one."""
        if before is None and after is not None:
            self.totals["added"] += 1
            self.added.add(lambda: readable_path(after.path))
        elif after is None and before is not None:
            if not self._is_unknown(before.path):
                self.totals["removed"] += 1
                self.removed.add(lambda: readable_path(before.path))
        elif before is not None and after is not None:
            for kind, old, new in differences(before, after):
                self.totals[kind] += 1
                self.differing.add(functools.partial(_difference, after.path, kind, old, new))

    def touch(self, paths: tuple[bytes, ...]) -> None:
        """List entries whose inode was changed since, which is no difference by itself."""
        for path in paths:
            self.touched.add(functools.partial(readable_path, path))

    def appear(self, lines: list[bytes]) -> None:
        """List entries that are not recorded; most of them are only counted."""
        self.totals["added"] += len(lines)
        room = self.added.limit - len(self.added.first)
        for line in lines[:room]:
            self.added.add(functools.partial(readable_path, decode_entry(line).path))
        self.added.total += len(lines[room:])

    def _is_unknown(self, path: bytes) -> bool:
        """Tell whether a path that was not found could be there: it, or what holds it, was not readable."""
        while path and self.unknown:
            if path in self.unknown:
                return True
            path = path.rpartition(b"/")[0]
        return False

    def as_result(self) -> dict[str, object]:
        """Return the lists and their totals as plain data."""
        lists = ("added", "removed", "differing", "unstable", "unreadable", "foreign")
        result: dict[str, object] = {name: getattr(self, name).first for name in lists}
        listed = {name: getattr(self, name).total for name in ("unstable", "unreadable", "foreign")}
        result["totals"] = dict(self.totals, **listed)
        return result


def _difference(path: bytes, kind: str, old: str, new: str) -> dict[str, str]:
    return {"path": readable_path(path), "kind": kind, "from": old, "to": new}


def readable_path(path: bytes) -> str:
    """Show a path to a reader."""
    return readable(os.fsdecode(path))


def differences(before: Entry, after: Entry) -> Iterator[tuple[str, str, str]]:
    """Yield how two entries of one path differ: kind, and what it was and is.

    Another type is all; another size implies another content. Digests are compared where both have one.
    """
    if before.kind != after.kind:
        yield "type", before.kind, after.kind
        return
    if before.mode is not None and after.mode is not None and before.mode != after.mode:
        yield "mode", "%04o" % before.mode, "%04o" % after.mode
    if before.size != after.size:
        yield "size", str(before.size), str(after.size)
    elif before.sha256 and after.sha256 and before.sha256 != after.sha256:
        yield "content", before.sha256, after.sha256
    if before.target is not None and after.target is not None and before.target != after.target:
        yield "target", readable_path(before.target), readable_path(after.target)
    if before.attributes != after.attributes:
        yield "attributes", _in_words(before), _in_words(after)


def _in_words(entry: Entry) -> str:
    found = entry.attributes or {}
    return "; ".join("%s=%s" % (in_words(name), value) for name, value in sorted(found.items()))


class _LineReader:
    """Read lines one by one, or many at once where they are known already, from pieces of some lines each."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._text = b""
        self._at = 0

    def _have(self, count: int) -> None:
        while len(self._text) - self._at < count:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._text, self._at = self._text[self._at:] + piece, 0

    def first(self) -> bytes:
        """Return the next line, without its end; empty after the last."""
        self._have(1)
        return self._text[self._at:self._text.index(b"\n", self._at)] if self._at < len(self._text) else b""

    def skip(self, line: bytes) -> None:
        """Skip the next line."""
        self._at += len(line) + 1

    def skip_all(self, lines: bytes) -> bool:
        """Skip these lines, if they are the next ones."""
        self._have(len(lines))
        same = self._text.startswith(lines, self._at)
        if same:
            self._at += len(lines)
        return same


class Comparison:
    """Compare a record with a tree that is read in step. Equal lines are equal entries, which most are.

    Without a record everything is added. A list has ``limit`` paths at most; without ``content`` no digest counts.
    """

    def __init__(self, earlier: Record | None, ignore: Exclusion | None, limit: int, content: bool = True) -> None:
        self.drift = TreeDiff(limit)
        self._recorded = _LineReader(_recorded_lines(earlier, ignore, content))
        self._find()

    def _find(self) -> None:
        self._line = self._recorded.first()
        self._before: Entry | None = None

    def _advance(self) -> None:
        self._recorded.skip(self._line)
        self._find()

    def run(self, run: Run) -> None:
        """Compare entries that were found."""
        self.drift.touch(run.touched)
        if self._recorded.skip_all(run.lines):
            self._find()
            return
        lines = run.lines.splitlines()
        for number, line in enumerate(lines):
            if not self._line:
                self.drift.appear(lines[number:])
                return
            self.line(line)

    def line(self, line: bytes) -> None:
        """Compare an entry that was found."""
        if line == self._line:
            self._advance()
            return
        entry = decode_entry(line)
        here = order(entry.path)
        while self._line:
            self._before = self._before or decode_entry(self._line)
            if order(self._before.path) >= here:
                break
            self.drift.differ(self._before, None)
            self._advance()
        if self._before is None or self._before.path != entry.path:
            self.drift.differ(None, entry)
            return
        self.drift.differ(self._before, entry)
        self._advance()

    def finish(self) -> TreeDiff:
        """Return all that differs; what is left of the record was not found."""
        while self._line:
            self.drift.differ(self._before or decode_entry(self._line), None)
            self._advance()
        return self.drift


def _recorded_lines(earlier: Record | None, ignore: Exclusion | None, content: bool) -> Iterator[bytes]:
    """Yield the lines of a record, but for those that are to be ignored."""
    if earlier is None:
        return
    hidden: bytes | None = None
    strip = earlier.header.content and not content
    for piece in earlier.pieces():
        lines = without_content(piece) if strip else piece
        if ignore is None:
            yield lines
            continue
        kept = []
        for line in lines.splitlines(True):
            path = decode_entry(line).path
            if hidden is not None and path.startswith(hidden):
                continue
            if ignore(as_text(path)):
                hidden = path + b"/"
                continue
            kept.append(line)
        yield b"".join(kept)

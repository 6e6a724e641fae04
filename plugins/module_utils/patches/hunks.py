# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Apply the hunks of one file in memory, with exact context, where GNU patch would put them.

The order in which places are tried, and the hunks that are tied to the begin or end of a file, are those of GNU patch
2.7 with ``--fuzz=0``; the differential tests hold both side by side. On top of it a hunk may lie at most ``max_offset``
lines away from the line in its header, and three things that GNU patch does silently are refused: inserting without
context beyond the end of the file, leaving a line without a newline in the middle of the result, and changing what the
hunk before relies on as its context, for that could not be undone.
"""

from __future__ import annotations

import bisect
import io
import itertools
from array import array
from typing import Iterator, NamedTuple, Sequence, Union

from .diff_model import Hunk

_Piece = Union[bytes, memoryview]

_MAX_TRIED = 64  # places that are tried one by one before the whole file is searched


class Mismatch(Exception):
    """Report a hunk, or a whole file, for which the tree is not what the patch expects.

    Attributes:
        reason: a clause for a sentence, without names.
        hunk, line: 1-based number of the hunk, 0 for the file as a whole, and its line in the patch file.
        offset: where it would have fitted, in lines from its header; None where it fits nowhere.
    """

    def __init__(self, reason: str, hunk: int = 0, line: int = 0, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.hunk, self.line, self.offset = reason, hunk, line, offset


class FileLines:
    """Give a file as a sequence of lines; only a newline ends a line, and the last one may lack it.

    Only where each line ends is kept: the lines as objects take several times the space of a large file.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._ends = array("Q", itertools.accumulate(map(len, io.BytesIO(content))))

    def __len__(self) -> int:
        return len(self._ends)

    def _start(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def __getitem__(self, index: int) -> bytes:
        return self.content[self._start(index):self._ends[index]]

    def piece(self, first: int, last: int) -> memoryview:
        """Return the lines from ``first`` up to, and without, ``last``, as one piece that is not copied."""
        last = max(min(last, len(self)), first)
        return memoryview(self.content)[self._start(first):self._start(last)] if first < last else memoryview(b"")

    def every(self, line: bytes) -> Iterator[int]:
        """Yield the index of each line that is this one."""
        at = self.content.find(line)
        while at >= 0:
            index = bisect.bisect_right(self._ends, at)
            if self._start(index) == at and self._ends[index] == at + len(line):
                yield index
            at = self.content.find(line, self._ends[index])


class Applied(NamedTuple):
    """Hold the new content of a file, and how far from its header each hunk was applied, in lines."""

    content: bytes
    offsets: tuple[int, ...]


def apply_hunks(
    lines: FileLines, hunks: Sequence[Hunk], max_offset: int, pinned: Sequence[int] | None = None
) -> Applied:
    """Apply hunks in order, none further than ``max_offset`` lines from its header's line; or raise Mismatch.

    Offsets known from an earlier application (``pinned``) are used without a search, ``max_offset`` aside.
    """
    result: list[_Piece] = []
    offsets: list[int] = []
    shift = consumed = relied = 0
    for number, hunk in enumerate(hunks, 1):
        where: int | None
        if pinned is None:
            where = _locate(lines, hunk, shift, consumed)
        else:
            where = hunk.first + pinned[number - 1]
            where = where if _matches(lines, hunk, where) else None
        if where is None:
            raise Mismatch(_explain_mismatch(lines, hunk, shift), number, hunk.line)
        shift = where - hunk.first
        if pinned is None and abs(shift) > max_offset:
            way = "line%s further %s" % ("" if abs(shift) == 1 else "s", "down" if shift > 0 else "up")
            reason = "it fits %d %s, and max_offset allows %d" % (abs(shift), way, max_offset)
            raise Mismatch(reason, number, hunk.line, shift)
        start = where - 1 + hunk.prefix
        if start < consumed:
            raise Mismatch("it overlaps the hunk before it", number, hunk.line)
        if start < relied:
            raise Mismatch("it changes the context of the hunk before it", number, hunk.line)
        if not hunk.old and start > len(lines):
            raise Mismatch("it inserts at line %d of a file with %d lines" % (where, len(lines)), number, hunk.line)
        _extend(result, lines.piece(consumed, start), number, hunk)
        for line in hunk.new[hunk.prefix:len(hunk.new) - hunk.suffix]:
            _extend(result, line, number, hunk)
        relied = where - 1 + len(hunk.old)
        consumed = relied - hunk.suffix
        offsets.append(shift)
    if hunks:
        _extend(result, lines.piece(consumed, len(lines)), len(hunks), hunks[-1])
    return Applied(b"".join(result) if hunks else lines.content, tuple(offsets))


def _extend(result: list[_Piece], piece: _Piece, number: int, hunk: Hunk) -> None:
    """Append lines of which at most the last lacks its newline; nothing may follow such a line."""
    if not piece:
        return
    if result and result[-1][-1:] != b"\n":
        raise Mismatch("it would leave a line without a newline inside the file", number, hunk.line)
    result.append(piece)


def reverse_hunks(hunks: Sequence[Hunk]) -> tuple[Hunk, ...]:
    """Reverse hunks, placed by the lines that they really add and remove, not by their headers."""
    reversed_hunks, grown = [], 0
    for hunk in hunks:
        reversed_hunks.append(hunk._replace(first=hunk.first + grown, old=hunk.new, new=hunk.old))
        grown += len(hunk.new) - len(hunk.old)
    return tuple(reversed_hunks)


def _matches(lines: FileLines, hunk: Hunk, where: int) -> bool:
    """Tell whether the old side stands at 1-based line ``where``."""
    start = where - 1
    if start < 0 or (hunk.old and start + len(hunk.old) > len(lines)):
        return False
    return all(lines[at] == line for at, line in enumerate(hunk.old, start))


def _locate(lines: FileLines, hunk: Hunk, shift: int, consumed: int) -> int | None:
    """Find the 1-based line where GNU patch applies the hunk, or None.

    ``shift`` is the offset of the hunk before; earlier hunks have used up ``consumed`` leading lines.
    """
    if not hunk.old:
        return max(hunk.first + shift, 1)
    places = _candidate_lines(len(lines), hunk, shift, consumed)
    for where in itertools.islice(places, _MAX_TRIED):
        if _matches(lines, hunk, where):
            return where
    # What is left is known by its longest line.
    index = max(range(len(hunk.old)), key=lambda number: len(hunk.old[number]))
    fitting = {at - index + 1 for at in lines.every(hunk.old[index]) if _matches(lines, hunk, at - index + 1)}
    return next((where for where in places if where in fitting), None) if fitting else None


def _candidate_lines(total: int, hunk: Hunk, shift: int, consumed: int) -> Iterator[int]:
    """Yield the lines at which the hunk may be tried: the expected one, then in turn after and before.

    Less context before the change than after it means that the hunk began at the file's first line, and less after it
    that it ended at the last: such a hunk fits only there.
    """
    guess = hunk.first + shift
    highest = total - len(hunk.old) + 1
    ahead, back = highest - guess, guess - (consumed + 1)
    furthest = max(ahead, back)
    if guess <= back:
        back = guess - 1
    if hunk.prefix < hunk.suffix and hunk.first <= 1:
        if consumed <= hunk.prefix and highest >= 1:
            yield 1
        return
    if hunk.suffix < hunk.prefix:
        if highest >= guess - back:
            yield highest
        return
    distance = -ahead if ahead < 0 else min(back, 0)
    while distance <= furthest:
        if distance <= ahead:
            yield guess + distance
        if distance <= back:
            yield guess - distance
        distance += 1


def _explain_mismatch(lines: FileLines, hunk: Hunk, shift: int) -> str:
    """Name the first line that differs at the place where the hunk is expected."""
    guess = hunk.first + shift
    for index, expected in enumerate(hunk.old):
        at = guess - 1 + index
        wanted = _excerpt(expected)
        if at < 0 or at >= len(lines):
            return "line %d of the file is expected to be %s, and the file has %d lines" % (at + 1, wanted, len(lines))
        if lines[at] != expected:
            return "line %d of the file is %s where the patch expects %s" % (at + 1, _excerpt(lines[at]), wanted)
    return "it is tied to the begin or end of the file and does not fit there"


def _excerpt(line: bytes) -> str:
    text = line[:81].decode("utf-8", "backslashreplace").rstrip("\n")
    note = "" if line.endswith(b"\n") or len(line) > 81 else " without a newline"
    return "'%s%s'%s" % (text[:80].replace("\r", "\\r"), "..." if len(text) > 80 else "", note)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse the hunks of a patch file. Pure."""

from __future__ import annotations

import re
from typing import NoReturn

from ..core.errors import StackError
from .diff_model import Hunk
from .header_paths import display

MOST_CHOPPED = 3
"""Blank lines at the end of a patch that GNU patch takes for there where fewer than these are missing (pch.c)."""
# No file has lines whose number is longer, and Python refuses to read one of thousands of digits.
HUNK_HEADER = re.compile(rb"^@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@")


class HunkParser:
    """Read the lines of a patch file, newlines included, one after the other, and its hunks as a whole."""

    def __init__(self, lines: list[bytes], name: bytes) -> None:
        self.lines = lines
        self.name = name
        self.at = 0
        self.notes: list[str] = []

    def refuse(self, problem: str, line: int, remedy: str = "") -> NoReturn:
        """Refuse the patch at a line."""
        raise StackError(
            "%s, line %d: %s." % (display(self.name), line, problem), "parse series",
            remedy or "Correct the patch; nothing was changed.", patch=display(self.name), line=line,
        )

    def note(self, oddity: str, line: int) -> None:
        """Note what GNU patch and git take as well, and what its author may not have meant."""
        self.notes.append("%s, line %d: %s" % (display(self.name), line, oddity))

    def peek(self, ahead: int = 0) -> bytes:
        """Return a line at or after the cursor; empty behind the last."""
        index = self.at + ahead
        return self.lines[index] if index < len(self.lines) else b""

    def text(self) -> bytes:
        """Return the line at the cursor; a carriage return at its end means a converted patch file."""
        line = self.peek().rstrip(b"\n")
        if line.endswith(b"\r"):
            self.refuse(
                "the header ends in a carriage return: the patch file was converted to DOS line ends", self.at + 1,
                "Fetch the patch again without conversion (git: core.autocrlf, or '*.patch -text' in .gitattributes).",
            )
        return line

    def hunks(self) -> tuple[Hunk, ...]:
        """Read all hunks that follow."""
        found: list[Hunk] = []
        while self.peek().startswith(b"@@ "):
            found.append(self.hunk())
        return tuple(found)

    def hunk(self) -> Hunk:
        """Read one hunk."""
        number, marks = self.at + 1, b""
        match = HUNK_HEADER.match(self.peek())
        if not match:
            self.refuse("a malformed hunk header", number)
        first, old_count, _new_first, new_count = (int(digits or b"1") for digits in match.groups())
        if old_count and not first:
            self.refuse("a malformed hunk header: line 0", number)
        self.at += 1
        old: list[bytes] = []
        new: list[bytes] = []
        while len(old) < old_count or len(new) < new_count:
            line = self.peek()
            # Mailers drop the blank of an empty context line; GNU patch and git read it the same way.
            line = b" \n" if line == b"\n" else line
            missing = old_count - len(old)
            if not line and missing == new_count - len(new) and missing < MOST_CHOPPED and marks.strip(b" "):
                self.note("blank lines at the end of the patch are missing; they are taken for there", number)
                old += [b"\n"] * missing
                new += [b"\n"] * missing
                marks += b" " * missing
                break
            mark = line[:1]
            if mark == b"\\" and marks:
                self.no_newline(marks[-1:], old, new, number)
                continue
            if not mark or mark not in b" -+":
                self.refuse("the hunk has fewer lines than its header says", number)
            if not line.endswith(b"\n"):
                self.refuse("the patch ends in the middle of a line", self.at + 1)
            if mark != b"+":
                old.append(line[1:])
            if mark != b"-":
                new.append(line[1:])
            marks += mark
            self.at += 1
        if self.peek().startswith(b"\\"):
            self.no_newline(marks[-1:], old, new, number)
        self.check_hunk_end(number, len(old) == old_count and len(new) == new_count)
        if any(not line.endswith(b"\n") for side in (old, new) for line in side[:-1]):
            self.refuse("a line without a newline inside the hunk", number)
        prefix, suffix = (len(marks) - len(stripped) for stripped in (marks.lstrip(b" "), marks.rstrip(b" ")))
        if prefix == len(marks):
            self.refuse("a hunk that changes nothing", number)
        return Hunk(number, first + (not old_count), tuple(old), tuple(new), prefix, suffix)

    def no_newline(self, mark: bytes, old: list[bytes], new: list[bytes], number: int) -> None:
        """Read the note that the line before it ends without a newline."""
        for side, marks in ((old, b" -"), (new, b" +")):
            if mark and mark in marks:
                if not side[-1].endswith(b"\n"):
                    self.refuse("two notes about one missing newline", number)
                side[-1] = side[-1][:-1]
        self.at += 1

    def check_hunk_end(self, number: int, counts_met: bool) -> None:
        """Refuse a line that looks like one more change of the hunk: the counts are wrong, and it would be lost."""
        line = self.peek()
        # A mail's signature, and what ends a message in a patch of several.
        ruled = line.rstrip(b" \r\n") in (b"--", b"---")
        header = line.startswith(b"--- ") and self.peek(1).startswith(b"+++ ")
        if not counts_met or (line[:1] in (b"+", b"-") and not ruled and not header):
            self.refuse("the hunk has more lines than its header says", number)
        if line[:1] == b" ":
            self.note("what follows the hunk looks like more of it and is left out, as the header counts less", number)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Patch files as data: unified diffs, plain or in git's dialect. Bytes in, named tuples out; nothing is applied here.

What is understood follows the GNU diffutils manual ("Detailed Description of Unified Format") and git's
diff-generate-patch documentation (extended headers, quoted names). Everything that a build must not guess about is
refused with the patch's name and line: binary hunks, context diffs, combined diffs, hunks whose counts do not add up,
targets outside the tree.
"""

from __future__ import annotations

import hashlib
import io
import re
from typing import Any, Callable, NamedTuple, NoReturn

from ..core.errors import StackError
from .header_paths import (
    BadName,
    common_name,
    display,
    header_name,
    inside,
    unquote,
)

PRISTINE_HEADER = b"Torchstack-Pristine:"

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(rb"^index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
_BINARY = re.compile(rb"^Binary files .* differ\s*$")


class Hunk(NamedTuple):
    """One hunk, its two sides as exact lines (with their newline, or without where the file has none).

    ``first`` is the 1-based line of the old file where ``old`` begins; for an empty ``old`` the line before which
    ``new`` is inserted. ``prefix`` and ``suffix`` count the context lines before the first and after the last change.
    ``line`` is where the hunk begins in the patch file.
    """

    line: int
    first: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    prefix: int
    suffix: int


class FilePatch(NamedTuple):
    """What a patch does to one file.

    ``kind`` is modify, create, delete, rename or copy. ``old`` and ``new`` are paths below the tree. A plain diff that
    names two different files keeps both, and :func:`settle_names` picks one. ``old_mode`` and ``new_mode`` say whether
    the file is executable, None where the patch is silent. ``mode_change`` is true for git's pair of mode lines.
    ``old_id`` and ``new_id`` are the blob ids named by the header, None where none is named.
    """

    line: int
    kind: str
    old: bytes
    new: bytes
    hunks: tuple[Hunk, ...] = ()
    old_mode: bool | None = None
    new_mode: bool | None = None
    mode_change: bool = False
    old_id: str | None = None
    new_id: str | None = None


class Patch(NamedTuple):
    """One patch file: its base name, the sha256 of its bytes, and what it does."""

    name: bytes
    sha256: str
    files: tuple[FilePatch, ...]


def split_lines(content: bytes) -> list[bytes]:
    """Lines with their newline; only a newline ends a line, and the last line may lack it."""
    return io.BytesIO(content).readlines()


def blob_id(content: bytes, digits: int = 40) -> str:
    """Git's object id of a file's content; sha256 for ids of more than 40 digits (git's newer object format)."""
    algorithm = hashlib.sha256() if digits > 40 else hashlib.sha1()
    algorithm.update(b"blob %d\0" % len(content))
    algorithm.update(content)
    return algorithm.hexdigest()


def parse_patch(content: bytes, name: bytes, strip: int = 1) -> Patch:
    """Parse a patch file.

    Args:
        content: the bytes of the file.
        name: its base name, for messages.
        strip: leading components to remove from names, as ``patch -p``.

    Raises:
        StackError: the patch is malformed or asks for something that is refused; ``patch`` and ``line`` say where.
    """
    return _Parser(content, name, strip).parse()


def settle_names(patch: Patch, exists: Callable[[bytes], bool]) -> Patch:
    """Pick one name where a plain diff names two different files, as GNU patch does.

    Of the names for which ``exists(path)`` is true: the one with the fewest components, then the shortest base name,
    then the shortest name, then the old one. Where neither exists the new name stays, and applying will say so.
    """

    def settle(section: FilePatch) -> FilePatch:
        if section.kind != "modify" or section.old == section.new:
            return section
        there = [path for path in (section.old, section.new) if exists(path)]
        best = min(
            there or [section.new], key=lambda path: (path.count(b"/"), len(path.rpartition(b"/")[2]), len(path))
        )
        return section._replace(old=best, new=best)

    return patch._replace(files=tuple(settle(section) for section in patch.files))


class _Header:
    """Git's extended header lines of one file while they are collected."""

    def __init__(self, names: bytes) -> None:
        self.names = names
        self.kind = "modify"
        self.old: bytes | None = None
        self.new: bytes | None = None
        self.modes: dict[bytes, bool] = {}
        self.ids: tuple[str | None, str | None] = (None, None)


class _Parser:
    """A cursor over the lines of one patch file."""

    def __init__(self, content: bytes, name: bytes, strip: int) -> None:
        self.lines = split_lines(content)
        self.name = name
        self.strip = strip
        self.at = 0
        self.pristine: list[tuple[str, bytes, int]] = []
        self.sha256 = hashlib.sha256(content).hexdigest()

    def parse(self) -> Patch:
        files: list[FilePatch] = []
        while self.at < len(self.lines):
            section = self.section()
            if section is not None:
                files.append(section)
        if not files:
            self.refuse("the file holds no unified diff", 1, "Remove it from the series, or make it with git diff.")
        return Patch(self.name, self.sha256, tuple(self.named(files)))

    def refuse(self, problem: str, line: int, remedy: str = "") -> NoReturn:
        raise StackError(
            "%s, line %d: %s." % (display(self.name), line, problem),
            "parse series",
            remedy or "Correct the patch; nothing was changed.",
            patch=display(self.name),
            line=line,
        )

    def peek(self, ahead: int = 0) -> bytes:
        index = self.at + ahead
        return self.lines[index] if index < len(self.lines) else b""

    # -- one file ------------------------------------------------------------------------------------------------

    def section(self) -> FilePatch | None:
        """Read prose, or the diff of one file when one begins here."""
        line = self.peek()
        if line.startswith(b"diff --git "):
            return self.git_section()
        if line.startswith(b"--- ") and self.peek(1).startswith(b"+++ "):
            return self.plain_section()
        number = self.at + 1
        if _HUNK.match(line):
            self.refuse("a hunk without the name of a file before it", number)
        if line.startswith((b"diff --cc ", b"diff --combined ")):
            self.refuse("a combined diff of a merge", number, "Make the patch against one parent with git diff.")
        if line.startswith(b"***************"):
            self.refuse("a context diff", number, "Make it with diff -u or git diff.")
        self.refuse_binary(line, number)
        if line.startswith(PRISTINE_HEADER):
            self.pristine_header(line, number)
        self.at += 1
        return None

    def refuse_binary(self, line: bytes, number: int) -> None:
        if line.startswith(b"GIT binary patch") or _BINARY.match(line):
            self.refuse("a binary difference", number, "Ship that file another way.")

    def pristine_header(self, line: bytes, number: int) -> None:
        words = line[len(PRISTINE_HEADER):].strip().split(None, 1)
        if len(words) != 2 or not re.match(rb"^(?:[0-9a-f]{7,40}|[0-9a-f]{64})$", words[0]):
            self.refuse("expected '%s <git blob id> <path>'" % PRISTINE_HEADER.decode("ascii"), number)
        self.pristine.append((words[0].decode("ascii"), self.path(words[1], 0, number), number))

    def named(self, files: list[FilePatch]) -> list[FilePatch]:
        """The files with the ids of the header lines of our own joined in."""
        for identifier, path, number in self.pristine:
            touched = [index for index, section in enumerate(files) if path in (section.old, section.new)]
            if not touched:
                self.refuse("names %s, which the patch does not touch" % display(path), number)
            section = files[touched[0]]
            known = section.old_id or identifier
            if not (known.startswith(identifier) or identifier.startswith(known)):
                self.refuse("contradicts the index line of %s" % display(path), number)
            files[touched[0]] = section._replace(old_id=max(known, identifier, key=len))
        return files

    def plain_section(self) -> FilePatch:
        number = self.at + 1
        (old, old_epoch), (new, new_epoch) = self.header_names()
        hunks = self.hunks()
        if not hunks:
            self.refuse("a file header without a hunk", number)
        if old is None and new is None:
            self.refuse("both names are /dev/null", number)
        ranges = self.lines[hunks[0].line - 1]
        # A file that comes or goes is one hunk. Without a time the two meanings of an empty old side cannot be told
        # apart; a new file is the usual one.
        whole = len(hunks) == 1
        if old is None or (whole and ranges.startswith(b"@@ -0") and old_epoch is not False):
            target = self.target(old if new is None else new, number)
            return FilePatch(number, "create", target, target, hunks)
        if new is None or (whole and b" +0" in ranges[:ranges.index(b"@@", 2)] and new_epoch is True):
            target = self.target(old, number)
            return FilePatch(number, "delete", target, target, hunks)
        return FilePatch(number, "modify", self.target(old, number), self.target(new, number), hunks)

    def git_section(self) -> FilePatch:
        number = self.at + 1
        header = self.git_header()
        names: list[bytes] = []
        hunks: tuple[Hunk, ...] = ()
        if self.peek().startswith(b"--- ") and self.peek(1).startswith(b"+++ "):
            (old, _epoch), (new, _epoch) = self.header_names()
            hunks = self.hunks()
            if not hunks:
                self.refuse("a file header without a hunk", number)
            if old is None and header.kind == "modify":
                header.kind = "create"
            if new is None and header.kind == "modify":
                header.kind = "delete"
            names = [name for name in (old, new) if name is not None]
        return self.git_file(header, names, hunks, number)

    def git_file(self, header: _Header, names: list[bytes], hunks: tuple[Hunk, ...], number: int) -> FilePatch:
        """Join the extended header and the body of one file in git's dialect."""
        mode_change = b"old mode" in header.modes and b"new mode" in header.modes
        if header.kind in ("rename", "copy"):
            if header.old is None or header.new is None:
                self.refuse("a %s with only one of its two names" % header.kind, number)
            # Git writes these names without the a/ and b/ that the other header lines have.
            less = max(self.strip - 1, 0)
            old, new = self.path(header.old, less, number), self.path(header.new, less, number)
        else:
            if not hunks and header.kind == "modify" and not mode_change:
                self.refuse("the diff of a file without a change", number)
            names = names or [self.checked(number, common_name, header.names[len(b"diff --git "):], self.strip)]
            paths = {self.target(name, number) for name in names}
            if len(paths) > 1:
                self.refuse("names two different files without a rename", number)
            old = new = paths.pop()
        before = header.modes.get(b"old mode", header.modes.get(b"deleted file mode"))
        after = header.modes.get(b"new mode", header.modes.get(b"new file mode"))
        return FilePatch(
            number, header.kind, old, new, hunks, before, after, mode_change, header.ids[0], header.ids[1]
        )

    def git_header(self) -> _Header:
        """Read ``diff --git`` and the extended header lines that follow it."""
        header = _Header(self.text())
        self.at += 1
        kinds = {b"new file mode": "create", b"deleted file mode": "delete"}
        while self.at < len(self.lines):
            line, number = self.text(), self.at + 1
            mode = re.match(rb"^(old mode|new mode|new file mode|deleted file mode) ([0-7]+)$", line)
            moved = re.match(rb"^(rename|copy) (from|to) (.+)$", line)
            index = _INDEX.match(line)
            self.refuse_binary(line, number)
            if mode:
                header.modes[mode.group(1)] = self.mode(mode.group(2), number)
                header.kind = kinds.get(mode.group(1), header.kind)
            elif moved:
                header.kind = moved.group(1).decode("ascii")
                if moved.group(2) == b"from":
                    header.old = moved.group(3)
                else:
                    header.new = moved.group(3)
            elif index:
                header.ids = (self.identifier(index.group(1)), self.identifier(index.group(2)))
                if index.group(3):
                    self.mode(index.group(3), number)
            elif not line.startswith((b"similarity index ", b"dissimilarity index ")):
                break
            self.at += 1
        return header

    @staticmethod
    def identifier(digits: bytes) -> str | None:
        """A blob id, or None for an abbreviation too short to tell files apart."""
        return digits.decode("ascii") if len(digits) >= 7 else None

    def mode(self, digits: bytes, number: int) -> bool:
        """Whether a git file mode is that of an executable file; links and submodules are refused."""
        kind, value = int(digits, 8) & 0o170000, int(digits, 8)
        if kind == 0o120000:
            self.refuse("changes a symbolic link", number, "Make the link in a build step.")
        if kind == 0o160000:
            self.refuse("changes a submodule", number, "Pin the submodule in the source instead.")
        if kind != 0o100000:
            self.refuse("file mode %s is not that of a regular file" % digits.decode("ascii"), number)
        return bool(value & 0o111)

    # -- names ---------------------------------------------------------------------------------------------------

    def text(self) -> bytes:
        """The line at the cursor without its newline; a carriage return there means a converted patch file."""
        line = self.peek().rstrip(b"\n")
        if line.endswith(b"\r"):
            self.refuse(
                "the header ends in a carriage return: the patch file was converted to DOS line ends",
                self.at + 1,
                "Fetch the patch again without conversion (git: core.autocrlf, or '*.patch -text' in .gitattributes).",
            )
        return line

    def header_names(self) -> tuple[tuple[bytes | None, bool | None], tuple[bytes | None, bool | None]]:
        """The two names of ``---`` and ``+++`` with what their times say (see ``patch_names.header_name``)."""
        found = []
        for _side in range(2):
            found.append(self.checked(self.at + 1, header_name, self.text()[4:]))
            self.at += 1
        return found[0], found[1]

    def target(self, name: bytes | None, number: int) -> bytes:
        """The path below the tree that a name of ``---``, ``+++`` or ``diff --git`` leads to."""
        return self.checked(number, inside, name or b"", self.strip)

    def path(self, text: bytes, strip: int, number: int) -> bytes:
        """The path below the tree that a name in an extended header leads to, quoted or not."""
        name = self.checked(number, unquote, text)[0] if text.startswith(b'"') else text
        return self.checked(number, inside, name, strip)

    def checked(self, number: int, function: Callable, *arguments: object) -> Any:
        """Call a function on names; what it does not accept is refused at this line."""
        try:
            return function(*arguments)
        except BadName as error:
            self.refuse(str(error), number, error.remedy)

    # -- hunks ---------------------------------------------------------------------------------------------------

    def hunks(self) -> tuple[Hunk, ...]:
        found: list[Hunk] = []
        while self.peek().startswith(b"@@ "):
            found.append(self.hunk())
        return tuple(found)

    def hunk(self) -> Hunk:
        number = self.at + 1
        match = _HUNK.match(self.peek())
        if not match:
            self.refuse("a malformed hunk header", number)
        first, old_count, _new_first, new_count = (int(digits or b"1") for digits in match.groups())
        if old_count and not first:
            self.refuse("a malformed hunk header: line 0", number)
        self.at += 1
        old: list[bytes] = []
        new: list[bytes] = []
        marks = b""
        while len(old) < old_count or len(new) < new_count:
            line = self.peek()
            # Mailers drop the blank of an empty context line; GNU patch and git read it the same way.
            line = b" \n" if line == b"\n" else line
            mark = line[:1]
            if mark == b"\\" and marks:
                self.no_newline(marks[-1:], old, new, number)
                continue
            if mark not in (b" ", b"-", b"+"):
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
        prefix = len(marks) - len(marks.lstrip(b" "))
        suffix = len(marks) - len(marks.rstrip(b" "))
        if prefix == len(marks):
            self.refuse("a hunk that changes nothing", number)
        return Hunk(number, first + (not old_count), tuple(old), tuple(new), prefix, suffix)

    def no_newline(self, mark: bytes, old: list[bytes], new: list[bytes], number: int) -> None:
        """The note that the line before it ends without a newline."""
        for side, marks in ((old, b" -"), (new, b" +")):
            if mark in marks:
                if not side[-1].endswith(b"\n"):
                    self.refuse("two notes about one missing newline", number)
                side[-1] = side[-1][:-1]
        self.at += 1

    def check_hunk_end(self, number: int, counts_met: bool) -> None:
        """A line that looks like one more line of the hunk means that the counts are wrong."""
        line = self.peek()
        signature = line.rstrip(b" \r\n") == b"--"
        header = line.startswith(b"--- ") and self.peek(1).startswith(b"+++ ")
        if not counts_met or (line[:1] in (b" ", b"+", b"-") and not signature and not header):
            self.refuse("the hunk has more lines than its header says", number)

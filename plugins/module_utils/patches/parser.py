# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse patch files: unified diffs, plain or in git's dialect. Nothing is applied here.

What is understood follows the GNU diffutils manual ("Detailed Description of Unified Format") and git's
diff-generate-patch documentation (extended headers, quoted names). Everything that a build must not guess about is
refused with the patch's name and line: binary hunks, context diffs, combined diffs, hunks whose counts do not add up,
targets outside the tree.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Callable

from .diff_model import FilePatch, Hunk, Patch, split_lines
from .header_paths import (
    BadName,
    display,
    git_name,
    parse_header_name,
    strip_path,
    unquote,
)
from .hunk_parser import HUNK_HEADER, HunkParser

PRISTINE_HEADER = b"Torchstack-Pristine:"

_INDEX = re.compile(rb"^index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
_BINARY = re.compile(rb"^Binary files .* differ\s*$")


def parse_patch(content: bytes, name: bytes, strip: int = 1) -> Patch:
    """Parse a patch file, with ``strip`` as for ``patch -p``; errors say by ``patch`` and ``line`` what is refused."""
    return _Parser(content, name, strip).parse()


class _Header:
    """Collect git's extended header lines of one file."""

    def __init__(self, names: bytes) -> None:
        self.names = names
        self.kind = "modify"
        self.moved: dict[bytes, bytes] = {}
        self.modes: dict[bytes, bool] = {}
        self.ids: tuple[str | None, str | None] = (None, None)


class _Parser(HunkParser):
    """Parse the lines of one patch file."""

    def __init__(self, content: bytes, name: bytes, strip: int) -> None:
        super().__init__(split_lines(content), name)
        self.strip = strip
        self.pristine: list[tuple[str, bytes, int]] = []
        self.sha256 = hashlib.sha256(content).hexdigest()

    def parse(self) -> Patch:
        """Parse the whole file."""
        files: list[FilePatch] = []
        while self.at < len(self.lines):
            section = self.section()
            if section is not None:
                files.append(section)
        if not files:
            self.refuse("the file holds no unified diff", 1, "Remove it from the series, or make it with git diff.")
        return Patch(self.name, self.sha256, tuple(self.named(files)), tuple(self.notes))

    def section(self) -> FilePatch | None:
        """Read prose, or the diff of one file when one begins here."""
        line = self.peek()
        if line.startswith(b"diff --git "):
            return self.git_section()
        number = self.at + 1
        if line.startswith(b"--- ") and self.peek(1).startswith(b"+++ "):
            if self.peek(2).startswith(b"@@ "):
                return self.plain_section()
            self.note("the names of a file without a hunk are taken for prose", number)
        if HUNK_HEADER.match(line):
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
        """Refuse a line that begins a binary difference."""
        if line.startswith(b"GIT binary patch") or _BINARY.match(line):
            self.refuse("a binary difference", number, "Ship that file another way.")

    def pristine_header(self, line: bytes, number: int) -> None:
        """Read a header line of our own, which names a pristine blob."""
        words = line[len(PRISTINE_HEADER):].strip().split(None, 1)
        if len(words) != 2 or not re.match(rb"^(?:[0-9a-f]{7,40}|[0-9a-f]{64})$", words[0]):
            self.refuse("expected '%s <git blob id> <path>'" % PRISTINE_HEADER.decode("ascii"), number)
        self.pristine.append((words[0].decode("ascii"), self.path(words[1], 0, number), number))

    def named(self, files: list[FilePatch]) -> list[FilePatch]:
        """Add the ids of our own header lines to the files."""
        for identifier, path, number in self.pristine:
            touched = [index for index, section in enumerate(files) if path in section.paths]
            if not touched:
                self.refuse("names %s, which the patch does not touch" % display(path), number)
            section = files[touched[0]]
            known = section.old_id or identifier
            if not (known.startswith(identifier) or identifier.startswith(known)):
                self.refuse(
                    "contradicts the index line of %s" % display(path), number,
                    "Remove the index line of that file from the patch, or correct the blob that is named here.")
            files[touched[0]] = section._replace(old_id=max(known, identifier, key=len))
        return files

    def plain_section(self) -> FilePatch:
        """Read the diff of one file in the plain dialect."""
        number = self.at + 1
        (old, old_epoch), (new, new_epoch) = self.header_names()
        hunks = self.hunks()
        if old is None and new is None:
            self.refuse("both names are /dev/null", number)
        ranges = self.lines[hunks[0].line - 1]
        # A file that comes or goes is one hunk. Without a time the two meanings of an empty old side cannot be told
        # apart; a new file is the usual one.
        whole, kind = len(hunks) == 1, "modify"
        if old is None or (whole and ranges.startswith(b"@@ -0") and old_epoch is not False):
            kind = "create"
            old = new = old if new is None else new
        elif new is None or (whole and b" +0" in ranges[:ranges.index(b"@@", 2)] and new_epoch is True):
            kind, new = "delete", old
        return FilePatch(number, kind, self.target(old, number), self.target(new, number), hunks)

    def git_section(self) -> FilePatch:
        """Read the diff of one file in git's dialect."""
        number = self.at + 1
        header = self.git_header()
        names: list[bytes] = []
        hunks: tuple[Hunk, ...] = ()
        if self.peek().startswith(b"--- ") and self.peek(1).startswith(b"+++ "):
            (old, _epoch), (new, _epoch) = self.header_names()
            hunks = self.hunks()
            if not hunks:
                self.refuse("a file header without a hunk", number)
            if header.kind == "modify" and (old is None or new is None):
                header.kind = "create" if old is None else "delete"
            names = [name for name in (old, new) if name is not None]
        return self.git_file(header, names, hunks, number)

    def git_file(self, header: _Header, names: list[bytes], hunks: tuple[Hunk, ...], number: int) -> FilePatch:
        """Join the extended header and the body of one file in git's dialect."""
        mode_change = b"old mode" in header.modes and b"new mode" in header.modes
        if header.kind in ("rename", "copy"):
            if len(header.moved) != 2:
                self.refuse("a %s with only one of its two names" % header.kind, number)
            # Git writes these names without the a/ and b/ that the other header lines have.
            less = max(self.strip - 1, 0)
            old, new = (self.path(header.moved[side], less, number) for side in (b"from", b"to"))
        else:
            if not hunks and header.kind == "modify" and not mode_change:
                self.refuse("the diff of a file without a change", number)
            names = names or [self.checked(number, git_name, header.names[len(b"diff --git "):], self.strip)]
            paths = {self.target(name, number) for name in names}
            if len(paths) > 1:
                self.refuse("names two different files without a rename", number)
            old = new = paths.pop()
        before = header.modes.get(b"old mode", header.modes.get(b"deleted file mode"))
        after = header.modes.get(b"new mode", header.modes.get(b"new file mode"))
        return FilePatch(number, header.kind, old, new, hunks, before, after, mode_change, *header.ids)

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
                header.moved[moved.group(2)] = moved.group(3)
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
        """Decode a blob id; None for an abbreviation too short to tell files apart."""
        return digits.decode("ascii") if len(digits) >= 7 else None

    def mode(self, digits: bytes, number: int) -> bool:
        """Tell whether a git file mode is that of an executable file; links and submodules are refused."""
        kind, value = int(digits, 8) & 0o170000, int(digits, 8)
        if kind == 0o120000:
            self.refuse("changes a symbolic link", number, "Make the link in a build step.")
        if kind == 0o160000:
            self.refuse("changes a submodule", number, "Pin the submodule in the source instead.")
        if kind != 0o100000:
            self.refuse("file mode %s is not that of a regular file" % digits.decode("ascii"), number)
        return bool(value & 0o111)

    def header_names(self) -> tuple[tuple[bytes | None, bool | None], tuple[bytes | None, bool | None]]:
        """Read the names of ``---`` and ``+++`` with what their times say (:func:`parse_header_name`)."""
        old = self.checked(self.at + 1, parse_header_name, self.text()[4:])
        self.at += 1
        new = self.checked(self.at + 1, parse_header_name, self.text()[4:])
        self.at += 1
        return old, new

    def target(self, name: bytes | None, number: int) -> bytes:
        """Return the path below the tree of a name of ``---``, ``+++`` or ``diff --git``."""
        return self.checked(number, strip_path, name or b"", self.strip)

    def path(self, text: bytes, strip: int, number: int) -> bytes:
        """Return the path below the tree of a name in an extended header, quoted or not."""
        name = self.checked(number, unquote, text)[0] if text.startswith(b'"') else text
        return self.checked(number, strip_path, name, strip)

    def checked(self, number: int, function: Callable, *arguments: object) -> Any:
        """Call a function on names; what it does not accept is refused at this line."""
        try:
            return function(*arguments)
        except BadName as error:
            self.refuse(str(error), number, error.remedy)

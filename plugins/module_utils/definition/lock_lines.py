# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read a lock line by line, and name its lines for whoever corrects them. Pure."""

from __future__ import annotations

import re
from typing import Iterator, Mapping, NamedTuple

_OPTION = re.compile(r"\s(--?[a-z][a-z-]*)")
_HASH = "--hash=sha256:"
_USER = re.compile(r"//[^/@\s]+@")

FOREIGN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(-i|-f|--index-url|--extra-index-url|--find-links|--no-index|--trusted-host)\b"),
     "says where packages come from, which is for pip's configuration; remove the line"),
    (re.compile(r"(-r|-c|--requirement|--constraint)\b"),
     "reads another file; write here what is in it, each requirement with its hashes"),
    (re.compile(r"(-e|--editable)\b"),
     "installs a tree that may change; make it an entry of packages, with repository and commit"),
    (re.compile(r"-"), "is an option of pip, and a lock has nothing but requirements; remove the line"),
    (re.compile(r"\S+\s*@|\S*://|\.{0,2}/"),
     "is taken from an address or a directory; make it an entry of packages, with archive and sha256"),
)
"""What a lock must not have, as lines begin, and the end of a sentence that says so."""


class Places(NamedTuple):
    """Where the data of a release file, and its locks, are written."""

    files: Mapping[str, str] = {}
    """the names of the files that locks were read from, by the dotted paths of their keys"""
    lines: Mapping[str, int] = {}
    """of each key and element, by its dotted path, in the file that it is in"""
    parts: Mapping[str, str] = {}
    """the names of the files that have some of the keys at the top, by these; all others are in the release file"""

    def of(self, path: str, text: str, line: int) -> str:
        """Name a line of a lock, from 1, in brackets behind a blank; empty where its place is not known."""
        if path in self.files:
            return " (%s, line %d)" % (self.files[path], line)
        # The text of a block begins in the line below its key.
        begin = self.lines.get(path, 0) if "\n" in text else 0
        return self._named(path, begin + line) if begin else ""

    def of_key(self, path: str) -> str:
        """Name the line of a key or element, likewise."""
        return self._named(path, self.lines[path]) if path in self.lines else ""

    def _named(self, path: str, line: int) -> str:
        part = self.parts.get(self.root(path))
        return " (%sline %d)" % (part + ", " if part else "", line)

    @staticmethod
    def root(path: str) -> str:
        """Return the key at the top that a dotted path begins with."""
        return re.split(r"[.\[]", path, maxsplit=1)[0]


NOWHERE = Places()


def logical(lock: str) -> Iterator[tuple[int, str]]:
    """Yield the lines as pip joins them, without comments, with the number of the first of each."""
    held, begin = "", 0
    for number, line in enumerate(lock.splitlines(), 1):
        begin = begin or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        text = re.sub(r"(^|\s)#.*", "", held + line).strip()
        if text:
            yield begin, text
        held, begin = "", 0
    if held.strip():
        yield begin, held.strip()


def line_of(lock: str, name: str, version: str = "") -> int:
    """Find the line in which a requirement begins, its name as written; 1 where there is none."""
    wanted = re.compile(r"%s(\[[^\]]*\])?\s*==\s*%s" % (re.escape(name), re.escape(version)))
    return next((number for number, text in logical(lock) if wanted.match(text)), 1)


def cut_off(lock: str) -> str:
    """Return what a lock that ends in the middle of a requirement ends in; empty for one that does not."""
    last = [text for _number, text in logical(lock)][-1:]
    word = "".join(last).rpartition(" ")[2]
    short = not lock.endswith("\n") and (
        (word.startswith("-") and _HASH.startswith(word)) or re.fullmatch(_HASH + "[0-9a-f]{0,63}", word))
    continued = lock.rstrip().endswith("\\")
    return last[0].split()[0] if last and (continued or short) else ""


def foreign(text: str) -> str:
    """Say what a line is that is no requirement with ``==`` and hashes, as the end of a sentence."""
    shown = _USER.sub("//***@", text)[:80]
    for begins, what in FOREIGN:
        if begins.match(text):
            return "'%s' %s" % (shown, what)
    further = [word for word in _OPTION.findall(text) if word != "--hash"]
    if further and re.match(r"[^\s=]+==[^\s]", text):
        return "'%s' has the option %s besides its hashes; remove it" % (text.split()[0][:80], further[0])
    return "'%s' is not pinned; write name==version --hash=sha256:..." % shown

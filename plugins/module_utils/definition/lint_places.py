# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the file and the line that a sentence about data speaks of. Pure.

The sentences name what they are about as it is written: in quotes, or as a dotted path.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

_LINE = re.compile(r" \((?:[^()\s]+\.yml, )?line (\d+)\)")
_QUOTED = re.compile(r"'([^' ]+)'")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\[\d+\])?(?:\.[A-Za-z_][\w-]*(?:\[\d+\])?)+")
_CALLED = re.compile(r"(?:[Ss]etting|Package) '?([\w+-]+(?:\.[\w+-]+)*)")
_WORD = re.compile(r"[A-Za-z_][\w-]*")


class Problem(NamedTuple):
    """One thing that is wrong."""

    file: str
    line: int
    """from 1; 0 where it is not known"""
    path: str
    """of the key; empty where the sentence names none"""
    message: str

    @property
    def text(self) -> str:
        """Return the problem as compilers write theirs."""
        place = "%s:%d" % (self.file, self.line) if self.line else self.file
        return "%s: %s" % (place, self.message) if place else self.message


class Places(NamedTuple):
    """Where data are written."""

    lines: Mapping[str, int]
    """by the path of the key or element"""
    files: Mapping[str, str]
    """by the first key of the path"""
    file: str
    """of all others"""
    names: Mapping[str, str]
    """the path of what sentences call by its name, such as a package"""


def located(sentences: Iterable[str], places: Places) -> list[Problem]:
    """Say where each of the sentences belongs; one that names nothing known belongs to the file as a whole."""
    return [_located(sentence, places) for sentence in sentences]


def _located(sentence: str, places: Places) -> Problem:
    path, known = "", ""
    for path in _named(sentence, places):
        known = _nearest(path, places.lines)
        if known or _root(path) in places.files:
            break
    said = _LINE.search(sentence)
    line = int(said.group(1)) if said else places.lines.get(known, 0)
    message = _LINE.sub("", sentence, count=1) if said and len(_LINE.findall(sentence)) == 1 else sentence
    if known:
        line, path = (line, path) if said else _deeper(sentence, path, known, places.lines)
    return Problem(places.files.get(_root(path), places.file), line, path, message)


def _named(sentence: str, places: Places) -> Iterator[str]:
    """Yield what may be paths, the likeliest first."""
    yield from (places.names[name] for name in _CALLED.findall(sentence) if name in places.names)
    # Not what is proposed instead.
    quoted = _QUOTED.findall(re.split("[Dd]id you mean", sentence)[0])
    yield from quoted
    yield from _DOTTED.findall(sentence)
    # Of a word, only names of variables are no words of the language.
    known = {*places.lines, *places.files}
    yield from (word for word in _WORD.findall(sentence) if "_" in word and word in known)
    yield from quoted[:1]


def _nearest(path: str, lines: Mapping[str, int]) -> str:
    """Return the longest beginning of a path that is written somewhere; empty where none is."""
    while path and path not in lines:
        shorter = re.sub(r"(?:\.[^.\[\]]*|\[\d+\])\Z", "", path)
        path = "" if shorter == path else shorter
    return path


def _deeper(sentence: str, path: str, known: str, lines: Mapping[str, int]) -> tuple[int, str]:
    """Return the line and the path of a key below the known one that the sentence names as well."""
    if path == known:
        for word in _WORD.findall(sentence):
            below = [known + "." + word]
            if word.isupper() and "_" in word:
                below += [other for other in lines if other.startswith(known + ".") and other.endswith("." + word)]
            for other in below:
                if other in lines:
                    return lines[other], other
    return lines[known], path


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def names_in(data: Any, path: str) -> dict[str, str]:
    """Return the paths of the entries of a list, by their names, and of those that have none by their place from 1."""
    entries = data if isinstance(data, (list, tuple)) else []
    return {
        str((entry.get("name") if isinstance(entry, Mapping) else None) or number + 1): "%s[%d]" % (path, number)
        for number, entry in enumerate(entries)
    }

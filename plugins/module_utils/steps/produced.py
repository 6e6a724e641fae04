# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Examine what a step has produced: each file's sha256, and whether it is bound to its place.

The digest knows neither times nor the directory of the release, so that two releases can have the same result.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from typing import Any, Callable, Iterator, NamedTuple

from ..core.canonical import digest_of
from ..core.digests import sha256_of
from ..elf.sections import LOADED, MAGIC, sections
from .own_place import OwnPlace

MAX_NAMED = 3
"""Files that a sentence names; there may be thousands."""

_BLOCK = 4 << 20
_ARCHIVES = (".whl", ".zip")
_SOURCE = re.compile(rb"[^\0\n\"' ]*?\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|inl|inc|ipp|tcc|pyx|S)(?![A-Za-z0-9_])")
"""The rest of a path of a source file: what ``__FILE__`` leaves in a program is only ever printed."""

Tick = Callable[[], None]


class Produced(NamedTuple):
    """What is recorded of a step's result."""

    digest: str
    files: list[dict[str, Any]]
    """``path``, then ``link``, or ``sha256``, ``mode`` and ``size``"""
    bound: list[str]
    """why it is of no use elsewhere, the beginning of each sentence; empty where it is"""

    def record(self) -> dict[str, Any]:
        """Return the record for the step's directory."""
        return {"digest": self.digest, "files": self.files, "bound": self.bound}


def examine(paths: list[str], place: OwnPlace, needles: list[bytes], tick: Tick) -> Produced:
    """Read all files and directories that a step has produced; ``needles`` bind a file to its place.

    ``tick`` is called between blocks, for a heartbeat. OSError: one of them cannot be read.
    """
    found: list[dict[str, Any]] = []
    bound: list[str] = []
    for top in paths:
        for path in _files(top):
            entry: dict[str, Any] = {"path": place.inside(path)}
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                entry["link"] = os.readlink(path)
                if any(needle in os.fsencode(entry["link"]) for needle in needles):
                    bound.append("%s is a link into this release" % entry["path"])
            else:
                mode = "%04o" % stat.S_IMODE(status.st_mode)
                entry.update(mode=mode, sha256=sha256_of(path, tick), size=status.st_size)
                if needles:
                    bound += ["%s has the release's directory in %s" % (entry["path"], where)
                              for where in binding(path, needles, tick)]
            found.append(entry)
    found.sort(key=lambda entry: str(entry["path"]))
    return Produced(listing_digest(found), found, bound)


def listing_digest(files: list[dict[str, Any]]) -> str:
    """Compute the digest of a result: names, contents, and whether the owner may run a file."""
    return digest_of({"produced": [
        [entry["path"], entry.get("link", ""), entry.get("sha256", ""), int(entry.get("mode", "0"), 8) & 0o100]
        for entry in files
    ]})


def _files(top: str) -> Iterator[str]:
    """Find a file or link itself, or all below a directory."""
    if os.path.islink(top) or not os.path.isdir(top):
        yield top
        return
    for directory, names, files in os.walk(top, onerror=_refuse):
        linked = [name for name in names if os.path.islink(os.path.join(directory, name))]
        for name in sorted(files + linked):
            path = os.path.join(directory, name)
            if name in linked or stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                yield path


def _refuse(error: OSError) -> None:
    raise error


def binding(path: str, needles: list[bytes], tick: Tick) -> list[str]:
    """Find where a file, or a member of a wheel, names its place.

    Paths of source files that it was compiled from do not count, nor an object's sections that are not loaded.
    """
    if path.endswith(_ARCHIVES) and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found = []
            for member in archive.infolist():
                tick()
                content = b"" if member.is_dir() else archive.read(member)
                found += ["%s, %s" % (member.filename, where) for where in _named(content, needles)]
            return found
    with open(path, "rb") as stream:
        return _named(_content(stream, needles, tick), needles)


def _content(stream: io.BufferedReader, needles: list[bytes], tick: Tick) -> bytes:
    """Return a file's content where it names its place at all, else nothing: most are large."""
    longest, rest, kept = max(len(needle) for needle in needles), b"", False
    for block in iter(lambda: stream.read(_BLOCK), b""):
        tick()
        kept = kept or any(needle in rest + block for needle in needles)
        rest = block[-longest:]
    stream.seek(0)
    return stream.read() if kept else b""


def _named(content: bytes, needles: list[bytes]) -> list[str]:
    if not any(needle in content for needle in needles):
        return []
    if content[:4] != MAGIC:
        return ["its text"]
    try:
        parts = [(section.name.decode("ascii", "replace"), section.content)
                 for section in sections(content) if section.flags & LOADED]
    except ValueError:
        return ["its content"]
    # A search path, a name of a library, is in .dynstr, where a file of source code could only be by chance.
    return ["its section %s" % name for name, part in parts if any(_opened(part, needle) for needle in needles)]


def _opened(part: bytes, needle: bytes) -> bool:
    """Tell whether some occurrence is not the path of a source file."""
    position = part.find(needle)
    while position >= 0:
        if not _SOURCE.match(part, position + len(needle)):
            return True
        position = part.find(needle, position + 1)
    return False


def unshared(bound: list[str]) -> str:
    """Say why nobody else can take it over, as one sentence; empty where somebody can."""
    if not bound:
        return ""
    more = " and %d more" % (len(bound) - MAX_NAMED) if len(bound) > MAX_NAMED else ""
    return "not kept for other releases: %s%s" % ("; ".join(bound[:MAX_NAMED]), more)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the dynamic loader looks for a name, and what it makes of the file that it finds there.

A search path is looked up often and the file system seldom: each directory is listed once, each file read once. The
sources of the rules are ``open_path``, ``open_verify`` and ``fillin_rpath`` in glibc's ``elf/dl-load.c``.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Mapping, NamedTuple

from .glibc import System
from .reader import (
    ET_DYN,
    ET_EXEC,
    MAGIC,
    OPEN_FILE,
    ElfError,
    ElfObject,
    Identity,
    identify,
    read_elf,
)
from .resolution import Searched

NO_DIRECTORY = "no such directory"

MAX_PASSED = 256
"""Directories of one search that are reported: a hostile object has tens of thousands of them, and as many names."""

_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_OS_ABIS = (0, 3)  # System V and GNU
_HEADER_SIZE = {32: 52, 64: 64}
_TOKEN = re.compile(rb"\$(?:(ORIGIN|PLATFORM|LIB)(?![A-Za-z0-9_])|\{(ORIGIN|PLATFORM|LIB)\})")


class Candidate(NamedTuple):
    """What the loader makes of one path.

    Attributes:
        elf: the object, when it can be taken.
        identity: device and inode of what lies there.
        skipped: why the search goes on, "" when there is nothing of that name.
        problem: why the loader gives up here, in its own words where it has some.
        stops: the rest of this search path is not looked at (the file system failed in an unexpected way).
    """

    elf: ElfObject | None = None
    identity: tuple[int, int] | None = None
    skipped: str = ""
    problem: str = ""
    stops: bool = False


class Hit(NamedTuple):
    """The end of a search: a path with its candidate, or neither, and the directories passed on the way."""

    path: bytes | None
    candidate: Candidate
    passed: tuple[tuple[bytes, str], ...]


_NOTHING = Candidate()


class Files:
    """The file system as one loader sees it; everything is looked at once.

    Args:
        system: the loader.
        known: facts of objects that somebody has read already.
    """

    def __init__(self, system: System, known: Mapping[Identity, ElfObject] | None = None) -> None:
        self.system = system
        self.known: Mapping[Identity, ElfObject] = known or {}
        self._candidates: dict[bytes, Candidate] = {}
        self._objects: dict[tuple[int, int], Candidate] = {}
        self._names: dict[bytes, frozenset[bytes] | None] = {}
        self._places: dict[bytes, tuple[tuple[bytes, frozenset[bytes] | None], ...]] = {}
        self._paths: dict[tuple[bytes, ...], SearchPath] = {}
        self._rows: dict[Searched, Searched] = {}

    def candidate(self, path: bytes) -> Candidate:
        """What the loader makes of a path."""
        found = self._candidates.get(path)
        if found is None:
            found = self._candidates[path] = self._look(path)
        return found

    def search_path(self, directories: tuple[bytes, ...]) -> SearchPath:
        """The one search path over these directories, each "" or with a slash at its end."""
        found = self._paths.get(directories)
        if found is None:
            found = self._paths[directories] = SearchPath(self, directories)
        return found

    def row(self, rule: str, directory: bytes, skipped: str) -> Searched:
        """The one record of a directory that was searched, which thousands of edges share."""
        key = Searched(rule, directory, skipped)
        return self._rows.setdefault(key, key)

    def places(self, directory: bytes) -> tuple[tuple[bytes, frozenset[bytes] | None], ...]:
        """The existing sub-directories in which a loader looks, in order, each with its names (None: not listable)."""
        found = self._places.get(directory)
        if found is None:
            names = self._list(directory)
            found = ()
            if names is None or names:
                found = tuple(
                    (directory + part, self._list(directory + part))
                    for part in self.system.subdirectories
                    if not part or names is None or part.partition(b"/")[0] in names
                )
            self._places[directory] = found
        return found

    def _list(self, directory: bytes) -> frozenset[bytes] | None:
        """Names in a directory; none where it does not exist, None where it cannot be listed.

        The loader lists nothing: what an entry of a directory is that cannot be listed, opening the entry tells.
        """
        if directory not in self._names:
            names: frozenset[bytes] | None
            try:
                names = frozenset(os.listdir(directory or b"."))
            except OSError as error:
                names = frozenset() if error.errno in _NO_DIRECTORY else None
            self._names[directory] = names
        return self._names[directory]

    def _look(self, path: bytes) -> Candidate:
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", errno.ENOENT)
            absent = code in (errno.ENOENT, errno.ENOTDIR)
            return Candidate(skipped="" if absent else _reason(code), stops=code != errno.EACCES and not absent)
        identity = (status.st_dev, status.st_ino)
        found = self._objects.get(identity)
        if found is None:
            elf = self.known.get(identify(status))
            found = self._read(path, identity, status.st_size) if elf is None else self._judge(elf, identity)
            self._objects[identity] = found
        return found

    def _read(self, path: bytes, identity: tuple[int, int], size: int) -> Candidate:
        system = self.system
        try:
            elf = read_elf(path)
        except ElfError as error:
            # The loader looks at the header first, and passes over a broken file for another machine, too.
            start = _first_bytes(path)
            if len(start) < _HEADER_SIZE[system.bits]:
                return Candidate(identity=identity, problem="file too short")
            order = "little" if start[5] == 1 else "big"
            if start[4] * 32 != system.bits:
                return Candidate(identity=identity, skipped="wrong class")
            if int.from_bytes(start[18:20], order) != system.machine:  # type: ignore[arg-type] # "little" or "big"
                return Candidate(identity=identity, skipped="wrong machine")
            return Candidate(identity=identity, problem=str(error))
        except OSError as error:
            if error.errno == errno.EACCES:
                return Candidate(identity=identity, skipped=_reason(error.errno))
            if error.errno == errno.EISDIR:
                return Candidate(identity=identity, problem="cannot read file data: Is a directory")
            return Candidate(identity=identity, problem="cannot read file data: %s" % error.strerror)
        if elf is None:
            short = size < _HEADER_SIZE[system.bits]
            return Candidate(identity=identity, problem="file too short" if short else "invalid ELF header")
        return self._judge(elf, identity)

    def _judge(self, elf: ElfObject, identity: tuple[int, int]) -> Candidate:
        """The loader's checks, in its order."""
        system = self.system
        if elf.bits != system.bits:
            return Candidate(identity=identity, skipped="wrong class")
        problem = ""
        if elf.little_endian != system.little_endian:
            problem = "ELF file data encoding not %s-endian" % ("little" if system.little_endian else "big")
        elif elf.os_abi not in _OS_ABIS:
            problem = "ELF file OS ABI invalid"
        elif elf.abi_version and elf.os_abi == 0:
            problem = "ELF file ABI version invalid"
        elif elf.machine != system.machine:
            return Candidate(identity=identity, skipped="wrong machine")
        elif elf.kind not in (ET_DYN, ET_EXEC):
            problem = "only ET_DYN and ET_EXEC can be loaded"
        elif system.glibc < (2, 36) and elf.minimum_kernel and elf.minimum_kernel > system.kernel > (0, 0, 0):
            return Candidate(identity=identity, skipped="wants Linux %d.%d.%d" % elf.minimum_kernel)
        return Candidate(elf, identity, problem=problem)


class SearchPath:
    """A list of directories in which names are looked up; each answer is remembered.

    Args:
        files: the file system.
        directories: each "" (the current directory) or with a slash at its end.
    """

    def __init__(self, files: Files, directories: tuple[bytes, ...]) -> None:
        self._files = files
        self._directories = directories
        self._places: list[tuple[int, bytes, frozenset[bytes] | None]] = []
        states = []
        for number, directory in enumerate(directories):
            places = files.places(directory)
            states.append((directory, "" if places else NO_DIRECTORY))
            self._places += [(number, place, names) for place, names in places]
        self._passed = tuple(states[:MAX_PASSED])
        self._hits: dict[bytes, Hit] = {}

    def search(self, name: bytes) -> Hit:
        """The first file of a name that the loader does not pass over."""
        hit = self._hits.get(name)
        if hit is None:
            hit = self._hits[name] = self._search(name)
        return hit

    def _search(self, name: bytes) -> Hit:
        reasons: dict[int, str] = {}
        for number, place, names in self._places:
            if names is not None and name not in names:
                continue
            found = self._files.candidate(place + name)
            if found.problem or found.elf is not None:
                return Hit(place + name, found, self._passed_over(number, reasons))
            if found.skipped:
                reasons[number] = found.skipped
            if found.stops and place == self._directories[number]:
                return Hit(None, _NOTHING, self._passed_over(number + 1, reasons))
        return Hit(None, _NOTHING, self._passed_over(len(self._directories), reasons))

    def _passed_over(self, count: int, reasons: dict[int, str]) -> tuple[tuple[bytes, str], ...]:
        if not reasons:
            return self._passed[:count]
        return tuple(
            (directory, reasons.get(number, state))
            for number, (directory, state) in enumerate(self._passed[:count])
        )


def expand(text: bytes, origin: bytes, system: System) -> bytes:
    """A path with $ORIGIN, $LIB and $PLATFORM replaced, in both spellings."""
    if b"$" not in text:
        return text
    values = {b"ORIGIN": origin, b"LIB": system.lib, b"PLATFORM": system.platform}
    return _TOKEN.sub(lambda match: values[match.group(1) or match.group(2)], text)


def split_path(text: bytes, separators: bytes, origin: bytes, system: System) -> tuple[bytes, ...]:
    """The directories of an RPATH or of LD_LIBRARY_PATH, in order, each once, "" for the current directory."""
    if not text:
        return ()
    directories = []
    for element in re.split(b"[%s]" % separators, text):
        expanded = expand(element, origin, system)
        if expanded:
            expanded = (expanded.rstrip(b"/") or b"") + b"/"
        directories.append(expanded)
    return tuple(dict.fromkeys(directories))


def _first_bytes(path: bytes) -> bytes:
    try:
        with open(os.open(path, OPEN_FILE), "rb") as stream:
            start = stream.read(64)
    except OSError:
        return b""
    return start if start[:4] == MAGIC else b""


def _reason(code: int) -> str:
    return os.strerror(code).lower()

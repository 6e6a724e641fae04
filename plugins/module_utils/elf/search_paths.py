# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Search the directories of the dynamic loader, and check what is found as the loader does.

A search path is looked up often and the file system seldom: each directory is listed once, each file read once. The
sources of the rules are ``open_path``, ``open_verify`` and ``fillin_rpath`` in glibc's ``elf/dl-load.c``.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import struct
from typing import Mapping, NamedTuple

from .elf_object import ET_DYN, ET_EXEC, MAGIC, ElfObject
from .glibc import System
from .image import ElfError
from .reader import OPEN_FILE, Identity, file_identity, read_elf
from .resolution import Searched

NO_DIRECTORY = "no such directory"

_remembered = functools.lru_cache(maxsize=None)
MAX_PASSED = 256
"""Directories of one search that are reported: a hostile object has tens of thousands of them, and as many names."""

_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_OS_ABIS = (0, 3)  # System V and GNU
_HEADER_SIZE = {32: 52, 64: 64}
_TOKEN = re.compile(rb"\$(?:(ORIGIN|PLATFORM|LIB)(?![A-Za-z0-9_])|\{(ORIGIN|PLATFORM|LIB)\})")


class Candidate(NamedTuple):
    """Describe what the loader makes of one path.

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
    """Describe the end of a search: a path with its candidate, or neither, and the directories passed."""

    path: bytes | None
    candidate: Candidate
    passed: tuple[tuple[bytes, str], ...]


class Files:
    """See the file system as one loader does; everything is looked at once.

    ``known`` are facts of objects that somebody has read already.
    """

    def __init__(self, system: System, known: Mapping[Identity, ElfObject] | None = None) -> None:
        self.system = system
        self.known: Mapping[Identity, ElfObject] = known or {}
        self._objects: dict[tuple[int, int], Candidate] = {}
        self.candidate = _remembered(self._examine)
        self.search_path = _remembered(functools.partial(SearchPath, self))
        self.searched_directories = _remembered(self._list_searched)
        self.shared_record = _remembered(Searched)  # thousands of edges share one
        self._list = _remembered(_list)

    def _list_searched(self, directory: bytes) -> tuple[tuple[bytes, frozenset[bytes] | None], ...]:
        """List the sub-directories in which a loader looks, in order, with their names (None: not listable)."""
        names = self._list(directory)
        return () if names is not None and not names else tuple(
            (directory + part, self._list(directory + part))
            for part in self.system.subdirectories
            if not part or names is None or part.partition(b"/")[0] in names
        )

    def _examine(self, path: bytes) -> Candidate:
        """Tell what the loader makes of a path."""
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", errno.ENOENT)
            absent = code in (errno.ENOENT, errno.ENOTDIR)
            return Candidate(skipped="" if absent else _error_text(code), stops=code != errno.EACCES and not absent)
        identity = (status.st_dev, status.st_ino)
        found = self._objects.get(identity)
        if found is None:
            elf = self.known.get(file_identity(status))
            found = self._read(path, identity, status.st_size) if elf is None else self._check(elf, identity)
            self._objects[identity] = found
        return found

    def _read(self, path: bytes, identity: tuple[int, int], size: int) -> Candidate:
        skipped = problem = ""
        least = _HEADER_SIZE[self.system.bits]
        try:
            elf = read_elf(path)
            if elf is not None:
                return self._check(elf, identity)
            problem = "file too short" if size < least else "invalid ELF header"
        except ElfError as error:
            # The loader looks at the header first, and passes over a broken file for another machine, too.
            start = _read_start(path)
            if len(start) < least:
                problem = "file too short"
            elif start[4] * 32 != self.system.bits:
                skipped = "wrong class"
            elif struct.unpack("<H" if start[5] == 1 else ">H", start[18:20])[0] != self.system.machine:
                skipped = "wrong machine"
            else:
                problem = str(error)
        except OSError as error:
            if error.errno == errno.EACCES:
                skipped = _error_text(error.errno)
            else:
                reason = "Is a directory" if error.errno == errno.EISDIR else error.strerror
                problem = "cannot read file data: %s" % reason
        return Candidate(identity=identity, skipped=skipped, problem=problem)

    def _check(self, elf: ElfObject, identity: tuple[int, int]) -> Candidate:
        """Make the loader's checks, in its order."""
        system = self.system
        skipped = problem = ""
        if elf.bits != system.bits:
            skipped = "wrong class"
        elif elf.little_endian != system.little_endian:
            problem = "ELF file data encoding not %s-endian" % ("little" if system.little_endian else "big")
        elif elf.os_abi not in _OS_ABIS:
            problem = "ELF file OS ABI invalid"
        elif elf.abi_version and elf.os_abi == 0:
            problem = "ELF file ABI version invalid"
        elif elf.machine != system.machine:
            skipped = "wrong machine"
        elif elf.kind not in (ET_DYN, ET_EXEC):
            problem = "only ET_DYN and ET_EXEC can be loaded"
        elif system.glibc < (2, 36) and elf.minimum_kernel and elf.minimum_kernel > system.kernel > (0, 0, 0):
            skipped = "wants Linux %d.%d.%d" % elf.minimum_kernel
        return Candidate(None if skipped else elf, identity, skipped, problem)


class SearchPath:
    """Look names up in directories, each "" (the current one) or with a slash at its end; answers are remembered."""

    def __init__(self, files: Files, directories: tuple[bytes, ...]) -> None:
        self._files = files
        self._directories = directories
        self._searched_directories: list[tuple[int, bytes, frozenset[bytes] | None]] = []
        states = []
        for number, directory in enumerate(directories):
            searched_directories = files.searched_directories(directory)
            states.append((directory, "" if searched_directories else NO_DIRECTORY))
            self._searched_directories += [(number, place, names) for place, names in searched_directories]
        self._passed = tuple(states[:MAX_PASSED])
        self.search = _remembered(self._search)

    def _search(self, name: bytes) -> Hit:
        """Find the first file of a name that the loader does not pass over."""
        reasons: dict[int, str] = {}
        for number, place, names in self._searched_directories:
            if names is not None and name not in names:
                continue
            found = self._files.candidate(place + name)
            if found.problem or found.elf is not None:
                return Hit(place + name, found, self._passed_over(number, reasons))
            if found.skipped:
                reasons[number] = found.skipped
            if found.stops and place == self._directories[number]:
                return Hit(None, Candidate(), self._passed_over(number + 1, reasons))
        return Hit(None, Candidate(), self._passed_over(len(self._directories), reasons))

    def _passed_over(self, count: int, reasons: dict[int, str]) -> tuple[tuple[bytes, str], ...]:
        if not reasons:
            return self._passed[:count]
        passed = enumerate(self._passed[:count])
        return tuple((directory, reasons.get(number, state)) for number, (directory, state) in passed)


def _list(directory: bytes) -> frozenset[bytes] | None:
    """List the names in a directory; none where it does not exist, None where it cannot be listed.

    The loader lists nothing: what an entry of a directory is that cannot be listed, opening the entry tells.
    """
    try:
        return frozenset(os.listdir(directory or b"."))
    except OSError as error:
        return frozenset() if error.errno in _NO_DIRECTORY else None


def expand(text: bytes, origin: bytes, system: System) -> bytes:
    """Replace $ORIGIN, $LIB and $PLATFORM in a path, in both spellings."""
    if b"$" not in text:
        return text
    values = {b"ORIGIN": origin, b"LIB": system.lib, b"PLATFORM": system.platform}
    return _TOKEN.sub(lambda match: values[match.group(1) or match.group(2)], text)


def split_path(text: bytes, separators: bytes, origin: bytes, system: System) -> tuple[bytes, ...]:
    """Split an RPATH or LD_LIBRARY_PATH into directories, each once, "" for the current directory."""
    if not text:
        return ()
    directories = (expand(element, origin, system) for element in re.split(b"[%s]" % separators, text))
    return tuple(dict.fromkeys(directory and directory.rstrip(b"/") + b"/" for directory in directories))


def _read_start(path: bytes) -> bytes:
    try:
        with open(os.open(path, OPEN_FILE), "rb") as stream:
            start = stream.read(64)
    except OSError:
        return b""
    return start if start[:4] == MAGIC else b""


def _error_text(code: int) -> str:
    return os.strerror(code).lower()

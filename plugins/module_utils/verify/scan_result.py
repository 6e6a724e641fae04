# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Sort the files that a scan has found into its result."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from typing import NamedTuple

from ..core.errors import StackError
from ..elf.elf_object import ElfObject
from ..elf.image import ElfError
from ..elf.reader import Identity, file_identity, read_open_elf
from .library_findings import text

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_REPLACED = (errno.ENXIO, errno.ESPIPE, errno.EISDIR)
"""What opening or reading something else says that has taken the name of a file: a socket, a pipe, a directory."""

_OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What is wrong with this process or host and not with what it looks at: going on would find it of every file."""

_KINDS = {1: "a relocatable object, which is linked and not loaded", 4: "a core dump"}
_SYSTEM_V, _GNU = 0, 3
MAX_PATH = 4095  # bytes of the longest path that a program can open (PATH_MAX, which counts the NUL)


class Object(NamedTuple):
    """Describe a dynamic ELF object below a verified directory."""

    path: bytes
    facts: ElfObject


class Unchecked(NamedTuple):
    """Describe an ELF file that the loader of this machine does not load."""

    path: bytes
    why: str


class Unreadable(NamedTuple):
    """Describe what could not be looked at; ``code`` is the errno(3), 0 for a broken ELF file."""

    path: bytes
    reason: str
    code: int


class Scan:
    """Hold what lies below some directories.

    Attributes:
        files, unopened, excluded: how many regular files there are, and of them were not opened, for their names; how
            many entries were left out.
        objects: what the loader of this machine loads.
        elf_files, identities: the paths of all ELF files, broken ones included, and their devices and inodes.
        known: the facts of each object, so that nobody has to read it again.
    """

    def __init__(self) -> None:
        self.files = self.unopened = self.excluded = 0
        self.objects: list[Object] = []
        self.elf_files: list[bytes] = []
        self.identities: dict[bytes, tuple[int, int]] = {}
        self.known: dict[Identity, ElfObject] = {}
        self.not_checked: list[Unchecked] = []
        self.unreadable: list[Unreadable] = []

    def failed(self, path: bytes, error: OSError) -> None:
        """List what the system does not let us see; what is gone or replaced meanwhile is not there.

        Raises:
            StackError: the failure is this process's own.
        """
        if error.errno in _OWN_LIMITS:
            message = "Cannot look at %s: %s." % (text(path), error.strerror)
            remedy = "Raise the limit of open files (ulimit -n) or of memory, and verify again."
            raise StackError(message, "scan", remedy, os.fsdecode(path)) from error
        if error.errno not in _GONE:
            self.unreadable.append(Unreadable(path, error.strerror or str(error), error.errno or errno.EIO))

    def merge(self, other: Scan) -> None:
        """Add what another process has found in the same directories."""
        self.files += other.files
        self.unopened += other.unopened
        self.excluded += other.excluded
        self.objects += other.objects
        self.elf_files += other.elf_files
        self.identities.update(other.identities)
        self.known.update(other.known)
        self.not_checked += other.not_checked
        self.unreadable += other.unreadable
        self.sort()

    def sort(self) -> None:
        """Bring everything into the order of the paths."""
        self.objects.sort(key=lambda item: item.path)
        for found in (self.elf_files, self.not_checked, self.unreadable):
            found.sort()

    def by_name(self) -> dict[bytes, list[bytes]]:
        """Map sonames and file names to objects, to say where a library lies that nothing leads to."""
        found: dict[bytes, list[bytes]] = {}
        for item in self.objects:
            for name in dict.fromkeys((item.facts.soname, os.path.basename(item.path))):
                if name:
                    found.setdefault(name, []).append(item.path)
        return found


@dataclasses.dataclass
class ElfSorter:
    """Sort ELF files into a scan's lists."""

    result: Scan
    bits: int
    machine: int
    unopened: tuple[str, ...]

    def failed(self, path: bytes, error: OSError) -> None:
        """List a file that cannot be opened or read, unless something else has its name meanwhile."""
        if error.errno not in _REPLACED:
            self.result.failed(path, error)

    def take(self, file: int, path: bytes) -> None:
        """Look at an open file that may be ELF."""
        result = self.result
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return
        try:
            facts = read_open_elf(file, status.st_size)
            if facts is None:
                return
            result.known[file_identity(status)] = facts
            self._sort(path, facts)
        except ElfError as error:
            result.unreadable.append(Unreadable(path, str(error), 0))
        result.elf_files.append(path)
        result.identities[path] = (status.st_dev, status.st_ino)

    def _sort(self, path: bytes, facts: ElfObject) -> None:
        result, why = self.result, ""
        if facts.kind in _KINDS:
            why = _KINDS[facts.kind]
        elif facts.bits != self.bits or facts.machine != self.machine:
            why = "for another machine (%d bits, machine %d)" % (facts.bits, facts.machine)
        elif facts.os_abi not in (_SYSTEM_V, _GNU):
            why = "for another operating system (ABI %d)" % facts.os_abi
        elif not facts.dynamic:
            why = "has no dynamic section: statically linked, or debug information alone"
        if why:
            result.not_checked.append(Unchecked(path, why))
        elif len(path) > MAX_PATH:
            result.failed(path, OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)))
        else:
            result.objects.append(Object(path, facts))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell which libraries a process really has: /proc/<pid>/maps as text in, mapped ELF files out.

The format is that of proc(5): address, permissions, offset, device, inode and a name. The kernel writes a line feed in
a name as ``\\012`` and nothing else escaped, and puts `` (deleted)`` behind the name of a file that has none any more;
both can also be part of a name, so what lies on disk decides. Names are bytes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from typing import Callable, Iterable, NamedTuple, Tuple

from .elf_object import ET_DYN, ET_EXEC, ElfObject
from .image import ElfError
from .reader import read_elf

Identity = Tuple[str, str, int]
"""What tells two files apart: who says so (``stat`` or ``maps``), device and inode. Device numbers of the two are not
comparable on overlayfs and btrfs, so they are never mixed."""

_DELETED = b" (deleted)"
_NOT_FILES = (b"/memfd:", b"/SYSV", b"/dev/zero", b"/anon_hugepage", b"/drm mm object", b"/i915")
"""Begin the names of memory that has no file; the kernel always calls it deleted. libffi keeps its trampolines so."""


class MappedFile(NamedTuple):
    """Describe a file of which at least one page is mapped, as the kernel names it."""

    name: bytes
    device: str
    inode: int
    executable: bool


class Library(NamedTuple):
    """Describe a mapped program or library.

    ``path`` is what leads to it now, ``soname`` is empty where it has none, ``deleted`` says that it has no name any
    more, ``readable`` that its ELF header could be read.
    """

    path: bytes
    soname: bytes
    identity: Identity
    deleted: bool
    readable: bool

    @property
    def name(self) -> bytes:
        """Return the soname, else the name of the file: what the loader and people call it."""
        return self.soname or os.path.basename(self.path)


def parse_maps(text: bytes) -> tuple[MappedFile, ...]:
    """Parse the files in a process map, each once, in order of address.

    Anonymous memory, the stack and heap, huge pages, shared memory segments and memfds are no files. Lines that are not
    of the kernel's form, such as a last one cut short, are passed over.
    """
    found: dict[tuple[bytes, str, int], bool] = {}
    for line in text.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith(b"/") or len(fields[1]) != 4 or not fields[4].isdigit():
            continue
        name, inode = fields[5], int(fields[4])
        if inode == 0 or (name.endswith(_DELETED) and name.startswith(_NOT_FILES)):
            continue
        key = (name, fields[3].decode("ascii", "replace"), inode)
        found[key] = found.get(key, False) or fields[1][2:3] == b"x"
    return tuple(MappedFile(name, device, inode, x) for (name, device, inode), x in found.items())


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of a file that has a name."""
    return "stat", "%d:%d" % (os.major(status.st_dev), os.minor(status.st_dev)), status.st_ino


def find_file(
    file: MappedFile, look: Callable[[bytes], os.stat_result] = os.stat
) -> tuple[bytes, bool, Identity, bool]:
    """Tell where a mapped file lies now: path, whether it is deleted, identity, and whether it is a regular file."""
    seen: list[tuple[bytes, os.stat_result]] = []
    for name in dict.fromkeys((file.name.replace(b"\\012", b"\n"), file.name)):
        with contextlib.suppress(OSError):
            seen.append((name, look(name)))
    # An exact inode settles what the name means. Where overlayfs shows another one, a name that exists still does.
    seen.sort(key=lambda entry: entry[1].st_ino != file.inode)
    if seen:
        path, status = seen[0]
        return path, False, identity_of(status), stat.S_ISREG(status.st_mode)
    path, deleted, identity = _as_named(file)
    return path, deleted, identity, True


def _as_named(file: MappedFile) -> tuple[bytes, bool, Identity]:
    deleted = file.name.endswith(_DELETED)
    path = file.name.replace(b"\\012", b"\n")
    return path[: -len(_DELETED)] if deleted else path, deleted, ("maps", file.device, file.inode)


def identify(file: MappedFile, read: Callable[[bytes], ElfObject | None] = read_elf) -> Library | None:
    """Identify the program or library that a mapped file is; None for data, such as a locale archive.

    A file that cannot be read (deleted, no permission, damaged) counts as a library when code in it is mapped, and goes
    by the name of its file.
    """
    path, deleted, identity, regular = find_file(file)
    if not regular:
        return None
    with contextlib.suppress(OSError, ElfError):
        parsed = read(path) if not deleted else None
        if parsed is not None and parsed.kind in (ET_EXEC, ET_DYN):
            return Library(path, parsed.soname or b"", identity, False, True)
        if not deleted:
            return None
    return Library(path, b"", identity, deleted, False) if file.executable else None


def identify_unseen(file: MappedFile) -> Library | None:
    """Identify a mapped file whose path means nothing here, as inside of a container; None for data.

    A file of that name on this machine is another one. So it goes by its own name, and code of it has to be mapped.
    """
    path, deleted, identity = _as_named(file)
    return Library(path, b"", identity, deleted, False) if file.executable else None


def libraries(
    steps: Iterable[tuple[str, bytes]], know: Callable[[MappedFile], Library | None] | None = None
) -> list[tuple[str, Library]]:
    """Tell which step of a process brought which library.

    Args:
        steps: name of each step, and the process map behind it, in order.
        know: what tells the library that a mapped file is.

    Returns:
        Step and library, each file once, with the first step that had it; by step, then by path. The order of addresses
        differs from run to run and says nothing.
    """
    first: dict[Identity, tuple[str, Library]] = {}
    look = functools.lru_cache(maxsize=None)(know or identify)
    for step, text in steps:
        there = [library for library in map(look, parse_maps(text)) if library is not None]
        for library in sorted(there, key=lambda entry: entry.path):
            first.setdefault(library.identity, (step, library))
    return list(first.values())

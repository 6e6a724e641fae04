# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The ELF objects below some directories: found by what is in a file, not by its name or its x bit.

Links are not followed: a link to an object of the tree is another name of something that is found anyway. Nothing that
is found is ever executed or waited for.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Callable, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils import elf
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.tree import compile_globs

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_KINDS = {1: "a relocatable object, which is linked and not loaded", 4: "a core dump"}
_SYSTEM_V, _GNU = 0, 3


class Object(NamedTuple):
    """A dynamic ELF object below a verified directory."""

    path: bytes
    relative: bytes
    facts: elf.ElfObject


class Unchecked(NamedTuple):
    """An ELF file that the loader of this machine does not load."""

    path: bytes
    why: str


class Unreadable(NamedTuple):
    """Something that could not be looked at."""

    path: bytes
    reason: str
    broken: bool


class Scan:
    """What lies below some directories."""

    def __init__(self) -> None:
        self.files = 0
        self.excluded = 0
        self.objects: list[Object] = []
        self.elf_files: list[bytes] = []
        self.not_checked: list[Unchecked] = []
        self.unreadable: list[Unreadable] = []

    def failed(self, path: bytes, error: OSError) -> None:
        """List what the system does not let us see; what others removed meanwhile is not there."""
        if error.errno not in _GONE:
            self.unreadable.append(Unreadable(path, error.strerror or str(error), False))

    def by_name(self) -> dict[bytes, list[bytes]]:
        """The objects by soname and by file name, to say where a library lies that nothing leads to."""
        found: dict[bytes, list[bytes]] = {}
        for item in self.objects:
            for name in dict.fromkeys((item.facts.soname, os.path.basename(item.path))):
                if name:
                    found.setdefault(name, []).append(item.path)
        return found


def scan(
    paths: Sequence[str], exclude: Sequence[str], bits: int, machine: int, progress: Callable[[int], None] | None = None
) -> Scan:
    """Look at every regular file below some paths.

    Args:
        paths: files or directories; only these may be links themselves.
        exclude: globs relative to each path.
        bits: 32 or 64, the class of the objects to check.
        machine: the ``e_machine`` of the objects to check.
        progress: is told how many files were looked at, now and then.

    Raises:
        StackError: one of the paths does not exist or cannot be looked at.
    """
    result = Scan()
    excluded = compile_globs(exclude)
    seen: set[bytes] = set()
    for path in paths:
        top = os.path.abspath(os.fsencode(path))
        try:
            mode = os.stat(top).st_mode
            if stat.S_ISDIR(mode):
                os.scandir(top).close()
        except OSError as error:
            raise StackError(
                "Cannot look at %s: %s." % (path, error.strerror), "scan", "Correct the path.", path
            ) from error
        pending = [(top, b"")]
        if not stat.S_ISDIR(mode):
            pending = []
            _file(result, top, os.path.basename(top), bits, machine)
            result.files += 1
        while pending:
            directory, prefix = pending.pop()
            try:
                with os.scandir(directory) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                result.failed(directory, error)
                continue
            for entry in listed:
                relative = prefix + entry.name
                if excluded is not None and excluded.fullmatch(os.fsdecode(relative)):
                    result.excluded += 1
                elif entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, relative + b"/"))
                elif entry.is_file(follow_symlinks=False) and entry.path not in seen:
                    seen.add(entry.path)
                    _file(result, entry.path, relative, bits, machine)
                    result.files += 1
                    if progress is not None and not result.files % 1000:
                        progress(result.files)
    result.objects.sort(key=lambda item: item.path)
    result.elf_files.sort()
    return result


def _file(result: Scan, path: bytes, relative: bytes, bits: int, machine: int) -> None:
    """Look at one file."""
    try:
        facts = elf.read_elf(path)
    except elf.ElfError as error:
        result.elf_files.append(path)
        result.unreadable.append(Unreadable(path, str(error), True))
        return
    except OSError as error:
        result.failed(path, error)
        return
    if facts is None:
        return
    result.elf_files.append(path)
    why = ""
    if facts.kind in _KINDS:
        why = _KINDS[facts.kind]
    elif facts.bits != bits or facts.machine != machine:
        why = "for another machine (%d bits, machine %d)" % (facts.bits, facts.machine)
    elif facts.os_abi not in (_SYSTEM_V, _GNU):
        why = "for another operating system (ABI %d)" % facts.os_abi
    elif not facts.dynamic:
        why = "has no dynamic section: statically linked, or debug information alone"
    if why:
        result.not_checked.append(Unchecked(path, why))
    else:
        result.objects.append(Object(path, relative, facts))

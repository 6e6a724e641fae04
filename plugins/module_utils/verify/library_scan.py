# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The ELF objects below some directories: found by what is in a file, not by its name or its x bit.

Only what is called like source code, byte code or text is not opened: no loader is given such a name, and most files of
a Python installation are of that kind. On a shared file system each one would cost a question to the metadata server.

Links are not followed: a link to an object of the tree is another name of something that is found anyway. Nothing that
is found is ever executed or waited for.

Most of the time goes into opening each file to see how it begins. Where there is more than one processor, forked copies
of this process share the work: who has nothing left is given a directory that was not walked yet (see :mod:`crew`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import Callable, NamedTuple, Sequence, cast

from ..core.errors import StackError
from ..core.globs import compile_globs
from ..elf import reader as elf
from ..trees.process_pool import Crew, may_fork, processors
from .library_findings import text
from .library_walk import Level, Walk, close

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_REPLACED = (errno.ENXIO, errno.ESPIPE, errno.EISDIR)
"""What opening or reading something else says that has taken the name of a file: a socket, a pipe, a directory."""

_OPEN = elf.OPEN_FILE | os.O_NOFOLLOW
_FIRST = elf.MAGIC[:1]

_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What is wrong with this process or host and not with what it looks at: going on would find it of every file."""

_KINDS = {1: "a relocatable object, which is linked and not loaded", 4: "a core dump"}
_SYSTEM_V, _GNU = 0, 3

MAX_PATH = 4095
"""Bytes of the longest path that a program can open (PATH_MAX, which counts the NUL)."""

MANY = 2000
"""Opened files after which other processes join in: some ten milliseconds, and forks cost two."""

_PROGRESS = 1000
"""Files between two reports of progress."""


class Object(NamedTuple):
    """A dynamic ELF object below a verified directory."""

    path: bytes
    facts: elf.ElfObject


class Unchecked(NamedTuple):
    """An ELF file that the loader of this machine does not load."""

    path: bytes
    why: str


class Unreadable(NamedTuple):
    """Something that could not be looked at; ``code`` is the system's errno(3), 0 for a broken ELF file."""

    path: bytes
    reason: str
    code: int


class Scan:
    """What lies below some directories.

    Attributes:
        files: how many regular files there are.
        unopened: how many of them were not opened, for their names.
        excluded: how many entries were left out.
        objects: what the loader of this machine loads.
        elf_files: the paths of all ELF files, broken ones included.
        identities: device and inode of each of these.
        known: the facts of each object, so that nobody has to read it again.
        not_checked, unreadable: the other ELF files, and what could not be looked at.
    """

    def __init__(self) -> None:
        self.files = 0
        self.unopened = 0
        self.excluded = 0
        self.objects: list[Object] = []
        self.elf_files: list[bytes] = []
        self.identities: dict[bytes, tuple[int, int]] = {}
        self.known: dict[elf.Identity, elf.ElfObject] = {}
        self.not_checked: list[Unchecked] = []
        self.unreadable: list[Unreadable] = []

    def failed(self, path: bytes, error: OSError) -> None:
        """List what the system does not let us see; what others removed or replaced meanwhile is not there.

        Raises:
            StackError: the failure is this process's own.
        """
        if error.errno in _OURS:
            raise StackError(
                "Cannot look at %s: %s." % (text(path), error.strerror), "scan",
                "Raise the limit of open files (ulimit -n) or of memory, and verify again.", os.fsdecode(path),
            ) from error
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
        self.elf_files.sort()
        self.not_checked.sort()
        self.unreadable.sort()

    def by_name(self) -> dict[bytes, list[bytes]]:
        """The objects by soname and by file name, to say where a library lies that nothing leads to."""
        found: dict[bytes, list[bytes]] = {}
        for item in self.objects:
            for name in dict.fromkeys((item.facts.soname, os.path.basename(item.path))):
                if name:
                    found.setdefault(name, []).append(item.path)
        return found


def scan(
    paths: Sequence[str], exclude: Sequence[str], bits: int, machine: int,
    progress: Callable[[int], None] | None = None, unopened: Sequence[str] = (),
) -> Scan:
    """Look at every regular file below some paths.

    Args:
        paths: files or directories; only these may be links themselves.
        exclude: globs relative to each path.
        bits: 32 or 64, the class of the objects to check.
        machine: the ``e_machine`` of the objects to check.
        progress: is told how many files this process has looked at, now and then.
        unopened: endings of the names of files that are counted and not opened; one that is named itself is.

    Raises:
        StackError: one of the paths does not exist or cannot be looked at.
    """
    tops = [os.path.abspath(path) for path in paths]
    seen: set[str] | None = set() if _overlap(tops) else None
    # Below two of the paths a file may be met by two processes, and neither would know.
    size = processors() if seen is None and may_fork() else 1
    kinds = _Kinds(Scan(), bits, machine, tuple(unopened))
    share = _Share(tops, compile_globs(exclude), kinds, seen, size, progress)
    try:
        result = share.begin(paths)
        for other in share.crew.results() if share.crew is not None else []:
            if isinstance(other, StackError):
                raise other
            result.merge(other)
    except StackError as error:
        if error.failed_step == "scan":
            raise
        raise StackError(
            "Cannot look below %s: %s" % (", ".join(paths), error.message), "scan", error.remedy, paths[0]
        ) from error
    finally:
        if share.crew is not None:
            share.crew.dismiss()
    return result


class _Share:
    """What one process does of a scan."""

    def __init__(
        self, tops: Sequence[str], excluded: re.Pattern[str] | None, kinds: _Kinds, seen: set[str] | None,
        size: int, progress: Callable[[int], None] | None,
    ) -> None:
        self.tops = tops
        self.excluded = excluded
        self.kinds = kinds
        self.seen = seen
        self.size = size
        self.crew: Crew | None = None
        self.progress = progress

    def begin(self, paths: Sequence[str]) -> Scan:
        """Look at all paths, and then at what others hand over.

        Raises:
            StackError: one of the paths does not exist or cannot be looked at; or see :meth:`Scan.failed`.
        """
        for number, (path, top) in enumerate(zip(paths, self.tops)):
            try:
                mode = os.stat(top).st_mode
                if stat.S_ISDIR(mode):
                    self._walk(number)
                else:
                    _look_at_file(self.kinds, top, mode)
            except OSError as error:
                raise StackError(
                    "Cannot look at %s: %s." % (path, error.strerror), "scan", "Correct the path.", path
                ) from error
        return self._rest()

    def assist(self) -> Scan | StackError:
        """What a copy of the first process does, and hands over."""
        self.progress = None
        self.kinds.result = Scan()
        try:
            return self._rest()
        except (OSError, StackError) as error:
            if self.crew is not None:
                self.crew.give_up()
            if isinstance(error, StackError):
                return error
            return StackError("Cannot look at %s: %s." % (", ".join(self.tops), error.strerror), "scan")

    def _rest(self) -> Scan:
        while self.crew is not None:
            packet = self.crew.take()
            if packet is None:
                break
            number, start = cast("tuple[int, list[str]]", packet)
            self._walk(number, start)
        self.kinds.result.sort()
        return self.kinds.result

    def _walk(self, number: int, start: Sequence[str] = ()) -> None:
        result = self.kinds.result
        walk = Walk(
            self.tops[number], self.excluded, lambda place, error: result.failed(os.fsencode(place), error), start
        )
        for level in walk:
            if self.crew is None and self.size > 1 and result.files - result.unopened >= MANY:
                self.crew = Crew(self.size)
                with contextlib.suppress(OSError):  # those that there are do
                    self.crew.recruit(self.assist)
            if self.crew is not None and self.crew.hungry:
                spare = walk.spare()
                if spare is not None and not self.crew.put((number, spare)):
                    walk.take_back(spare)
            _look_at_files(self.kinds, walk, level, self.seen, self.progress)
        result.excluded += walk.left_out


def _overlap(tops: Sequence[str]) -> bool:
    """Whether a file can be met below two of some paths."""
    below = [top.rstrip("/") + "/" for top in tops]
    return any(
        first.startswith(second) for number, first in enumerate(below) for other, second in enumerate(below)
        if number != other
    )


def _look_at_files(
    kinds: _Kinds, walk: Walk, level: Level, seen: set[str] | None, progress: Callable[[int], None] | None
) -> None:
    """Look at the files of one directory: for most of them this loop is all, and it is most of the time."""
    open_file, read, close_file = os.open, os.pread, os.close
    descriptor, result, unopened = level.descriptor, kinds.result, kinds.unopened
    before = result.files
    for name in level.files:
        if seen is not None:
            path = walk.path(name)
            if path in seen:
                continue
            seen.add(path)
        result.files += 1
        if name.endswith(unopened):
            result.unopened += 1
            continue
        try:
            file = open_file(name, _OPEN, dir_fd=descriptor)
            try:
                if read(file, 1, 0) == _FIRST:
                    kinds.take(file, os.fsencode(walk.path(name)))
            finally:
                try:  # noqa: SIM105 as close() does it, without what that takes for each file
                    close_file(file)
                except OSError:
                    pass
        except OSError as error:
            kinds.failed(os.fsencode(walk.path(name)), error)
    if progress is not None and result.files // _PROGRESS > before // _PROGRESS:
        progress(result.files)


def _look_at_file(kinds: _Kinds, path: str, mode: int) -> None:
    """Look at something that was named itself, which may be a link and is no directory."""
    name = os.fsencode(path)
    kinds.result.files += 1
    try:
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        file = os.open(path, elf.OPEN_FILE)
        try:
            kinds.take(file, name)
        finally:
            close(file)
    except OSError as error:
        kinds.result.failed(name, error)


class _Kinds:
    """Sorts ELF files into a scan's lists.

    Args:
        result: the scan.
        bits, machine: of the objects to check.
        unopened: endings of the names of files that are not opened.
    """

    def __init__(self, result: Scan, bits: int, machine: int, unopened: tuple[str, ...]) -> None:
        self.result = result
        self.unopened = unopened
        self._bits = bits
        self._machine = machine

    def failed(self, path: bytes, error: OSError) -> None:
        """List a file that cannot be opened or read, unless something else has its name meanwhile."""
        if error.errno not in _REPLACED:
            self.result.failed(path, error)

    def take(self, file: int, path: bytes) -> None:
        """Look at an open file that may be ELF.

        Raises:
            OSError: it cannot be read.
        """
        result = self.result
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return
        try:
            facts = elf.read_open_elf(file, status.st_size)
        except elf.ElfError as error:
            result.unreadable.append(Unreadable(path, str(error), 0))
        else:
            if facts is None:
                return
            result.known[elf.identify(status)] = facts
            self._sort(path, facts)
        result.elf_files.append(path)
        result.identities[path] = (status.st_dev, status.st_ino)

    def _sort(self, path: bytes, facts: elf.ElfObject) -> None:
        result = self.result
        why = ""
        if facts.kind in _KINDS:
            why = _KINDS[facts.kind]
        elif facts.bits != self._bits or facts.machine != self._machine:
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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the ELF objects below directories by what is in a file, not by its name or its x bit.

Only what is called like source code, byte code or text is not opened: no loader is given such a name, and most files of
a Python installation are of that kind. On a shared file system each one would cost a question to the metadata server.

Links are not followed: a link to an object of the tree is another name of something that is found anyway. Nothing that
is found is ever executed or waited for.

Where there is more than one processor, forked copies of this process share the work: who has nothing left is given a
directory that was not walked yet (see :mod:`process_pool`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import stat
from typing import Callable, Sequence, cast

from ..core.errors import StackError
from ..core.globs import compile_globs
from ..elf.elf_object import MAGIC
from ..elf.reader import OPEN_FILE
from ..trees.process_pool import ProcessPool, may_fork, processors
from .library_walk import Level, Walk, close
from .scan_result import ElfSorter, Scan

_OPEN = OPEN_FILE | os.O_NOFOLLOW
_FIRST = MAGIC[:1]

MIN_FILES_TO_FORK = 2000
"""Opened files after which other processes join in: some ten milliseconds, and forks cost two."""
_PROGRESS = 1000  # files between two reports


def scan(
    paths: Sequence[str], exclude: Sequence[str], bits: int, machine: int,
    progress: Callable[[int], None] | None = None, unopened: Sequence[str] = (),
) -> Scan:
    """Look at every regular file below some paths.

    Args:
        paths: files or directories; only these may be links themselves.
        exclude: globs relative to each path.
        bits, machine: class (32 or 64) and ``e_machine`` of the objects to check.
        progress: is told how many files this process has looked at, now and then.
        unopened: endings of the names of files that are counted and not opened; one that is named itself is.
    """
    tops = [os.path.abspath(path) for path in paths]
    seen: set[str] | None = set() if _overlap(tops) else None
    # Below two of the paths a file may be met by two processes, and neither would know.
    size = processors() if seen is None and may_fork() else 1
    sorter = ElfSorter(Scan(), bits, machine, tuple(unopened))
    worker = _Worker(tops, compile_globs(exclude), sorter, seen, size, progress)
    try:
        result = worker.scan_all(paths)
        for other in worker.pool.results() if worker.pool is not None else []:
            if isinstance(other, StackError):
                raise other
            result.merge(other)
    except StackError as error:
        if error.failed_step == "scan":
            raise
        message = "Cannot look below %s: %s" % (", ".join(paths), error.message)
        raise StackError(message, "scan", error.remedy, paths[0]) from error
    finally:
        if worker.pool is not None:
            worker.pool.shutdown()
    return result


@dataclasses.dataclass
class _Worker:
    """Do one process's share of a scan."""

    tops: Sequence[str]
    excluded: re.Pattern[str] | None
    sorter: ElfSorter
    seen: set[str] | None
    size: int
    progress: Callable[[int], None] | None
    pool: ProcessPool | None = None

    def scan_all(self, paths: Sequence[str]) -> Scan:
        """Look at all paths, and then at what others hand over."""
        for number, (path, top) in enumerate(zip(paths, self.tops)):
            try:
                mode = os.stat(top).st_mode
                if stat.S_ISDIR(mode):
                    self._walk(number)
                else:
                    _scan_file(self.sorter, top, mode)
            except OSError as error:
                message = "Cannot look at %s: %s." % (path, error.strerror)
                raise StackError(message, "scan", "Correct the path.", path) from error
        return self._finish_shared()

    def run_copy(self) -> Scan | StackError:
        """Work as a copy of the first process, and return what it has found."""
        self.progress = None
        self.sorter.result = Scan()
        try:
            return self._finish_shared()
        except (OSError, StackError) as error:
            if self.pool is not None:
                self.pool.give_up()
            if isinstance(error, StackError):
                return error
            return StackError("Cannot look at %s: %s." % (", ".join(self.tops), error.strerror), "scan")

    def _finish_shared(self) -> Scan:
        while self.pool is not None:
            packet = self.pool.take()
            if packet is None:
                break
            number, start = cast("tuple[int, list[str]]", packet)
            self._walk(number, start)
        self.sorter.result.sort()
        return self.sorter.result

    def _walk(self, number: int, start: Sequence[str] = ()) -> None:
        result = self.sorter.result
        walk = Walk(
            self.tops[number], self.excluded, lambda place, error: result.failed(os.fsencode(place), error), start
        )
        for level in walk:
            if self.pool is None and self.size > 1 and result.files - result.unopened >= MIN_FILES_TO_FORK:
                self.pool = ProcessPool(self.size)
                with contextlib.suppress(OSError):  # those that there are do
                    self.pool.start(self.run_copy)
            if self.pool is not None and self.pool.has_idle_worker:
                spare = walk.spare()
                if spare is not None and not self.pool.put((number, spare)):
                    walk.take_back(spare)
            _scan_files(self.sorter, walk, level, self.seen, self.progress)
        result.excluded += walk.left_out


def _overlap(tops: Sequence[str]) -> bool:
    """Tell whether a file can be met below two of some paths."""
    below = sorted(top.rstrip("/") + "/" for top in tops)
    return any(second.startswith(first) for first, second in zip(below, below[1:]))


def _scan_files(
    sorter: ElfSorter, walk: Walk, level: Level, seen: set[str] | None, progress: Callable[[int], None] | None
) -> None:
    """Look at the files of one directory; this loop is most of the time."""
    open_file, read, close_file = os.open, os.pread, os.close
    descriptor, result, unopened = level.descriptor, sorter.result, sorter.unopened
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
                    sorter.take(file, os.fsencode(walk.path(name)))
            finally:
                try:  # noqa: SIM105 as close() does it, without what that takes for each file
                    close_file(file)
                except OSError:
                    pass
        except OSError as error:
            sorter.failed(os.fsencode(walk.path(name)), error)
    if progress is not None and result.files // _PROGRESS > before // _PROGRESS:
        progress(result.files)


def _scan_file(sorter: ElfSorter, path: str, mode: int) -> None:
    """Look at something that was named itself, which may be a link and is no directory."""
    name = os.fsencode(path)
    sorter.result.files += 1
    try:
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        file = os.open(path, OPEN_FILE)
        try:
            sorter.take(file, name)
        finally:
            close(file)
    except OSError as error:
        sorter.result.failed(name, error)

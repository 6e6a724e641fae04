# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Walk directories, each open while its files are looked at, so that nobody leads it elsewhere.

Every directory is opened by its name in the open directory above it, and not where that name is a link. So a name that
somebody swaps for a link meanwhile is passed over, and no path is too long. Descriptors are bounded: of the directories
above, the nearest and the first stay open; the others are found again through ``..`` and known by device and inode.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import Callable, Iterator, Sequence

from ..trees.dir_handles import OPEN_DIRECTORY

MAX_OPEN = 64  # directories that are open at once; trees are seldom deeper
MOVED = "what lies in it was moved or removed while it was walked"


def close(descriptor: int) -> None:
    """Close what was only read: that this fails, as by an interrupt, says nothing about what was read."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


class Level:
    """Describe one directory between the first one and where the walk is, itself included.

    Attributes:
        name: its name in the directory above; of the first one its path.
        descriptor: -1 while it is closed.
        identity: device and inode, once they had to be known.
        files, pending: the names of its regular files, and of the directories in it that were not walked yet.
    """

    __slots__ = ("descriptor", "files", "identity", "name", "pending")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor
        self.identity: tuple[int, int] | None = None
        self.files: list[str] = []
        self.pending: list[str] = []


class Walk:
    """Walk the directories below one; where it is, is in ``levels``.

    Args:
        top: the path of the first directory; it may be a link itself.
        excluded: paths relative to it that are left out, with everything below them.
        failed: is told the path of a directory that cannot be read, and why.
        start: the names that lead from it to the directory that is walked instead; no link is followed on the way.
    """

    def __init__(
        self, top: str, excluded: re.Pattern[str] | None, failed: Callable[[str, OSError], None],
        start: Sequence[str] = (),
    ) -> None:
        self.levels: list[Level] = []
        self.left_out = 0
        self._top, self._start = top, start
        self._excluded, self._failed = excluded, failed

    def spare(self) -> list[str] | None:
        """Give away the highest directory that was not walked yet, if another one is left; see ``start``."""
        for depth, level in enumerate(self.levels):
            if level.pending:
                if len(level.pending) == 1 and not any(below.pending for below in self.levels[depth + 1:]):
                    return None
                return [*(above.name for above in self.levels[1:depth + 1]), level.pending.pop(0)]
        return None

    def take_back(self, spare: Sequence[str]) -> None:
        """Undo :meth:`spare`."""
        self.levels[len(spare) - 1].pending.insert(0, spare[-1])

    def relative(self, name: str = "") -> str:
        """Return a name in the walk's directory, or that directory, relative to the first one."""
        names = [level.name for level in self.levels[1:]]
        return "/".join([*names, name] if name else names)

    def path(self, name: str = "") -> str:
        """Return the absolute path of the same."""
        relative = self.relative(name)
        return self._top.rstrip("/") + "/" + relative if relative else self._top

    def __iter__(self) -> Iterator[Level]:
        """Yield each directory, listed, and open until the next is asked for; OSError if the first cannot be opened."""
        first = os.open(self._top, OPEN_DIRECTORY & ~os.O_NOFOLLOW)
        try:
            if self._descend(first):
                yield self.levels[-1]
            while self.levels:
                if not self.levels[-1].pending:
                    self._leave()
                elif self._open(self.levels[-1].pending.pop()):
                    self._list(self.levels[-1])
                    yield self.levels[-1]
        finally:
            for level in self.levels:
                if level.descriptor >= 0:
                    close(level.descriptor)
            self.levels.clear()

    def _descend(self, first: int) -> bool:
        """Go to where the walk starts; False where something else has one of the names meanwhile."""
        self.levels.append(Level(self._top, first))
        if not all(map(self._open, self._start)):
            return False
        self._list(self.levels[-1])
        return True

    def _open(self, name: str) -> bool:
        """Go down to a directory in the one where the walk is, unless that cannot be opened."""
        try:
            descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=self.levels[-1].descriptor)
        except OSError as error:
            self._failed(self.path(name), error)
            return False
        self.levels.append(Level(name, descriptor))
        if len(self.levels) > MAX_OPEN and self.levels[-MAX_OPEN].descriptor >= 0:
            self._close(self.levels[-MAX_OPEN])
        return True

    def _list(self, level: Level) -> None:
        excluded = self._excluded
        prefix = self.relative() + "/" if excluded is not None and len(self.levels) > 1 else ""
        try:
            with os.scandir(level.descriptor) as entries:
                for entry in entries:
                    if excluded is not None and excluded.fullmatch(prefix + entry.name):
                        self.left_out += 1
                    elif entry.is_file(follow_symlinks=False):
                        level.files.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        level.pending.append(entry.name)
        except OSError as error:
            self._failed(self.path(), error)

    @staticmethod
    def _close(level: Level) -> None:
        status = os.fstat(level.descriptor)
        level.identity = (status.st_dev, status.st_ino)
        close(level.descriptor)
        level.descriptor = -1

    def _leave(self) -> None:
        """Go back to the directory above, which is opened again where it was closed."""
        done = self.levels.pop()
        above = self.levels[-1] if self.levels else None
        try:
            if above is not None and above.descriptor < 0:
                above.descriptor = self._back(done, above)
        except OSError as error:
            self._failed(self.path(), error)
            # Nothing leads on from here but the first directory, which is always open.
            del self.levels[1:]
        finally:
            close(done.descriptor)

    @staticmethod
    def _back(below: Level, above: Level) -> int:
        try:
            descriptor = os.open("..", OPEN_DIRECTORY, dir_fd=below.descriptor)
        except FileNotFoundError as error:
            raise OSError(errno.ESTALE, MOVED) from error
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != above.identity:
            close(descriptor)
            raise OSError(errno.ESTALE, MOVED)
        return descriptor

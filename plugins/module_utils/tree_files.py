# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Regular files and directories of a source tree, read without ever leaving it."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Iterable, NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patch_names import display


class TreeFile(NamedTuple):
    """A regular file: its bytes and permission bits."""

    content: bytes
    mode: int

    @property
    def executable(self) -> bool:
        return bool(self.mode & 0o100)

    def with_executable(self, executable: bool) -> TreeFile:
        """The file with its execute bits set for all who may read it, or cleared."""
        mode = self.mode | (self.mode & 0o444) >> 2 if executable else self.mode & ~0o111
        return self._replace(mode=mode)


def read_tree_file(src: bytes, path: bytes) -> TreeFile | None:
    """The file ``path`` below the tree ``src``, or None where it is not there.

    Raises:
        StackError: the path passes a symbolic link, or is not a regular file, or cannot be read.
    """
    parts = path.split(b"/")
    try:
        for depth in range(1, len(parts) + 1):
            here = b"/".join(parts[:depth])
            found = os.lstat(os.path.join(src, here))
            if stat.S_ISLNK(found.st_mode):
                raise StackError(
                    "%s is a symbolic link in the tree, and only regular files below real directories are patched."
                    % display(here),
                    "read tree",
                    "Make the patch name the file that the link leads to.",
                    file=display(path),
                )
            if depth < len(parts) and not stat.S_ISDIR(found.st_mode):
                return None
        if not stat.S_ISREG(found.st_mode):
            raise StackError(
                "%s in the tree is not a regular file." % display(path), "read tree",
                "Extract the source again, or take the file out of the patch.", file=display(path),
            )
        descriptor = os.open(os.path.join(src, path), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as stream:
            return TreeFile(stream.read(), stat.S_IMODE(found.st_mode) & 0o777)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackError(
            "Cannot read %s: %s." % (display(path), error.strerror), "read tree",
            "Run as the account that owns the tree.", file=display(path),
        ) from error


def missing_directories(src: bytes, paths: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """The directories that these files need and that are not there, parents first, with the mode to make them with."""
    wanted = set()
    for path in paths:
        parent = os.path.dirname(path)
        while parent and not os.path.isdir(os.path.join(src, parent)):
            wanted.add(parent)
            parent = os.path.dirname(parent)
    return [(path, 0o755) for path in sorted(wanted)]


def directories_of(src: bytes, created: Iterable[bytes]) -> list[bytes]:
    """The directories that hold nothing but these files: where no record tells, the series made them."""
    files = set(created)
    mine = set(files)
    for path in sorted(files, reverse=True):
        parent = os.path.dirname(path)
        while parent and parent not in mine:
            try:
                entries = os.listdir(os.path.join(src, parent))
            except OSError:
                break
            if any(os.path.join(parent, entry) not in mine for entry in entries):
                break
            mine.add(parent)
            parent = os.path.dirname(parent)
    return sorted(mine - files)


def directories_to_drop(src: bytes, made: Iterable[bytes], kept: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """Of the directories that the series made, those that no kept file needs, children first, with their modes."""
    needed = set()
    for path in kept:
        parent = os.path.dirname(path)
        while parent:
            needed.add(parent)
            parent = os.path.dirname(parent)
    gone = []
    for path in sorted(set(made) - needed, reverse=True):
        with contextlib.suppress(OSError):
            gone.append((path, stat.S_IMODE(os.lstat(os.path.join(src, path)).st_mode)))
    return gone

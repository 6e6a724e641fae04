# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Regular files and directories of a source tree, reached without ever leaving it.

Every path is walked one name at a time through descriptors of directories (openat(2) with O_NOFOLLOW): a directory that
becomes a symbolic link while the tree is worked on is an error and never a way out, and no path is too long.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Iterable, Iterator, NamedTuple

from ..core.errors import StackError
from .header_paths import display

# Control nodes import this too, and only Linux has O_PATH.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a named pipe that takes a file's place would be waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


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


@contextlib.contextmanager
def naming(path: bytes) -> Iterator[None]:
    """Errors of the system name this path: calls relative to a descriptor know only its last component."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


@contextlib.contextmanager
def open_directory(src: bytes, path: bytes) -> Iterator[int]:
    """A descriptor (O_PATH) of the directory ``path`` below the tree ``src``; ``path`` is empty for the tree itself.

    Raises:
        StackError: the path passes a symbolic link, or the tree itself is not there.
        OSError: it is not there, or no directory, or as the system says.
    """
    try:
        with naming(src):
            descriptor = os.open(src, _DIRECTORY)
    except _NOT_THERE as error:
        raise StackError(
            "%s is not a directory any more." % display(src), "read tree", "Put it back, or extract the source again.",
            path=os.fsdecode(src),
        ) from error
    try:
        parts = path.split(b"/") if path else []
        for depth, part in enumerate(parts, 1):
            below = b"/".join(parts[:depth])
            with naming(os.path.join(src, below)):
                try:
                    further = os.open(part, _DIRECTORY, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        _refuse_link(src, below, os.stat(part, dir_fd=descriptor, follow_symlinks=False))
                    raise
            os.close(descriptor)
            descriptor = further
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_link(src: bytes, path: bytes, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise StackError(
            "%s is a symbolic link in the tree, and only regular files below real directories are patched."
            % display(path),
            "read tree",
            "Make the patch name the file that the link leads to.",
            path=os.fsdecode(os.path.join(src, path)),
            file=display(path),
        )


def read_tree_file(src: bytes, path: bytes) -> TreeFile | None:
    """The file ``path`` below the tree ``src``, or None where it is not there.

    Raises:
        StackError: the path passes a symbolic link, or is not a regular file, or cannot be read.
    """
    folder, name = os.path.split(path)
    try:
        with open_directory(src, folder) as directory, naming(os.path.join(src, path)):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            _refuse_link(src, path, found)
            if stat.S_ISREG(found.st_mode):
                with os.fdopen(os.open(name, _FILE, dir_fd=directory), "rb") as stream:
                    found = os.fstat(stream.fileno())
                    if stat.S_ISREG(found.st_mode):
                        return TreeFile(stream.read(), stat.S_IMODE(found.st_mode) & 0o777)
    except _NOT_THERE:
        return None
    except StackError as error:
        error.details["file"] = display(path)
        raise
    except OSError as error:
        closed = error.errno in (errno.EACCES, errno.EPERM)
        raise StackError(
            "Cannot read %s: %s." % (display(path), error.strerror), "read tree",
            "Run as the account that owns the tree." if closed else "Remove the cause and run this again.",
            path=os.fsdecode(os.path.join(src, path)), file=display(path),
        ) from error
    raise StackError(
        "%s in the tree is not a regular file." % display(path), "read tree",
        "Extract the source again, or take the file out of the patch.",
        path=os.fsdecode(os.path.join(src, path)), file=display(path),
    )


def write_file(directory: int, name: bytes, chunks: Iterable[bytes], mode: int) -> None:
    """Make a file that is not there yet and flush it to disk.

    Args:
        directory: descriptor of its directory.
        mode: permission bits, whatever the umask is.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view):]
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush(directory: int) -> None:
    """Flush a directory's entries to disk, where its file system can do that and this account may open it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def missing_directories(src: bytes, paths: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """The directories that these files need and that are not there, parents first, with the mode to make them with."""
    there, wanted = {b""}, set()
    for path in paths:
        parent = os.path.dirname(path)
        while parent not in there and parent not in wanted:
            try:
                with open_directory(src, parent):
                    there.add(parent)
            except _NOT_THERE:
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
                entries = _entries(src, parent)
            except OSError:
                break
            if any(os.path.join(parent, entry) not in mine for entry in entries):
                break
            mine.add(parent)
            parent = os.path.dirname(parent)
    return sorted(mine - files)


def _entries(src: bytes, path: bytes) -> list[bytes]:
    with open_directory(src, path) as directory:
        descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            return [os.fsencode(name) for name in os.listdir(descriptor)]
        finally:
            os.close(descriptor)


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
        with contextlib.suppress(OSError), open_directory(src, path) as directory:
            gone.append((path, stat.S_IMODE(os.fstat(directory).st_mode)))
    return gone

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write regular files of a source tree without ever leaving it.

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
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK a named pipe that takes a file's place would be waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class TreeFile(NamedTuple):
    """Describe a regular file: its bytes and permission bits."""

    content: bytes
    mode: int

    @property
    def executable(self) -> bool:
        """Tell whether its owner may execute it."""
        return bool(self.mode & 0o100)

    def with_executable(self, executable: bool) -> TreeFile:
        """Set the execute bits for all who may read the file, or clear them."""
        mode = self.mode | (self.mode & 0o444) >> 2 if executable else self.mode & ~0o111
        return self._replace(mode=mode)


@contextlib.contextmanager
def named_errors(path: bytes) -> Iterator[None]:
    """Name this path in errors of the system: calls relative to a descriptor know its end only."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


@contextlib.contextmanager
def open_directory(src: bytes, path: bytes) -> Iterator[int]:
    """Open the directory ``path`` below the tree ``src`` (O_PATH); empty for the tree itself.

    Raises:
        StackError: the path passes a symbolic link, or the tree itself is not there.
        OSError: it is not there, or no directory, or as the system says.
    """
    try:
        with named_errors(src):
            descriptor = os.open(src, _DIRECTORY)
    except _NOT_THERE as error:
        message = "%s is not a directory any more." % display(src)
        remedy = "Put it back, or extract the source again."
        raise StackError(message, "read tree", remedy, path=os.fsdecode(src)) from error
    try:
        parts = path.split(b"/") if path else []
        for depth, part in enumerate(parts, 1):
            below = b"/".join(parts[:depth])
            with named_errors(os.path.join(src, below)):
                try:
                    further = os.open(part, _DIRECTORY, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        _require_no_link(src, below, os.stat(part, dir_fd=descriptor, follow_symlinks=False))
                    raise
            os.close(descriptor)
            descriptor = further
        yield descriptor
    finally:
        os.close(descriptor)


def _require_no_link(src: bytes, path: bytes, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        problem = "%s is a symbolic link in the tree, and only regular files below real directories are patched."
        raise _tree_error(src, path, problem % display(path), "Make the patch name the file that the link leads to.")


def _tree_error(src: bytes, path: bytes, message: str, remedy: str) -> StackError:
    return StackError(message, "read tree", remedy, os.fsdecode(os.path.join(src, path)), file=display(path))


def read_tree_file(src: bytes, path: bytes) -> TreeFile | None:
    """Read the regular file ``path`` below the tree ``src``, without passing a link; None where it is not there."""
    folder, name = os.path.split(path)
    try:
        with open_directory(src, folder) as directory, named_errors(os.path.join(src, path)):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            _require_no_link(src, path, found)
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
        remedy = "Run as the account that owns the tree." if closed else "Remove the cause and run this again."
        raise _tree_error(src, path, "Cannot read %s: %s." % (display(path), error.strerror), remedy) from error
    problem = "%s in the tree is not a regular file." % display(path)
    raise _tree_error(src, path, problem, "Extract the source again, or take the file out of the patch.")


def write_file(directory: int, name: bytes, chunks: Iterable[bytes], mode: int) -> None:
    """Make a file that is not there yet, with these permission bits whatever the umask, and flush it to disk."""
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
    """Flush a directory's entries to disk, where its file system and this account can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(b".", _LISTED, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _parents(path: bytes) -> Iterator[bytes]:
    """Yield the directories above a path, the nearest first, without the tree itself."""
    path = os.path.dirname(path)
    while path:
        yield path
        path = os.path.dirname(path)


def missing_directories(src: bytes, paths: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """List the directories that files need and that are not there, parents first, with their modes."""
    there, wanted = {b""}, set()
    for path in paths:
        for parent in _parents(path):
            if parent in there or parent in wanted:
                break
            try:
                with open_directory(src, parent):
                    there.add(parent)
                break
            except _NOT_THERE:
                wanted.add(parent)
    return [(path, 0o755) for path in sorted(wanted)]


def directories_of(src: bytes, created: Iterable[bytes]) -> list[bytes]:
    """List directories that hold nothing but these files: without a record, the series made them."""
    files = set(created)
    mine = set(files)
    for path in sorted(files, reverse=True):
        with contextlib.suppress(OSError):
            for parent in _parents(path):
                if parent in mine or any(os.path.join(parent, entry) not in mine for entry in _entries(src, parent)):
                    break
                mine.add(parent)
    return sorted(mine - files)


def _entries(src: bytes, path: bytes) -> list[bytes]:
    with open_directory(src, path) as directory:
        descriptor = os.open(b".", _LISTED, dir_fd=directory)
        try:
            return [os.fsencode(name) for name in os.listdir(descriptor)]
        finally:
            os.close(descriptor)


def directories_to_drop(src: bytes, made: Iterable[bytes], kept: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """List directories that the series made and no kept file needs, children first, with their modes."""
    needed = {parent for path in kept for parent in _parents(path)}
    gone = []
    for path in sorted(set(made) - needed, reverse=True):
        with contextlib.suppress(OSError), open_directory(src, path) as directory:
            gone.append((path, stat.S_IMODE(os.fstat(directory).st_mode)))
    return gone

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Open directories of a tree, work for threads, and a chmod that never follows a link.

A mode is changed by the first of these that the machine has (microseconds per file, next to 2.3 for a chmod that
follows links; Linux 6.18, glibc 2.36, ext4):

* fchmodat2(2) with AT_SYMLINK_NOFOLLOW (Linux 6.6), called directly: 2.5, one system call;
* os.chmod(follow_symlinks=False): 6.6; glibc 2.32 and later do it through an O_PATH descriptor and /proc/self/fd;
* the same by hand for an older glibc: 7.3.

Descriptors are bounded: of the directories above those being read only some stay open. The others are opened again
when their turn comes, component by component without following links, and recognised by device and inode.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import os
import platform
import stat
import sys
import threading
from typing import Any, Callable, Iterator

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_FCHMODAT2 = 452
_AT_SYMLINK_NOFOLLOW = 0x100


def _chmod_direct() -> Callable[[int, str, int], None] | None:
    """fchmodat2(2) where this kernel has it; its number is 452 on every architecture but alpha."""
    if platform.system() != "Linux" or platform.machine() == "alpha":
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_long, ctypes.c_long]
    call.restype = ctypes.c_long

    encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()

    def chmod(directory: int, name: str, mode: int) -> None:
        encoded = name.encode(encoding, errors)
        while call(_FCHMODAT2, directory, encoded, mode, _AT_SYMLINK_NOFOLLOW):
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), name)

    try:
        chmod(-1, "x", 0)
    except OSError as error:
        return chmod if error.errno == errno.EBADF else None
    return None


def patiently(call: Callable[..., Any], *arguments: object, **options: object) -> Any:
    """Make a call that Python does not make again by itself when a signal interrupts it: stat, chmod, listings."""
    while True:
        try:
            return call(*arguments, **options)
        except InterruptedError:
            continue


def _chmod_library(directory: int, name: str, mode: int) -> None:
    try:
        patiently(os.chmod, name, mode, dir_fd=directory, follow_symlinks=False)
    except (NotImplementedError, ValueError) as error:  # Python's words for an ENOTSUP of the library
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name) from error


def _chmod_by_hand(directory: int, name: str, mode: int) -> None:
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_ISLNK(patiently(os.fstat, descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        patiently(os.chmod, "/proc/self/fd/%d" % descriptor, mode)
    finally:
        os.close(descriptor)


def choose_chmod() -> Callable[[int, str, int], None]:
    """The quickest way to change a mode that this machine has and that never follows a link."""
    direct = _chmod_direct()
    if direct is not None:
        return direct
    try:
        _chmod_library(-1, "x", 0)
    except OSError as error:
        if error.errno == errno.EBADF:
            return _chmod_library
    return _chmod_by_hand


class Directory:
    """A directory of the tree: its place, and how many of its sub-directories still need it open."""

    __slots__ = ("depth", "identity", "name", "parent", "waiting")

    def __init__(self, parent: Directory | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.identity: tuple[int, int] | None = None
        self.waiting = 0

    def path(self, name: str = "") -> str:
        """The path of an entry of this directory, or its own, relative to the tree; ``.`` is the tree."""
        parts = [name] if name else []
        at: Directory | None = self
        while at is not None and at.parent is not None:
            parts.append(at.name)
            at = at.parent
        return "/".join(reversed(parts)) or "."

    def trail(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Names and identities from below the tree down to this directory, for another process to find it by."""
        steps = []
        at: Directory | None = self
        while at is not None and at.parent is not None:
            steps.append((at.name, at.identity))
            at = at.parent
        return steps[::-1]


class Handles:
    """Open descriptors of directories, no more than ``capacity`` beside those in use.

    The tree's own descriptor belongs to the caller and stays open.
    """

    def __init__(self, top: Directory, descriptor: int, capacity: int) -> None:
        self.top = top
        self.descriptor = descriptor
        self.capacity = capacity
        self.lock = threading.Lock()
        self.open: collections.OrderedDict[Directory, list[int]] = collections.OrderedDict()

    @contextlib.contextmanager
    def use(self, directory: Directory) -> Iterator[int]:
        """The descriptor of a directory that has been read, opened again where it had to be closed.

        Raises:
            OSError: it is not there any more; ESTALE where something else has its name now.
        """
        if directory is self.top:
            yield self.descriptor
            return
        with self.lock:
            held = self.open.get(directory)
            if held is not None:
                held[1] += 1
                self.open.move_to_end(directory)
        if held is None:
            held = self._reopen(directory)
        try:
            yield held[0]
        finally:
            with self.lock:
                held[1] -= 1
                self._trim()

    def keep(self, directory: Directory, descriptor: int) -> None:
        """Hand over the descriptor of a directory that is about to be read."""
        directory.waiting = 1
        if directory is not self.top:
            with self.lock:
                self.open[directory] = [descriptor, 0]
                self._trim()

    def expect(self, directory: Directory) -> None:
        """Say that one more item of work will need this directory."""
        with self.lock:
            directory.waiting += 1

    def release(self, directory: Directory) -> None:
        """Say that one of them is finished; after the last one the directory is closed.

        Not while another thread is on its way through it to a directory below; then it stays until room is needed.
        """
        with self.lock:
            directory.waiting -= 1
            held = self.open.get(directory)
            if held is not None and held[1] == 0 and not directory.waiting:
                os.close(held[0])
                del self.open[directory]

    def close(self) -> None:
        """Close everything but the tree's own descriptor."""
        with self.lock:
            for descriptor, _users in self.open.values():
                os.close(descriptor)
            self.open.clear()

    def _trim(self) -> None:
        if len(self.open) > self.capacity:
            idle = [directory for directory, held in self.open.items() if held[1] == 0]
            for directory in idle[:len(self.open) - self.capacity * 3 // 4]:
                os.close(self.open.pop(directory)[0])

    def _reopen(self, directory: Directory) -> list[int]:
        """Open a directory again from the nearest one above that is open, keeping those in between for their turn."""
        above: list[Directory] = []
        at = directory
        with self.lock:
            while at is not self.top and at not in self.open:
                above.append(at)
                at = at.parent  # type: ignore[assignment] # only the top has none
            held = [self.descriptor, 0] if at is self.top else self.open[at]
            held[1] += 1
        for step in reversed(above):
            try:
                descriptor = os.open(step.name, OPEN_DIRECTORY, dir_fd=held[0])
            finally:
                with self.lock:
                    held[1] -= 1
            found = patiently(os.fstat, descriptor)
            with self.lock:
                if (found.st_dev, found.st_ino) != step.identity:
                    os.close(descriptor)
                    raise OSError(errno.ESTALE, "replaced by another directory", step.name)
                if step in self.open:
                    os.close(descriptor)
                    held = self.open[step]
                else:
                    held = self.open[step] = [descriptor, 0]
                held[1] += 1
                self._trim()
        return held


class Work:
    """What is still to do, last in first out, for any number of threads."""

    def __init__(self) -> None:
        self.items: collections.deque = collections.deque()
        self.changed = threading.Condition()
        self.unfinished = 0
        self.idle = 0
        self.failure: BaseException | None = None

    @property
    def hungry(self) -> bool:
        """Whether a thread waits for work."""
        return self.idle > len(self.items)

    def put(self, item: object) -> None:
        """Add an item."""
        with self.changed:
            self.items.append(item)
            self.unfinished += 1
            if self.idle:
                self.changed.notify()

    def get(self) -> object | None:
        """Wait for an item; None when all are finished, or a thread has failed."""
        with self.changed:
            while not self.items and self.unfinished and self.failure is None:
                self.idle += 1
                self.changed.wait()
                self.idle -= 1
            return self.items.pop() if self.items and self.failure is None else None

    def done(self) -> None:
        """Say that an item from :meth:`get` is finished."""
        with self.changed:
            self.unfinished -= 1
            if not self.unfinished:
                self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Stop all threads."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

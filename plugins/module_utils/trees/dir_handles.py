# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep the directories of a tree open while they are needed.

Descriptors are bounded: of the directories above those being read only some stay open. The others are opened again when
their turn comes, component by component without following links, and recognised by device and inode.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import resource
import stat
import threading
from typing import Any, Callable, Iterator

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def default_capacity() -> int:
    """Choose how many directories may stay open: a quarter of the limit of open files, within bounds."""
    return max(16, min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


@contextlib.contextmanager
def owner_writable(descriptor: int, *path: str) -> Iterator[int]:
    """Make an open directory, which an error calls ``path``, writable to its owner meanwhile; yields its own mode.

    OSError: it cannot be made writable, or not be brought back.
    """
    found = os.fstat(descriptor)
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWUSR:
        yield mode
        return
    # chmod(2) takes setgid away when the owner is not in the group, and it could not be brought back.
    if mode & stat.S_ISGID and os.geteuid() and found.st_gid not in {os.getegid(), *os.getgroups()}:
        raise OSError(errno.EPERM, "its directory is setgid for a group that this account is not in", *path)
    os.fchmod(descriptor, mode | stat.S_IWUSR)
    try:
        yield mode
    finally:
        os.fchmod(descriptor, mode)


def retry_interrupted(call: Callable[..., Any], *arguments: object, **options: object) -> Any:
    """Repeat a call that a signal has interrupted, where Python does not: stat, chmod, listings."""
    while True:
        try:
            return call(*arguments, **options)
        except InterruptedError:
            continue


class Directory:
    """Hold the place of a directory, and how many items of work still need it open."""

    __slots__ = ("depth", "identity", "name", "parent", "waiting")

    def __init__(self, parent: Directory | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.identity: tuple[int, int] | None = None
        self.waiting = 0

    def path(self, name: str = "") -> str:
        """Return the path of an entry, or of the directory, relative to the tree; ``.`` is the tree."""
        parts = [part for part, _identity in self.trail()] + [name] * bool(name)
        return "/".join(parts) or "."

    def trail(self) -> list[tuple[str, tuple[int, int] | None]]:
        """List names and identities down to this directory, for another process to find it by."""
        steps = []
        at: Directory | None = self
        while at is not None and at.parent is not None:
            steps.append((at.name, at.identity))
            at = at.parent
        return steps[::-1]


class Handles:
    """Keep descriptors of directories open, no more than ``capacity`` beside those in use, and the caller's own one."""

    def __init__(self, top: Directory, descriptor: int, capacity: int) -> None:
        self.top = top
        self.descriptor = descriptor
        self.capacity = capacity
        self.lock = threading.Lock()
        self.open: collections.OrderedDict[Directory, list[int]] = collections.OrderedDict()

    @contextlib.contextmanager
    def use(self, directory: Directory) -> Iterator[int]:
        """Give the descriptor of a directory that has been read, opened again where it was closed.

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
        """Take over the descriptor of a directory that is about to be read."""
        directory.waiting = 1
        if directory is not self.top:
            with self.lock:
                self.open[directory] = [descriptor, 0]
                self._trim()

    def expect(self, directory: Directory) -> None:
        """Count one more item of work that will need this directory."""
        with self.lock:
            directory.waiting += 1

    def release(self, directory: Directory) -> None:
        """Count one of them as finished; after the last one the directory is closed.

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
        """Open a directory again from the nearest one above that is open; those in between are kept for their turn."""
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
            found = retry_interrupted(os.fstat, descriptor)
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

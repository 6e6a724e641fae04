# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Replace files of a frozen release; none is edited in place.

A process that has the old file open or mapped keeps it, another release that shares it through a hard link does too,
and a run that dies leaves the old file or the new one. A copy is made beside the records of the release, on the same
file system, and renamed into place; a directory that is frozen is writable for its owner meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import Iterator, Sequence

from ..core.digests import sha256_of
from ..core.errors import StackError, system_remedy
from ..trees import boundary, counters, permissions
from ..trees.dir_handles import OPEN_DIRECTORY, owner_writable
from ..trees.nofollow_chmod import choose_chmod
from ..trees.policy import FROZEN, WRITABLE, Policy
from .thaw_paths import Named

MAX_LISTED = 100


class Stage:
    """Where files are prepared: a directory of the release's later records."""

    def __init__(self, root: str, release: str) -> None:
        self.root = os.path.realpath(root)
        self.release = release
        self.prefix = os.path.join(self.root, release)
        self.directory = os.path.join(self.root, ".torchstack", release, "thaw")
        # The manifest of before the thaw, and the bill of materials of after it.
        self.before = os.path.join(self.directory, "before.json")
        self.sbom = os.path.join(self.directory, "sbom.spdx.json")

    def make(self) -> None:
        """Make it, with a place for the files that the operator sends."""
        os.makedirs(os.path.join(self.directory, "files"), mode=0o755, exist_ok=True)

    def sweep(self) -> None:
        """Remove it with all that is left in it."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory)

    def sent(self, sha256: str) -> str:
        """Return a file that the operator sent."""
        return os.path.join(self.directory, "files", sha256)

    def place(self, source: str, path: str, mode: int | None = None) -> None:
        """Replace a file by a copy of another; missing directories are made. None for the source's own ``mode``."""
        prepared = os.path.join(self.directory, "new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(prepared)
        shutil.copyfile(source, prepared, follow_symlinks=False)
        shutil.copystat(source, prepared, follow_symlinks=False)
        if mode is not None:
            os.chmod(prepared, mode)
        with contextlib.suppress(OSError):
            os.chown(prepared, -1, os.lstat(source).st_gid)
        with open(prepared, "rb") as stream:
            os.fsync(stream.fileno())
        self._directories(os.path.dirname(path))
        with self._beside(path) as (held, name):
            os.replace(prepared, name, dst_dir_fd=held)
            with contextlib.suppress(OSError):
                os.fsync(held)

    def remove(self, path: str) -> None:
        """Remove a file of the release."""
        with self._beside(path) as (held, name), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=held)

    @contextlib.contextmanager
    def _beside(self, path: str) -> Iterator[tuple[int, str]]:
        """Return the open directory of a file of the release, writable meanwhile, and the file's name in it."""
        whole = os.path.join(self.release, path)
        with boundary.open_parent(self.root, whole) as found:
            parent, name = found
            with _writable(parent) as held:
                yield held, name

    def _directories(self, path: str) -> None:
        """Make a directory of the release, with those on the way to it."""
        if not path or os.path.isdir(os.path.join(self.prefix, path)):
            return
        self._directories(os.path.dirname(path))
        with self._beside(path) as (held, name):
            os.mkdir(name, 0o755, dir_fd=held)


@contextlib.contextmanager
def _writable(parent: int) -> Iterator[int]:
    """Yield a directory, open for reading, that its owner may write to meanwhile."""
    descriptor = os.open(".", OPEN_DIRECTORY, dir_fd=parent)
    try:
        with owner_writable(descriptor):
            yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def translate_errors(step: str, prefix: str) -> Iterator[None]:
    """Turn what the file system refuses into a StackError that an operator can act on."""
    try:
        yield
    except OSError as error:
        path = str(error.filename or prefix)
        raise StackError(
            "%s cannot be changed: %s." % (path, error.strerror), step,
            system_remedy(error, "Run this as the account that owns it") + ", then run it again.", path) from error


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file; empty where there is none."""
    try:
        return sha256_of(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""


def files_below(prefix: str, several: Sequence[Named]) -> Iterator[tuple[str, os.stat_result]]:
    """Return the regular files that are named, or lie in a named directory, with their status."""
    for one in several:
        if not one.directory:
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(os.path.join(prefix, one.path))
                if stat.S_ISREG(found.st_mode):
                    yield one.path, found
            continue
        for directory, _directories, names in os.walk(os.path.join(prefix, one.path)):
            for name in sorted(names):
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(os.path.join(directory, name))
                    if stat.S_ISREG(found.st_mode):
                        yield os.path.relpath(os.path.join(directory, name), prefix), found


def shared_files(prefix: str, several: Sequence[Named]) -> list[str]:
    """Return files that need a copy of their own before anybody writes to them.

    Those with further names, which would change with them; and a file that is named by itself while it is frozen, which
    running processes may have mapped.
    """
    alone = {one.path for one in several if not one.directory}
    return [path for path, found in files_below(prefix, several)
            if found.st_nlink > 1 or (path in alone and not found.st_mode & stat.S_IWUSR)]


def bring_to(stage: Stage, several: Sequence[Named], state: str, apply: bool) -> list[str]:
    """Give what is named and there the permissions of ``frozen`` or ``writable``; return the first that differed."""
    policy = Policy(state)
    changed = []
    for one in several:
        path = os.path.join(stage.prefix, one.path)
        if one.directory:
            if os.path.isdir(path) and not os.path.islink(path):
                one_pass = permissions.Pass(policy, apply, limit=MAX_LISTED)
                total = one_pass.over(stage.root, os.path.join(stage.release, one.path))
                problem = counters.permission_error(total, path)
                if problem is not None:
                    raise problem
                changed += [os.path.normpath(os.path.join(one.path, entry["path"]))
                            for entry in counters.as_result(total)["drift"]]  # type: ignore[attr-defined] # a list
            continue
        with contextlib.suppress(FileNotFoundError):
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and policy.target(mode) != stat.S_IMODE(mode):
                changed.append(one.path)
                if apply:
                    with boundary.open_parent(stage.root, os.path.join(stage.release, one.path)) as (parent, name):
                        choose_chmod()(parent, name, policy.target(mode))
    return changed


def freeze_again(stage: Stage, several: Sequence[Named]) -> list[str]:
    """Make what is named read-only."""
    return bring_to(stage, several, FROZEN, True)


def thaw(stage: Stage, several: Sequence[Named], apply: bool) -> list[str]:
    """Make what is named writable, each file with further names a file of its own; return the first that were not."""
    copied = shared_files(stage.prefix, several)
    if apply:
        for path in copied:
            source = os.path.join(stage.prefix, path)
            stage.place(source, path, stat.S_IMODE(os.lstat(source).st_mode) | stat.S_IWUSR)
    return sorted({*copied, *bring_to(stage, several, WRITABLE, apply)})


def restore_modes(stage: Stage, modes: Sequence[tuple[str, int]]) -> None:
    """Give directories the mode of the manifest, which a run that was killed could not do."""
    for path, mode in modes:
        os.chmod(os.path.join(stage.prefix, path), mode)

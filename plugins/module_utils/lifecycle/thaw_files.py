# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Files of a frozen release are replaced, never edited where they are.

A process that has the old file open or mapped keeps it, another release that shares it through a hard link does too,
and a run that dies leaves the old file or the new one. A copy is made beside the records of the release, on the same
file system, and renamed into place; a directory that is frozen is writable for its owner meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from typing import Iterator, Sequence

from ..core.errors import StackError, system_remedy
from ..trees import boundary
from ..trees import counters as tally
from ..trees import permissions as tree
from ..trees.dir_handles import OPEN_DIRECTORY, choose_chmod
from ..trees.policy import FROZEN, WRITABLE, Policy
from .thaw_paths import Named

LISTED = 100


class Stage:
    """Where files are prepared: a directory of the release's later records.

    Args:
        root: the directory that holds the releases.
        release: the release.
    """

    def __init__(self, root: str, release: str) -> None:
        self.root = os.path.realpath(root)
        self.release = release
        self.prefix = os.path.join(self.root, release)
        self.directory = os.path.join(self.root, ".torchstack", release, "thaw")

    def make(self) -> None:
        """Make it, with a place for the files that the operator sends."""
        os.makedirs(os.path.join(self.directory, "files"), mode=0o755, exist_ok=True)

    def sweep(self) -> None:
        """Remove it with all that is left in it."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory)

    @property
    def before(self) -> str:
        """The manifest of before the thaw."""
        return os.path.join(self.directory, "before.json")

    @property
    def sbom(self) -> str:
        """The bill of materials of after it."""
        return os.path.join(self.directory, "sbom.spdx.json")

    def sent(self, sha256: str) -> str:
        """A file that the operator sent."""
        return os.path.join(self.directory, "files", sha256)

    def place(self, source: str, path: str, mode: int | None = None) -> None:
        """Replace a file of the release by a copy of another one.

        Args:
            source: the file to copy; may be the very file.
            path: relative to the release; directories on the way are made where they are missing.
            mode: permission bits of the new file; None keeps those of the source.
        """
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
        """The open directory of a file of the release, writable meanwhile, and the file's name in it."""
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
    """A directory, by a descriptor for searching, that its owner may write to meanwhile; yields one for reading."""
    descriptor = os.open(".", OPEN_DIRECTORY, dir_fd=parent)
    try:
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        if mode & stat.S_IWUSR:
            yield descriptor
            return
        # chmod(2) takes setgid away when the owner is not in the group, and it could not be brought back.
        if mode & stat.S_ISGID and os.geteuid() and found.st_gid not in {os.getegid(), *os.getgroups()}:
            raise OSError(errno.EPERM, "its directory is setgid for a group that this account is not in")
        os.fchmod(descriptor, mode | stat.S_IWUSR)
        try:
            yield descriptor
        finally:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def refusals(step: str, prefix: str) -> Iterator[None]:
    """Turn what the file system refuses into an error that an operator can act on.

    Raises:
        StackError: the file system refused something.
    """
    try:
        yield
    except OSError as error:
        path = str(error.filename or prefix)
        raise StackError(
            "%s cannot be changed: %s." % (path, error.strerror), step,
            system_remedy(error, "Run this as the account that owns it") + ", then run it again.", path,
        ) from error


def digest_of(path: str) -> str:
    """SHA-256 of a file; empty where there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for piece in iter(lambda: stream.read(1 << 20), b""):
                digest.update(piece)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""
    return digest.hexdigest()


def files_below(prefix: str, several: Sequence[Named]) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files that are named, or lie in a named directory, with their status."""
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


def shared(prefix: str, several: Sequence[Named]) -> list[str]:
    """Files that need a copy of their own before anybody writes to them.

    Those with further names, which would change with them; and a file that is named by itself while it is frozen, which
    running processes may have mapped.
    """
    alone = {one.path for one in several if not one.directory}
    return [path for path, found in files_below(prefix, several)
            if found.st_nlink > 1 or (path in alone and not found.st_mode & stat.S_IWUSR)]


def bring_to(stage: Stage, several: Sequence[Named], state: str, apply: bool) -> list[str]:
    """Give everything that is named the permissions of a state.

    Args:
        stage: of which release.
        several: the paths; what is not there is passed over.
        state: ``frozen`` or ``writable``.
        apply: change them, or only tell.

    Returns:
        the first paths that differed.

    Raises:
        StackError: something there is not this account's to change.
    """
    policy = Policy(state)
    changed = []
    for one in several:
        path = os.path.join(stage.prefix, one.path)
        if one.directory:
            if os.path.isdir(path) and not os.path.islink(path):
                one_pass = tree.Pass(policy, apply, limit=LISTED)
                total = one_pass.over(stage.root, os.path.join(stage.release, one.path))
                problem = tally.problem(total, path)
                if problem is not None:
                    raise problem
                changed += [os.path.normpath(os.path.join(one.path, entry["path"]))
                            for entry in tally.as_result(total)["drift"]]  # type: ignore[attr-defined] # a list
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
    """Make what is named writable for its owner, each file with further names a file of its own.

    Returns:
        the paths that had to be changed; the first ones of many.
    """
    copied = shared(stage.prefix, several)
    if apply:
        for path in copied:
            source = os.path.join(stage.prefix, path)
            stage.place(source, path, stat.S_IMODE(os.lstat(source).st_mode) | stat.S_IWUSR)
    return sorted({*copied, *bring_to(stage, several, WRITABLE, apply)})


def restore_modes(stage: Stage, modes: Sequence[tuple[str, int]]) -> None:
    """Give directories the mode that the manifest has for them, which a run that died could not do any more."""
    for path, mode in modes:
        os.chmod(os.path.join(stage.prefix, path), mode)

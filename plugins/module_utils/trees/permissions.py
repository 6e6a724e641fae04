# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A tree is brought to a permission policy: walked, planned and changed in one pass, without leaving the tree.

Every name is opened or looked at relative to the open directory that holds it, never followed where it is a symbolic
link, so that nobody who swaps a name for a link in between can lead the walk or a chmod outside (see
:mod:`directories`). A directory is changed through its own descriptor, before what it holds: policies leave its owner
r and x (see :mod:`modes`), so the walk never takes from itself what it needs, and one that it cannot read yet is
repaired first.

Directories are work items of a few threads: system calls release the interpreter lock, and on a parallel file system
each waits for a server. Where calls are quick, more threads only pass the lock around, and processes of their own help
(see :mod:`crew`). So one thread begins, and the others, threads or processes, start once it shows what calls cost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import threading
import time
from typing import Iterable, NamedTuple, Sequence

from ..core.errors import StackError, system_remedy
from ..core.globs import compile_globs
from ..core.text import in_words, readable
from .boundary import open_parent
from .counters import Drift, Tally, as_result
from .dir_handles import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
    choose_chmod,
    patiently,
)
from .policy import Policy
from .workers import AGAIN, Chunk, Workers

CHUNK = 256
"""Entries of one directory that a thread works off before it looks whether others are idle."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def _listed(descriptor: int) -> list[tuple[str, int]]:
    """The names of an open directory, and what they are: directory, symbolic link, or anything else."""
    with os.scandir(descriptor) as entries:
        return [
            (
                entry.name,
                stat.S_IFDIR if entry.is_dir(follow_symlinks=False)
                else stat.S_IFLNK if entry.is_symlink() else stat.S_IFREG,
            )
            for entry in entries
        ]


class Plan(NamedTuple):
    """What an entry's ``st_mode`` asks for: bits before and after, and what is special about it."""

    before: int
    after: int
    special: str

    @property
    def differs(self) -> bool:
        """Whether there is anything to change."""
        return self.before != self.after


class Pass(Workers):
    """One pass over a tree.

    Args:
        policy: what each mode becomes.
        apply: change what differs, or only report it.
        exclude: relative globs; what matches is left alone, with everything below it.
        workers: threads; 0 begins with one and adds threads where calls are slow, processes where they are quick.
        limit: how many entries of each kind are listed.
        handles: how many directories may stay open.
    """

    def __init__(
        self, policy: Policy, apply: bool, exclude: Iterable[str] = (), workers: int = 0, limit: int = 100,
        handles: int = 0,
    ) -> None:
        self.policy = policy
        self.apply = apply
        self.exclude = compile_globs(exclude)
        super().__init__(workers, limit)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.capacity = handles or max(16, min(256, soft // 4))
        self.chmod = choose_chmod()
        self.uid = os.geteuid()
        self.groups = {os.getegid(), *os.getgroups()}
        self.plans: dict[int, Plan] = {}
        self.links: dict[tuple[int, int], int] = {}
        self.lock = threading.Lock()

    def over(self, root: str, relative: str) -> Tally:
        """Walk the tree ``relative`` to the boundary ``root``, both from :func:`locate`.

        Raises:
            StackError: the tree cannot be opened, or its file system fails.
        """
        path = os.path.normpath(os.path.join(root, relative))
        try:
            with open_parent(root, relative) as (parent, name):
                return self.run(parent, name)
        except StackError as error:
            done = self._total()
            counts = "%s%d of the %d files and %d of the %d directories" % (
                "" if self.certain else "at least ", done.changed_files, done.files, done.changed_directories,
                done.directories,
            )
            raise StackError(
                "%s; before that, %s seen below %s were %s." % (
                    error.message.rstrip("."), counts, path, "changed" if self.apply else "found to change"
                ), error.failed_step, error.remedy, os.path.normpath(os.path.join(path, error.path)), **as_result(done),
            ) from error
        except OSError as error:
            raise StackError(
                "Cannot walk %s: %s." % (path, error.strerror), "apply", system_remedy(error, "Correct that") + AGAIN,
                path,
            ) from error

    def run(self, parent: int, name: str) -> Tally:
        """Walk the directory ``name`` of the open directory ``parent``.

        Raises:
            OSError: the tree itself cannot be opened, or a file system fails.
        """
        began = time.perf_counter()
        tally = self._tally()
        self._look_anew(tally)
        self.top = top = Directory(None, name)
        descriptor = self._open(top, parent, tally)
        if descriptor is not None:
            self.handles = Handles(top, descriptor, self.capacity)
            try:
                self.work.put(top)
                self._rounds(tally)
                if self.crew is not None:
                    self._gather(tally)
            except StackError as error:
                self.certain = False
                self.work.fail(error)
            finally:
                self._join()
                if self.crew is not None:
                    self.crew.dismiss()
                self.handles.close()
                os.close(descriptor)
        if descriptor is not None and self.work.failure is not None:
            raise self.work.failure
        total = self._total()
        total.seconds = round(time.perf_counter() - began, 3)
        return total

    def _total(self) -> Tally:
        total = Tally(self.limit)
        for part in self.tallies:
            total.merge(part)
        total.hardlinked_outside = sum(1 for left in self.links.values() if left > 0)
        return total

    def _directory(self, directory: Directory, tally: Tally) -> None:
        """Open a directory, bring it to the policy, and turn what it holds into work."""
        parent = directory.parent
        if parent is None:
            descriptor: int | None = self.handles.descriptor
        else:
            try:
                with self.handles.use(parent) as above:
                    descriptor = self._open(directory, above, tally)
            except OSError as error:
                self._failed(directory.path(), error, tally)
                descriptor = None
            self.handles.release(parent)
        if descriptor is None:
            return
        self.handles.keep(directory, descriptor)
        try:
            with self.handles.use(directory) as held:
                self._read(directory, held, tally)
        except OSError as error:
            self._failed(directory.path(), error, tally)
        finally:
            self.handles.release(directory)
        self._consider_help(tally)

    def _open(self, directory: Directory, above: int, tally: Tally) -> int | None:
        """Open a directory for reading, repaired where it has to be; None where it cannot be read in check mode."""
        try:
            descriptor = os.open(directory.name, OPEN_DIRECTORY, dir_fd=above)
        except OSError as error:
            if error.errno != errno.EACCES:
                raise
            found = patiently(os.stat, directory.name, dir_fd=above, follow_symlinks=False)
            plan = self._plan(found.st_mode)
            if plan.special != "directory" or not plan.differs:
                raise
            if not self._may_change(directory, "", found, plan, tally):
                return None
            tally.directories += 1
            tally.changed_directories += 1
            if not self.apply:
                tally.unseen.add(lambda: readable(directory.path()))
                return None
            try:
                self.chmod(above, directory.name, plan.after)
            except OSError as refusal:
                raise self._replaced(above, directory.name, refusal) from refusal
            return self._identified(directory, os.open(directory.name, OPEN_DIRECTORY, dir_fd=above))
        self._identified(directory, descriptor)
        found = patiently(os.fstat, descriptor)
        tally.directories += 1
        plan = self.plans.get(found.st_mode) or self._plan(found.st_mode)
        if plan.differs and self._may_change(directory, "", found, plan, tally):
            if self.apply:
                try:
                    os.fchmod(descriptor, plan.after)
                except OSError as error:
                    try:
                        self._failed(directory.path(), error, tally)
                    except StackError:
                        os.close(descriptor)
                        raise
                    return descriptor
            tally.changed_directories += 1
        if not self.apply and self.uid and not found.st_mode & stat.S_IXUSR:
            tally.unseen.add(lambda: readable(directory.path()))
            os.close(descriptor)
            return None
        return descriptor

    @staticmethod
    def _identified(directory: Directory, descriptor: int) -> int:
        found = patiently(os.fstat, descriptor)
        directory.identity = (found.st_dev, found.st_ino)
        return descriptor

    def _read(self, directory: Directory, descriptor: int, tally: Tally) -> None:
        """Turn the entries of an open directory into work, and do the part of it that no idle thread takes."""
        prefix = ""
        if self.exclude is not None and directory.parent is not None:
            prefix = directory.path() + "/"
        names: list[str] = []
        for name, kind in patiently(_listed, descriptor):
            if self.exclude is not None and self.exclude.fullmatch(prefix + name):
                tally.excluded += 1
            elif kind == stat.S_IFREG:
                names.append(name)
                if len(names) == CHUNK:
                    self._share(directory, descriptor, names, tally)
                    names = []
            elif kind == stat.S_IFDIR:
                self._descend(directory, name)
            else:
                tally.symlinks += 1
        self._files(directory, descriptor, names, tally)

    def _descend(self, directory: Directory, name: str) -> None:
        self.handles.expect(directory)
        self.work.put(Directory(directory, name))

    def _share(self, directory: Directory, descriptor: int, names: list[str], tally: Tally) -> None:
        if self.work.hungry or (self.crew is not None and self.crew.hungry):
            self.handles.expect(directory)
            self.work.put(Chunk(directory, names))
            self._give()
        else:
            self._files(directory, descriptor, names, tally)
            self._consider_help(tally)

    def _chunk(self, chunk: Chunk, tally: Tally) -> None:
        """Work off files that another thread has found."""
        try:
            with self.handles.use(chunk.directory) as descriptor:
                self._files(chunk.directory, descriptor, chunk.names, tally)
        except OSError as error:
            self._failed(chunk.directory.path(), error, tally)
        self.handles.release(chunk.directory)

    def _files(self, directory: Directory, descriptor: int, names: Sequence[str], tally: Tally) -> None:
        """Bring everything but directories to the policy."""
        plans, lstat, chmod = self.plans, os.stat, self.chmod
        uid, drift = self.uid, tally.drift
        later: list[str] = []
        for name in names:
            try:  # the common cases first, without a call: this loop is most of the time
                found = lstat(name, dir_fd=descriptor, follow_symlinks=False)
                plan = plans.get(found.st_mode) or self._plan(found.st_mode)
                if plan.special == "directory":
                    self._descend(directory, name)
                    continue
                if plan.special == "symlink":
                    tally.symlinks += 1
                    continue
                if found.st_nlink > 1 and self.put_off is not None:
                    later.append(name)
                    continue
                tally.files += 1
                if plan.special:
                    tally.special.add(lambda: (directory.path(name), plan.special, plan.before))  # noqa: B023 called at once
                if found.st_nlink > 1:
                    tally.hardlinked += 1
                    if self._seen(found):
                        continue
                if plan.before == plan.after:
                    continue
                if found.st_uid == uid and drift.full and not plan.special:
                    drift.total += 1
                elif not self._may_change(directory, name, found, plan, tally):
                    continue
                if self.apply:
                    chmod(descriptor, name, plan.after)
                tally.changed_files += 1
            except InterruptedError:  # by a look, which counts nothing; changes are made again by themselves
                self._files(directory, descriptor, [name], tally)
            except OSError as error:
                self._failed(directory.path(name), self._replaced(descriptor, name, error), tally)
        if later and self.put_off is not None:
            self.put_off.append((directory.trail(), later))

    @staticmethod
    def _replaced(above: int, name: str, error: OSError) -> OSError:
        """The same error, or ELOOP where a link has taken the name meanwhile; fchmodat2(2) says EOPNOTSUPP to that."""
        if error.errno == errno.EOPNOTSUPP:
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(patiently(os.stat, name, dir_fd=above, follow_symlinks=False).st_mode):
                    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return error

    def _plan(self, mode: int) -> Plan:
        """What a mode asks for; the same for every entry that has it."""
        before = stat.S_IMODE(mode)
        if stat.S_ISDIR(mode):
            plan = Plan(before, self.policy.target(mode), "directory")
        elif stat.S_ISLNK(mode):
            plan = Plan(before, before, "symlink")
        else:
            special = _SPECIAL.get(stat.S_IFMT(mode), "")
            if not special and before & (stat.S_ISUID | stat.S_ISGID):
                special = "setuid" if before & stat.S_ISUID else "setgid"
            plan = Plan(before, self.policy.target(mode), special)
        self.plans[mode] = plan
        return plan

    def _seen(self, found: os.stat_result) -> bool:
        """Whether another name of this file came before; counts the names that are still to come."""
        key = (found.st_dev, found.st_ino)
        with self.lock:
            left = self.links.get(key)
            self.links[key] = (found.st_nlink if left is None else left) - 1
        return left is not None

    def _may_change(
        self, directory: Directory, name: str, found: os.stat_result, plan: Plan, tally: Tally
    ) -> bool:
        """Whether an entry that differs from the policy may be changed; lists it either way.

        The kernel takes setgid away at a chmod by an owner who is not in the group (chmod(2)): such an entry is not
        touched, since the bit could not be brought back.
        """
        if self.uid and found.st_uid != self.uid:
            tally.foreign.add(lambda: readable(directory.path(name)))
            return False
        if self.uid and plan.after & stat.S_ISGID and found.st_gid not in self.groups:
            tally.setgid_lost.add(lambda: readable(directory.path(name)))
            return False
        tally.drift.add(lambda: Drift(readable(directory.path(name)), plan.before, plan.after))
        return True

    def _failed(self, path: str, error: OSError, tally: Tally) -> None:
        """Count an entry that is gone, list one that refuses, give up where the file system as a whole does."""
        if error.errno in _GONE:
            tally.vanished += 1
        elif error.errno in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
            tally.refused.add(lambda: "%s (%s)" % (readable(path), error.strerror))
        else:
            raise StackError(
                "Cannot %s %s: %s." % ("change" if self.apply else "look at", in_words(path), error.strerror), "apply",
                system_remedy(error, "Correct that") + AGAIN, readable(path),
            ) from error

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A tree is brought to a permission policy: walked, planned and changed in one pass, without leaving the tree.

Every name is opened or looked at relative to the open directory that holds it, never followed where it is a symbolic
link, so that nobody who swaps a name for a link in between can lead the walk or a chmod outside (see
:mod:`directories`). A directory is changed through its own descriptor, before what it holds: policies leave its owner
r and x (see :mod:`modes`), so the walk never takes from itself what it needs, and one that it cannot read yet is
repaired first.

Directories are work items of a few threads: system calls release the interpreter lock, and on a parallel file system
each waits for a server. Where calls are quick, more threads only pass the lock around; so one thread begins, and the
others start once calls turn out to be slow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import stat
import threading
import time
from typing import Iterable, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.boundary import open_parent
from ansible_collections.hpcml.torchstack.plugins.module_utils.directories import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
    Work,
    choose_chmod,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modes import Policy
from ansible_collections.hpcml.torchstack.plugins.module_utils.tally import Drift, Tally, readable

CHUNK = 256
"""Entries of one directory that a thread works off before it looks whether others are idle."""

SLOW = 60e-6
"""Seconds per entry above which more threads pay: two quick system calls take about 5 microseconds here, a call to a
metadata server 100 and more."""

AUTO_WORKERS = 16
"""Threads that are used once calls turn out to be slow."""


_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def compile_globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """One regular expression for relative globs: ``*`` and ``?`` stay within a name, ``**`` spans directories."""
    expressions = []
    for pattern in patterns:
        expression = ""
        for part in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", pattern.strip("/"), re.S):
            if part == "**/":
                expression += "(?:.*/)?"
            elif part == "**":
                expression += ".*"
            elif part == "*":
                expression += "[^/]*"
            elif part == "?":
                expression += "[^/]"
            elif part.startswith("[") and len(part) > 1:
                inner = part[1:-1].replace("\\", "\\\\")
                expression += "[%s]" % ("^" + inner[1:] if inner.startswith("!") else inner.replace("^", "\\^"))
            else:
                expression += re.escape(part)
        expressions.append(expression)
    return re.compile("(?:%s)" % "|".join(expressions), re.S) if expressions else None


class Plan(NamedTuple):
    """What an entry's ``st_mode`` asks for: bits before and after, and what is special about it."""

    before: int
    after: int
    special: str

    @property
    def differs(self) -> bool:
        """Whether there is anything to change."""
        return self.before != self.after


class Chunk(NamedTuple):
    """Files of one directory, for a thread to work off."""

    directory: Directory
    names: list[str]


class Pass:
    """One pass over a tree.

    Args:
        policy: what each mode becomes.
        apply: change what differs, or only report it.
        exclude: relative globs; what matches is left alone, with everything below it.
        workers: threads; 0 begins with one and adds others where calls are slow.
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
        self.workers = workers
        self.limit = limit
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.capacity = handles or max(16, min(256, soft // 4))
        self.chmod = choose_chmod()
        self.uid = os.geteuid()
        self.groups = {os.getegid(), *os.getgroups()}
        self.plans: dict[int, Plan] = {}
        self.links: dict[tuple[int, int], int] = {}
        self.lock = threading.Lock()
        self.work = Work()
        self.threads: list[threading.Thread] = []
        self.tallies: list[Tally] = []
        self.started = workers > 0

    def over(self, root: str, relative: str) -> Tally:
        """Walk the tree ``relative`` to the boundary ``root``, both from :func:`locate`.

        Raises:
            StackError: the tree cannot be opened, or its file system fails.
        """
        try:
            with open_parent(root, relative) as (parent, name):
                return self.run(parent, name)
        except OSError as error:
            raise StackError(
                "Cannot walk %s: %s." % (os.path.join(root, relative), error.strerror), "apply",
                "Correct that, then run it again: what is done stays done.", os.path.join(root, relative),
            ) from error

    def run(self, parent: int, name: str) -> Tally:
        """Walk the directory ``name`` of the open directory ``parent``.

        Raises:
            OSError: the tree itself cannot be opened, or a file system fails.
        """
        began = time.perf_counter()
        self.began = began
        tally = self._tally()
        top = Directory(None, name)
        descriptor = self._open(top, parent, tally)
        if descriptor is not None:
            self.handles = Handles(top, descriptor, self.capacity)
            try:
                self.work.put(top)
                self._start(max(0, self.workers - 1))
                self._serve(tally)
            finally:
                for thread in self.threads:
                    thread.join()
                self.handles.close()
                os.close(descriptor)
            if self.work.failure is not None:
                raise self.work.failure
        total = Tally(self.limit)
        for part in self.tallies:
            total.merge(part)
        total.hardlinked_outside = sum(1 for left in self.links.values() if left > 0)
        total.seconds = round(time.perf_counter() - began, 3)
        return total

    def _tally(self) -> Tally:
        self.tallies.append(Tally(self.limit))
        return self.tallies[-1]

    def _start(self, count: int) -> None:
        for _number in range(count):
            self.threads.append(threading.Thread(target=self._serve, args=(self._tally(),), daemon=True))
            self.threads[-1].start()

    def _serve(self, tally: Tally) -> None:
        """Work off items until there are none."""
        try:
            while True:
                item = self.work.get()
                if item is None:
                    return
                if isinstance(item, Chunk):
                    self._chunk(item, tally)
                elif isinstance(item, Directory):
                    self._directory(item, tally)
                self.work.done()
        except BaseException as error:  # an interrupt, too, has to stop the other threads before it goes on
            self.work.fail(error)

    def _consider_help(self, tally: Tally) -> None:
        """Start the other threads once what one thread has seen shows that calls wait for a server."""
        seen = tally.files + tally.directories + tally.symlinks
        if not self.started and seen >= 64 and (time.perf_counter() - self.began) / seen > SLOW:
            self.started = True
            self._start(AUTO_WORKERS - 1)

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
            found = os.stat(directory.name, dir_fd=above, follow_symlinks=False)
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
        found = os.fstat(descriptor)
        tally.directories += 1
        plan = self.plans.get(found.st_mode) or self._plan(found.st_mode)
        if plan.differs and self._may_change(directory, "", found, plan, tally):
            if self.apply:
                try:
                    os.fchmod(descriptor, plan.after)
                except OSError as error:
                    self._failed(directory.path(), error, tally)
                    return descriptor
            tally.changed_directories += 1
        if not self.apply and self.uid and not found.st_mode & stat.S_IXUSR:
            tally.unseen.add(lambda: readable(directory.path()))
            os.close(descriptor)
            return None
        return descriptor

    @staticmethod
    def _identified(directory: Directory, descriptor: int) -> int:
        found = os.fstat(descriptor)
        directory.identity = (found.st_dev, found.st_ino)
        return descriptor

    def _read(self, directory: Directory, descriptor: int, tally: Tally) -> None:
        """Turn the entries of an open directory into work, and do the part of it that no idle thread takes."""
        prefix = ""
        if self.exclude is not None and directory.parent is not None:
            prefix = directory.path() + "/"
        names: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if self.exclude is not None and self.exclude.fullmatch(prefix + entry.name):
                    tally.excluded += 1
                elif entry.is_symlink():
                    tally.symlinks += 1
                elif entry.is_dir(follow_symlinks=False):
                    self._descend(directory, entry.name)
                else:
                    names.append(entry.name)
                    if len(names) == CHUNK:
                        self._share(directory, descriptor, names, tally)
                        names = []
        self._files(directory, descriptor, names, tally)

    def _descend(self, directory: Directory, name: str) -> None:
        self.handles.expect(directory)
        self.work.put(Directory(directory, name))

    def _share(self, directory: Directory, descriptor: int, names: list[str], tally: Tally) -> None:
        if self.work.hungry:
            self.handles.expect(directory)
            self.work.put(Chunk(directory, names))
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
            except OSError as error:
                self._failed(directory.path(name), self._replaced(descriptor, name, error), tally)

    @staticmethod
    def _replaced(above: int, name: str, error: OSError) -> OSError:
        """The same error, or ELOOP where a link has taken the name meanwhile; fchmodat2(2) says EOPNOTSUPP to that."""
        if error.errno == errno.EOPNOTSUPP:
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
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
                "Cannot change %s: %s." % (readable(path), error.strerror), "apply",
                "Correct the file system, then run it again: what is done stays done.", readable(path),
            ) from error

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Bring a tree to a permission policy: walk, plan and change it in one pass, without leaving the tree.

Every name is opened or looked at relative to the open directory that holds it, never followed where it is a symbolic
link, so that nobody who swaps a name for a link in between can lead the walk or a chmod outside (see
:mod:`dir_handles`). A directory is changed through its own descriptor, before what it holds: policies leave its owner
r and x (see :mod:`policy`), so the walk never takes from itself what it needs, and one that it cannot read yet is
repaired first.

Directories are work items of a few threads: system calls release the interpreter lock, and on a parallel file system
each waits for a server. Where calls are quick, more threads only pass the lock around, and further processes help (see
:mod:`process_pool`). So one thread begins, and the others, threads or processes, start once it shows what calls cost.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Iterable, Sequence

from ..core.errors import StackError, system_remedy
from ..core.globs import compile_globs
from .boundary import open_parent
from .counters import Counters, as_result
from .dir_handles import Directory, Handles, default_capacity, retry_interrupted
from .mode_changes import ModeChanges, explain_refusal
from .policy import FROZEN, Policy
from .work_queue import Chunk
from .workers import RUN_AGAIN, Workers

CHUNK = 256
"""Entries of one directory that a thread works off before it looks whether others are idle."""


def _listed(descriptor: int) -> list[tuple[str, int]]:
    """List the names of an open directory, and what they are: directory, link, or anything else."""
    with os.scandir(descriptor) as entries:
        return [
            (entry.name, stat.S_IFDIR if entry.is_dir(follow_symlinks=False)
             else stat.S_IFLNK if entry.is_symlink() else stat.S_IFREG) for entry in entries
        ]


class Pass(Workers):
    """Bring a tree to a policy in one pass, or only report what differs.

    What matches relative globs is left alone, with everything below it. With 0 workers it begins with one thread and
    adds threads where calls are slow, processes where they are quick. Of each kind ``limit`` entries are listed.
    """

    def __init__(
        self, policy: Policy, apply: bool, exclude: Iterable[str] = (), workers: int = 0, limit: int = 100,
        handles: int = 0,
    ) -> None:
        super().__init__(workers, limit)
        self.changes = ModeChanges(policy, apply)
        self.exclude = compile_globs(exclude)
        self.capacity = handles or default_capacity()

    def over(self, root: str, relative: str) -> Counters:
        """Walk the tree ``relative`` to ``root``, both from :func:`boundary.locate`.

        StackError: the tree cannot be opened, or its file system fails.
        """
        path = os.path.normpath(os.path.join(root, relative))
        try:
            with open_parent(root, relative) as (parent, name):
                return self.run(parent, name)
        except StackError as error:
            done = self._total()
            counts = "%s%d of the %d files and %d of the %d directories" % (
                "" if self.is_complete else "at least ", done.changed_files, done.files, done.changed_directories,
                done.directories,
            )
            raise StackError(
                "%s; before that, %s seen below %s were %s." % (
                    error.message.rstrip("."), counts, path, "changed" if self.changes.apply else "found to change"
                ), error.failed_step, error.remedy, os.path.normpath(os.path.join(path, error.path)), **as_result(done),
            ) from error
        except OSError as error:
            raise StackError(
                "Cannot walk %s: %s." % (path, error.strerror), "apply",
                system_remedy(error, "Correct that") + RUN_AGAIN, path,
            ) from error

    def run(self, parent: int, name: str) -> Counters:
        """Walk the directory ``name`` of the open directory ``parent``; OSError: it cannot be opened, or fails."""
        began = time.perf_counter()
        counters = self._new_counters()
        self._restart_timing(counters)
        self.top = top = Directory(None, name)
        descriptor = self.changes.open_directory(top, parent, counters)
        if descriptor is not None:
            self.handles = Handles(top, descriptor, self.capacity)
            try:
                self.work.put(top)
                self._work_until_done(counters)
                if self.pool is not None:
                    self._merge_results(counters)
            except StackError as error:
                self.is_complete = False
                self.work.fail(error)
            finally:
                self._join()
                if self.pool is not None:
                    self.pool.shutdown()
                self.handles.close()
                os.close(descriptor)
        if descriptor is not None and self.work.failure is not None:
            raise self.work.failure
        total = self._total()
        total.seconds = round(time.perf_counter() - began, 3)
        return total

    def _total(self) -> Counters:
        total = Counters(self.limit)
        for part in self.all_counters:
            total.merge(part)
        total.hardlinked_outside = sum(1 for left in self.changes.links.values() if left > 0)
        return total

    def _directory(self, directory: Directory, counters: Counters) -> None:
        """Open a directory, bring it to the policy, and turn what it holds into work."""
        parent = directory.parent
        if parent is None:
            descriptor: int | None = self.handles.descriptor
        else:
            try:
                with self.handles.use(parent) as above:
                    descriptor = self.changes.open_directory(directory, above, counters)
            except OSError as error:
                self.changes.failed(directory.path(), error, counters)
                descriptor = None
            self.handles.release(parent)
        if descriptor is None:
            return
        self.handles.keep(directory, descriptor)
        try:
            with self.handles.use(directory) as held:
                self._read(directory, held, counters)
        except OSError as error:
            self.changes.failed(directory.path(), error, counters)
        finally:
            self.handles.release(directory)
        self._add_workers(counters)

    def _read(self, directory: Directory, descriptor: int, counters: Counters) -> None:
        """Turn the entries of an open directory into work; do what no idle thread takes."""
        prefix = ""
        if self.exclude is not None and directory.parent is not None:
            prefix = directory.path() + "/"
        names: list[str] = []
        for name, kind in retry_interrupted(_listed, descriptor):
            if self.exclude is not None and self.exclude.fullmatch(prefix + name):
                counters.excluded += 1
            elif kind == stat.S_IFREG:
                names.append(name)
                if len(names) == CHUNK:
                    self._share(directory, descriptor, names, counters)
                    names = []
            elif kind == stat.S_IFDIR:
                self._descend(directory, name)
            else:
                counters.symlinks += 1
        self._files(directory, descriptor, names, counters)

    def _descend(self, directory: Directory, name: str) -> None:
        self.handles.expect(directory)
        self.work.put(Directory(directory, name))

    def _share(self, directory: Directory, descriptor: int, names: list[str], counters: Counters) -> None:
        if self.work.has_idle_worker or (self.pool is not None and self.pool.has_idle_worker):
            self.handles.expect(directory)
            self.work.put(Chunk(directory, names))
            self._hand_over()
        else:
            self._files(directory, descriptor, names, counters)
            self._add_workers(counters)

    def _chunk(self, chunk: Chunk, counters: Counters) -> None:
        """Work off files that another thread has found."""
        try:
            with self.handles.use(chunk.directory) as descriptor:
                self._files(chunk.directory, descriptor, chunk.names, counters)
        except OSError as error:
            self.changes.failed(chunk.directory.path(), error, counters)
        self.handles.release(chunk.directory)

    def _files(self, directory: Directory, descriptor: int, names: Sequence[str], counters: Counters) -> None:
        """Bring everything but directories to the policy."""
        changes, lstat = self.changes, os.stat
        apply, chmod, plans, uid, drift = changes.apply, changes.chmod, changes.plans, changes.uid, counters.drift
        later: list[str] = []
        look = changes.policy.state == FROZEN
        for name in names:
            try:  # the common cases first, without a call: this loop is most of the time
                found = lstat(name, dir_fd=descriptor, follow_symlinks=False)
                plan = plans.get(found.st_mode) or changes.plan(found.st_mode)
                if plan.special == "directory":
                    self._descend(directory, name)
                    continue
                if plan.special == "symlink":
                    counters.symlinks += 1
                    continue
                if found.st_nlink > 1 and self.deferred is not None:
                    later.append(name)
                    continue
                counters.files += 1
                if plan.special:
                    counters.special.add(lambda: (directory.path(name), plan.special, plan.before))  # noqa: B023 called at once
                if look and plan.before & 0o111 and not plan.special:
                    target = "/proc/self/fd/%d/%s" % (descriptor, name)
                    changes.note_attributes(directory, name, target, found, counters)
                if found.st_nlink > 1:
                    counters.hardlinked += 1
                    if changes.count_name(found):
                        continue
                if plan.before == plan.after:
                    continue
                if found.st_uid == uid and drift.full and not plan.special:
                    drift.total += 1
                elif not changes.may_change(directory, name, found, plan, counters):
                    continue
                if apply:
                    chmod(descriptor, name, plan.after)
                counters.changed_files += 1
            except InterruptedError:  # of a stat, before anything is counted; changes are made again
                self._files(directory, descriptor, [name], counters)
            except OSError as error:
                changes.failed(directory.path(name), explain_refusal(descriptor, name, error), counters)
        if later and self.deferred is not None:
            self.deferred.append((directory.trail(), later))

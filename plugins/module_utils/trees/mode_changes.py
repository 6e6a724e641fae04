# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Decide about the mode of each entry of a tree, and open directories, repaired on the way."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from typing import NamedTuple

from ..core.errors import StackError, system_remedy
from ..core.text import in_words, readable
from .counters import Counters, ModeChange
from .dir_handles import OPEN_DIRECTORY, Directory, retry_interrupted
from .extended_attributes import hands_on_writing, is_capable
from .nofollow_chmod import choose_chmod
from .policy import FROZEN, Policy
from .workers import RUN_AGAIN

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


CAPABILITIES, DEFAULT_LIST = "file capabilities", "default access list"
"""Kinds of what is special by an extended attribute."""


class Plan(NamedTuple):
    """Describe what an ``st_mode`` asks for: bits before and after, and what is special about it."""

    before: int
    after: int
    special: str

    @property
    def differs(self) -> bool:
        """Tell whether there is anything to change."""
        return self.before != self.after


class ModeChanges:
    """Decide which modes a policy changes, and note what is changed, or only reported, or refused."""

    def __init__(self, policy: Policy, apply: bool) -> None:
        self.policy = policy
        self.apply = apply
        self.chmod = choose_chmod()
        self.uid = os.geteuid()
        self.groups = {os.getegid(), *os.getgroups()}
        self.plans: dict[int, Plan] = {}
        self.links: dict[tuple[int, int], int] = {}
        """Names still to come of each file that has several, by device and inode."""
        self._lock = threading.Lock()

    def open_directory(self, directory: Directory, above: int, counters: Counters) -> int | None:
        """Open a directory for reading, repaired where needed; None if it is unreadable in check mode."""
        try:
            descriptor = os.open(directory.name, OPEN_DIRECTORY, dir_fd=above)
        except OSError as error:
            if error.errno != errno.EACCES:
                raise
            found = retry_interrupted(os.stat, directory.name, dir_fd=above, follow_symlinks=False)
            plan = self.plan(found.st_mode)
            if plan.special != "directory" or not plan.differs:
                raise
            if not self.may_change(directory, "", found, plan, counters):
                return None
            counters.directories += 1
            counters.changed_directories += 1
            if not self.apply:
                counters.unseen.add(lambda: readable(directory.path()))
                return None
            try:
                self.chmod(above, directory.name, plan.after)
            except OSError as refusal:
                raise explain_refusal(above, directory.name, refusal) from refusal
            return self._remember_identity(directory, os.open(directory.name, OPEN_DIRECTORY, dir_fd=above))
        self._remember_identity(directory, descriptor)
        found = retry_interrupted(os.fstat, descriptor)
        counters.directories += 1
        self.note_attributes(directory, "", descriptor, found, counters)
        plan = self.plans.get(found.st_mode) or self.plan(found.st_mode)
        if plan.differs and self.may_change(directory, "", found, plan, counters):
            if self.apply:
                try:
                    os.fchmod(descriptor, plan.after)
                except OSError as error:
                    try:
                        self.failed(directory.path(), error, counters)
                    except StackError:
                        os.close(descriptor)
                        raise
                    return descriptor
            counters.changed_directories += 1
        if not self.apply and self.uid and not found.st_mode & stat.S_IXUSR:
            counters.unseen.add(lambda: readable(directory.path()))
            os.close(descriptor)
            return None
        return descriptor

    @staticmethod
    def _remember_identity(directory: Directory, descriptor: int) -> int:
        found = retry_interrupted(os.fstat, descriptor)
        directory.identity = (found.st_dev, found.st_ino)
        return descriptor

    def note_attributes(
        self, directory: Directory, name: str, target: int | str, found: os.stat_result, counters: Counters,
    ) -> None:
        """List a directory whose access list lets others write what comes into it, and a file with capabilities."""
        if self.policy.state != FROZEN:
            return
        ask, kind = (is_capable, CAPABILITIES) if name else (hands_on_writing, DEFAULT_LIST)
        # What may be written or gone is said elsewhere.
        with contextlib.suppress(OSError):
            if ask(target):
                mode = stat.S_IMODE(found.st_mode)
                counters.special.add(lambda: (directory.path(name) or ".", kind, mode))

    def plan(self, mode: int) -> Plan:
        """Plan what becomes of a mode; the same for every entry that has it."""
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

    def count_name(self, found: os.stat_result) -> bool:
        """Tell whether another name of this file came before; counts the names still to come."""
        key = (found.st_dev, found.st_ino)
        with self._lock:
            left = self.links.get(key)
            self.links[key] = (found.st_nlink if left is None else left) - 1
        return left is not None

    def may_change(
        self, directory: Directory, name: str, found: os.stat_result, plan: Plan, counters: Counters
    ) -> bool:
        """Tell whether an entry that differs from the policy may be changed; lists it either way.

        A chmod by an owner outside of the group takes setgid away (chmod(2)), and could not bring it back.
        """
        if self.uid and found.st_uid != self.uid:
            counters.foreign.add(lambda: readable(directory.path(name)))
            return False
        if self.uid and plan.after & stat.S_ISGID and found.st_gid not in self.groups:
            counters.setgid_lost.add(lambda: readable(directory.path(name)))
            return False
        counters.drift.add(lambda: ModeChange(readable(directory.path(name)), plan.before, plan.after))
        return True

    def failed(self, path: str, error: OSError, counters: Counters) -> None:
        """Count an entry that is gone, list one that refuses, give up where the file system fails."""
        if error.errno in _GONE:
            counters.vanished += 1
        elif error.errno in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
            counters.refused.add(lambda: "%s (%s)" % (readable(path), error.strerror))
        else:
            raise StackError(
                "Cannot %s %s: %s." % ("change" if self.apply else "look at", in_words(path), error.strerror), "apply",
                system_remedy(error, "Correct that") + RUN_AGAIN, readable(path),
            ) from error


def explain_refusal(above: int, name: str, error: OSError) -> OSError:
    """Return the error, or ELOOP for an EOPNOTSUPP of fchmodat2(2) where a link has taken the name meanwhile."""
    if error.errno == errno.EOPNOTSUPP:
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(retry_interrupted(os.stat, name, dir_fd=above, follow_symlinks=False).st_mode):
                return OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return error

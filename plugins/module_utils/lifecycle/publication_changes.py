# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Change what users see, one file at a time.

Each change is written to the release's journal first, then the file is renamed into place.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from ..core import json_lines, rollout_lock
from ..core.account import actor
from ..core.clock import now
from ..core.errors import StackError
from ..core.files import flush_directory, write_atomic
from ..modulefiles.layout import (
    JOURNAL,
    SYNTAXES,
    default_path,
    digest,
    hidden_path,
    make_directory,
    stage_directory,
)
from ..release.states import all_publications, number_of

SHOW, DEPRECATE, GONE, REMOVE = "show", "deprecate", "gone", "remove"
"""A modulefile: as it was verified, with a message on load, failing with a message, taken away."""

HIDE, LIST, DEFAULT = "hide", "list", "default"
"""The files beside it: kept out of ``module avail``, listed again, what ``module load NAME`` means."""

# The names of write_atomic: a dot, the file's name, a dot, and eight characters of tempfile.
_UNFINISHED = re.compile(r"\.(.+)\.[a-z0-9_]{8}")
_LISTINGS = frozenset(os.path.basename(path(syntax, "")) for syntax in SYNTAXES for path in (default_path, hidden_path))
_SHARED = re.compile(r"publish\.lock\.json(\.[0-9a-f]+)?|module_cache\.json")


class Action(NamedTuple):
    """One file that users see, before and after; None where there is none."""

    action: str
    syntax: str
    path: str
    before: bytes | None
    after: bytes | None
    version: str
    previous: str

    def as_dict(self) -> dict[str, str]:
        """Return plain data for the result and for the journal."""
        return {
            "action": self.action, "syntax": self.syntax, "path": self.path, "version": self.version,
            "previous": self.previous, "sha256": digest(self.after) if self.after is not None else ""}


def carry_out(root: str, release: str, actions: Sequence[Action], more: Mapping[str, Any]) -> None:
    """Do a plan: each action is written to the journal and then done. Whoever calls holds the root's lock.

    ``more`` is what else the journal says of each. Raises StackError: a file could not be written; everything before it
    is done.
    """
    journal = os.path.join(stage_directory(root, release), JOURNAL)
    last = max(map(number_of, all_publications(root)), default=0)
    # An operator's .version.original or .modulerc.disabled looks the same, but for the name before the last dot.
    ours = _LISTINGS | {os.path.basename(action.path) for action in actions}
    for directory in {os.path.dirname(os.path.join(root, action.path)) for action in actions}:
        _remove_unfinished(directory, 0, ours.__contains__)
    # Here others may be at it: the lock is taken by a file with such a name.
    _remove_unfinished(os.path.join(root, ".torchstack"), 3600, lambda name: _SHARED.fullmatch(name) is not None)
    for number, action in enumerate(actions, last + 1):
        path = os.path.join(root, action.path)
        try:
            make_directory(os.path.dirname(journal))
            json_lines.append(journal, {**more, **action.as_dict(), "seq": number, "time": now(), "by": actor()})
            if action.after is not None:
                make_directory(os.path.dirname(path))
                write_atomic(path, action.after, 0o644)
            else:
                os.unlink(path)
                flush_directory(os.path.dirname(path))
        except OSError as error:
            raise StackError(
                "Cannot change %s: %s." % (error.filename or path, error.strerror), action.action,
                "Run as the account that owns the root, and run this again: it goes on where it stopped.", path,
            ) from error


def is_unfinished(name: str) -> bool:
    """Tell whether a file's name is that of one which :func:`.files.write_atomic` had not finished."""
    return _UNFINISHED.fullmatch(name) is not None


def _remove_unfinished(directory: str, age: float, ours: Callable[[str], bool]) -> None:
    """Remove files of ours that a killed run had begun to write, and for ``age`` seconds nobody has written to."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            match = _UNFINISHED.fullmatch(name)
            if match is not None and ours(match.group(1)) and time.time() - os.lstat(path).st_mtime >= age:
                os.unlink(path)


WORK = "hpcml.torchstack.modulefile_publish"


def lock_path(root: str) -> str:
    """Return the lock of a root."""
    return os.path.join(root, ".torchstack", "publish.lock.json")


@contextlib.contextmanager
def publishing(root: str, patience: float = 60.0) -> Iterator[None]:
    """Hold the lock of a root while what users see below it is changed, which takes less than a second.

    Raises StackError: after ``patience`` seconds somebody else is still at it, or may be.
    """
    path, here = lock_path(root), rollout_lock.this_place()
    me = rollout_lock.describe_process(os.getpid(), WORK)
    deadline = time.monotonic() + patience
    while True:
        try:
            rollout_lock.make_directory(os.path.dirname(path))
            rollout_lock.acquire(path, me, here)
            break
        except rollout_lock.LockHeld as held:
            if time.monotonic() > deadline:
                raise _refusal(root, held, here) from held
            time.sleep(0.2)
        except OSError as error:
            raise _unwritable(path, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            rollout_lock.release(path, me)


def remove_stale_lock(root: str) -> None:
    """Take away the lock of a process that was killed when its work was done; one that is held stays."""
    path = lock_path(root)
    record = rollout_lock.read_lock(path)
    if record is not None and rollout_lock.judge(record, rollout_lock.this_place()) == rollout_lock.DEAD:
        with publishing(root):
            pass


def _refusal(root: str, held: rollout_lock.LockHeld, here: rollout_lock.Place) -> StackError:
    message = "What users see below %s is being changed: %s has held %s since %s" % (
        root, rollout_lock.describe(held.record), held.path, held.record["since"])
    if held.verdict == rollout_lock.ALIVE:
        return StackError(message + ".", "lock", "Wait for it to end, and run this again.", held.path)
    return StackError(
        "%s, and %s cannot tell whether that process is alive." % (message, here.host), "lock",
        "On %s, look with 'ps -o lstart,args -p %d'; if it is gone, remove %s and run this again." % (
            held.record["host"], held.record["pid"], held.path), held.path)


def _unwritable(path: str, error: OSError) -> StackError:
    return StackError(
        "The lock %s cannot be taken: %s." % (path, error.strerror or error), "lock",
        "Run as the account that owns the root.", path)

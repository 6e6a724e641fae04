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
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ..core import json_lines
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

ALSO = "also"
"""Any of these files of a further name of the module, which follows the module's own."""

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

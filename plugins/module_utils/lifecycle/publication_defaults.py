# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the default has moved, from the journals of all releases of a root, and where a rollback takes it."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ..modulefiles.layout import default_path
from .publication_changes import DEFAULT


class Move(NamedTuple):
    """The last move of a default."""

    release: str
    """Whose publication, or whose rollback, it was."""
    version: str
    """The default after it; empty for none."""
    previous: str
    """The default before it; empty for none."""
    undo: bool
    """Whether it was a rollback."""
    time: str
    by: str


def last_move(journal: Sequence[Mapping[str, Any]]) -> Move | None:
    """The last move of any default of a root; None where none ever moved.

    Args:
        journal: of all releases, from :func:`.release_states.all_publications`.
    """
    for entry in reversed(journal):
        if entry.get("action") == DEFAULT:
            return Move(
                str(entry.get("release", "")), str(entry.get("version", "")), str(entry.get("previous", "")),
                entry.get("undo") is True, str(entry.get("time", "")), str(entry.get("by", "")))
    return None


def last_rollback(journal: Sequence[Mapping[str, Any]], release: str) -> str:
    """When a default was last taken back from a release, in UTC; empty where it never was."""
    moves = (entry for entry in journal if entry.get("release") == release and entry.get("action") == DEFAULT)
    return max((str(entry.get("time", "")) for entry in moves if entry.get("undo") is True), default="")


def default_before(
    journal: Sequence[Mapping[str, Any]], syntax: str, name: str, version: str, loads: Callable[[str], bool]
) -> str:
    """The version that was the default before ``version`` became it, or the one before that, as far as users can load
    it; empty where there is none.

    Rollbacks do not count: what was taken back does not come again.

    Args:
        journal: of all releases, in order.
        syntax: whose default.
        name: of the module.
        version: what is the default, or is to be it no longer.
        loads: whether a version is listed and loads.
    """
    moves = [
        entry for entry in journal
        if entry.get("action") == DEFAULT and entry.get("syntax") == syntax
        and entry.get("path") == default_path(syntax, name) and entry.get("undo") is not True
    ]
    wanted = version
    while moves:
        entry = moves.pop()
        previous = str(entry.get("previous", ""))
        if entry.get("version") == wanted and previous != wanted:
            if previous == "" or (previous != version and loads(previous)):
                return previous
            wanted = previous
    return ""

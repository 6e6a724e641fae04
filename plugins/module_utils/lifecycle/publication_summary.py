# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Summarise what a publication did, and what users see then. Pure."""

from __future__ import annotations

from typing import Mapping, Sequence

from .publication_changes import Action
from .publication_facts import (
    GONE,
    HIDDEN,
    NONE,
    VISIBLE,
    Facts,
)
from .publication_first import SYSTEMS

_SEEN = {
    NONE: "Users of %s do not see %s.", VISIBLE: "Users of %s see %s in 'module avail'.",
    HIDDEN: "Users of %s can load %s by its full name, and 'module avail' does not list it.",
    GONE: "Users of %s cannot load %s any more.",
}


def summary_lines(
    before: Facts, after: Facts, actions: Sequence[Action], state: str, rolled_back_at: str, check_mode: bool
) -> list[str]:
    """Return the summary; ``rolled_back_at`` is when the default was last taken back, empty for never."""
    found = ["This is a plan, and nothing was done: what follows is how it would be."] if check_mode else []
    found.extend(
        _SEEN[seen] % (_join(syntaxes), after.full_name)
        for seen, syntaxes in _grouped({syntax: after.state(syntax) for syntax in after.syntaxes}).items())
    also = ["%s/%s" % (other.name, other.version) for other in after.others if other.record["files"]]
    if also and any(after.visible.values()):
        found.append("The same holds for %s." % " and ".join(also))
    if after.notice and any(after.visible.values()):
        found.append("Loading it says: %s" % after.notice)
    found.extend(_defaults(before, after))
    if actions:
        found.append("%s, in this order: %s." % (
            "It would change" if check_mode else "It changed", ", ".join(action.path for action in actions)))
    elif state == "rolled_back" and rolled_back_at:
        found.append("Nothing was changed: the default was taken back from %s at %s." % (
            after.full_name, rolled_back_at))
    elif state == "rolled_back":
        found.append("Nothing was changed: %s is not the default." % after.full_name)
    else:
        found.append("Nothing was changed: users saw that before.")
    if after.thawed:
        found.append("Release %s is thawed: freeze it again, and accept it." % after.release)
    return found


def _defaults(before: Facts, after: Facts) -> list[str]:
    found = []
    for (now, then), syntaxes in _grouped({
        syntax: (after.defaults[syntax], before.defaults[syntax]) for syntax in after.syntaxes
    }).items():
        was = "" if now == then else ", and was %s before" % ("%s/%s" % (after.name, then) if then else "none")
        if now:
            found.append("The default for %s is %s/%s%s." % (_join(syntaxes), after.name, now, was))
        else:
            found.append("There is no default for %s: 'module load %s' takes the highest version." % (
                _join(syntaxes), after.name))
    return found


def _grouped(values: Mapping) -> dict:
    """Return the syntaxes by what is the same for them."""
    found: dict = {}
    for syntax, value in values.items():
        found.setdefault(value, []).append(syntax)
    return found


def _join(syntaxes: Sequence[str]) -> str:
    return " and ".join(SYSTEMS[syntax] for syntax in syntaxes)

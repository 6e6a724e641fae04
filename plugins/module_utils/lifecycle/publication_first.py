# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Decide whether a rollout may move the default, and tell what users load afterwards. Pure.

A rollout is run again to see that everything is done, and for other releases than the one that users load. It makes a
release the default once, when it publishes it for the first time, and never against what was decided since.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from ..core.versions import UP, direction
from ..modulefiles.layout import default_path
from .publication_changes import DEFAULT

SYSTEMS = {"tcl": "Environment Modules", "lmod": "Lmod"}


class Candidate(NamedTuple):
    """A release that a rollout would make the default, and what is known of the default."""

    name: str
    """Of its module."""
    version: str
    """Of its module."""
    release: str
    frozen_at: str
    """When it was frozen, in UTC; empty where it is not yet."""
    defaults: Mapping[str, str]
    """The version that is the default, by each of its syntaxes; empty for none."""
    journal: Sequence[Mapping[str, Any]]
    """What users saw of all releases of the root, oldest first."""

    @property
    def full_name(self) -> str:
        """Tell what users type."""
        return "%s/%s" % (self.name, self.version)


def reason_to_keep(one: Candidate) -> str:
    """Tell why a rollout leaves the default as it is, as the end of a sentence; empty where it may move it.

    In this order: a rollback stands; the default is a later version; it was chosen when this release was there to be
    chosen; this release was published before.
    """
    moves = [entry for entry in (_last_move(one, syntax) for syntax in one.defaults) if entry is not None]
    for move in moves:
        if move.get("undo") is True:
            return "the rollback of %s by %s at %s stands" % (
                _rolled_back_from(one, move), move.get("by"), move.get("time"))
    for present in one.defaults.values():
        if present and direction(one.version, present) == UP:
            return "it is newer than %s" % one.full_name
    for move in moves:
        if one.frozen_at and str(move.get("time", "")) > one.frozen_at and move.get("release") != one.release:
            return "%s made it the default at %s, after %s was frozen" % (
                move.get("by"), move.get("time"), one.full_name)
    if _published_before(one):
        return "%s was published before, and a rollout moves the default only when it publishes for the first time" % (
            one.full_name)
    return ""


def loaded_by_default(
    one: Candidate, after: Mapping[str, str], listed: Mapping[str, bool], default: bool, first_only: bool,
    check_mode: bool = False,
) -> list[str]:
    """Tell what users get who load the module without a version, and why; one sentence for each answer.

    ``after`` and ``listed`` (whether users see any version of the module) are of then, by syntax; with ``first_only``
    this release was to be the default only where nothing stands against it.
    """
    why = "no other default was asked for"
    if default:
        why = (reason_to_keep(one) or "this publishes it for the first time") if first_only else "that was asked for"
    found: dict[str, list[str]] = {}
    for syntax in one.defaults:
        sentence = "get nothing, as no version of it is published."
        if after[syntax] or listed[syntax]:
            sentence = _loaded(one, one.defaults[syntax], after[syntax], why, check_mode)
        found.setdefault(sentence, []).append(syntax)
    if len(found) == 1:
        return ["Users who load %s %s" % (one.name, sentence) for sentence in found]
    return [
        "Users of %s who load %s %s" % (" and ".join(SYSTEMS[syntax] for syntax in syntaxes), one.name, sentence)
        for sentence, syntaxes in found.items()]


def _loaded(one: Candidate, before: str, after: str, why: str, check_mode: bool) -> str:
    if after == one.version and before == after:
        return "get %s, unchanged: it is the default." % after
    if after != before:
        return "%s %s: %s. %s." % (
            "would get" if check_mode else "get", after, why,
            "Before, they got %s" % before if before else "Before, there was no default")
    what = "get %s, unchanged" % after if after else "get whichever listed version sorts last, as there is no default"
    return "%s: %s. To move it: playbooks/publish.yml -e torchstack_release=%s -e publish_to=default." % (
        what, why, one.release)


def _last_move(one: Candidate, syntax: str) -> Mapping[str, Any] | None:
    path = default_path(syntax, one.name)
    moves = (entry for entry in reversed(one.journal) if entry.get("action") == DEFAULT and entry.get("path") == path)
    return next(moves, None)


def _rolled_back_from(one: Candidate, move: Mapping[str, Any]) -> str:
    """Return the version from which a rollback took the default."""
    return str(move.get("previous") or move.get("release") or one.name)


def _published_before(one: Candidate) -> bool:
    """Tell whether the first publication of the release is over; one that was interrupted is not.

    Its entries say that they belong to it, and it ends with the default. An entry comes before what it announces, so
    that only the very last of all may announce what was not done.
    """
    own = [entry for entry in one.journal if entry.get("release") == one.release]
    if not own:
        return False
    if any(entry.get("first") is not True for entry in own):
        return True
    last, moved = own[-1], {entry.get("syntax") for entry in own if entry.get("action") == DEFAULT}
    undone = last is one.journal[-1] and one.defaults.get(str(last.get("syntax"))) == last.get("previous")
    return moved >= set(one.defaults) and not undone

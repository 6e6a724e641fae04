# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the document with the facts of an announcement, and keep it up to date."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..core.files import read_json, write_atomic
from ..core.json_document import rendered
from ..modulefiles.layout import read_bytes, stage_directory
from ..release import states
from ..release.installed import installed
from ..release.states import ReleaseState
from . import notice_facts
from .notice_facts import Release, previous_default

NOTICE = "notice.json"
STEP = "notice"

CURRENT_KEYS = ("format", "release", "outgoing", "known_problems")
"""What an announcement says anew although nothing can be compared any more."""


def compared_releases(root: str, release: str, since: str) -> tuple[ReleaseState, ReleaseState | None]:
    """Return the release that is announced, and the one for whose users: ``since``, or the default before.

    Raises StackError: one of them is no frozen release, or both are the same.
    """
    incoming = states.one_release(root, release)
    if since == release:
        raise StackError(
            "Nothing can differ between %s and itself." % release, STEP, "Give another release as notice_since.")
    if since:
        return incoming, states.one_release(root, since, removed=True)
    known = states.all_releases(root, removed=True)
    return incoming, previous_default(incoming, known, states.all_publications(root))


def resolved_text(state: ReleaseState | None) -> str:
    """Return the resolved release file; empty where its release is gone. Raises StackError: it cannot be read."""
    if state is None:
        return ""
    path = os.path.join(state.prefix, ".torchstack", "release.yml")
    try:
        return (read_bytes(path) or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise StackError(
            "%s is no text: %s." % (path, error), STEP,
            "Compare the release with its manifest (playbooks/drift.yml).", path) from error


def write_notice(
    found: tuple[ReleaseState, ReleaseState | None], resolved: Sequence[Mapping[str, Any]],
    problems: Sequence[Any], until: str, check_mode: bool,
) -> dict[str, Any]:
    """Make sure that the document says what there is to announce.

    Of both releases, ``resolved`` has the resolved release files, empty where there is none, and ``problems`` the known
    problems, None where they are not known. Raises StackError: a file of a release cannot be read, or the document not
    be written.
    """
    described = [
        Release(state, given, installed(state.prefix, given) if given else None, known)
        for state, given, known in zip(found, resolved, problems) if state is not None]
    facts = notice_facts.notice_facts(described[0], described[1] if len(described) > 1 else None, until)
    path = os.path.join(stage_directory(found[0].root, found[0].release), NOTICE)
    facts = _earlier_differences(facts, path)
    wanted = rendered(facts)
    changed = read_bytes(path) != wanted
    if changed and not check_mode:
        try:
            write_atomic(path, wanted)
        except OSError as error:
            raise StackError(
                "The announcement %s cannot be written: %s." % (path, error.strerror), STEP,
                "Run this as the account that owns the root, and look at the space that is left.", path) from error
    return {"changed": changed, "facts": facts, "path": path}


def _earlier_differences(facts: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the differences that were announced while the files of the release before were still there."""
    if facts["compared"] or facts["outgoing"] is None:
        return facts
    try:
        before: Any = read_json(path)
        if before["compared"] and before["outgoing"]["name"] == facts["outgoing"]["name"]:
            # An earlier version wrote fewer keys.
            return {key: facts[key] if key in CURRENT_KEYS else before.get(key, facts[key]) for key in facts}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return facts

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What users see of a release: its modulefiles becoming visible, the default moving, and the release going again.

Every action changes one file by one rename (or one unlink), and is written to the release's journal before it is done,
so that an interrupted run is simply run again. The order is fixed, Tcl before Lua in each step: what loads is there
before it is listed, and listed before it is the default; the default is moved away before what it names goes, and what
goes is out of the list before it stops to load.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Sequence

from ..core.errors import StackError
from ..modulefiles.layout import (
    SYNTAXES,
    read_bytes,
    relative_path,
    visible_versions,
)
from ..modulefiles.visible_text import Added, added_to, one_line
from .publication_changes import (
    DEFAULT,
    DEPRECATE,
    GONE,
    HIDE,
    LIST,
    SHOW,
    Action,
)
from .publication_defaults import default_before
from .publication_facts import (
    STEP,
    VISIBLE,
    Facts,
)
from .publication_first import Candidate, what_stands
from .publication_plan import Plan
from .publication_rules import (
    require_not_default,
    require_not_removed,
    require_publishable,
    require_verified_bytes,
)

STATES = ("published", "rolled_back", "withdrawn", "deprecated", "hidden", "gone")


class Wish(NamedTuple):
    """What users shall see."""

    state: str = "published"
    """One of ``STATES``."""
    visible: bool = False
    """With ``published``: the modulefiles are to be visible. False leaves them as they are."""
    default: bool = False
    """With ``published``: this version is to be the default. False leaves the default as it is."""
    without_acceptance: str = ""
    """Why a release without a successful acceptance is published all the same; empty for never."""
    notice: str = ""
    """What loading a release says that is deprecated, hidden or gone; empty keeps what it says."""
    known_problems: Sequence[str] | None = None
    """What the module's help ends with; None keeps what it says."""
    revive: bool = False
    """A release that is on its way out comes back."""
    first_only: bool = False
    """With ``default``: only where this publishes the release for the first time, and nothing stands against it."""


def make_plan(facts: Facts, wish: Wish) -> list[Action]:
    """The actions that lead from what is there to what is asked for, in order; none when it is there already.

    Args:
        facts: from :func:`read_facts`.
        wish: what users shall see.

    Raises:
        StackError: the release may not be published, or a file in the way is not ours.
    """
    plan = Plan(facts)
    if wish.state == "published" and (wish.visible or wish.default):
        _publish(plan, facts, wish)
    elif wish.state == "rolled_back":
        _roll_back(plan, facts)
    elif wish.state == "withdrawn":
        _withdraw(plan, facts)
    elif wish.state in ("deprecated", "hidden", "gone"):
        _take_leave(plan, facts, wish)
    return plan.actions


def _publish(plan: Plan, facts: Facts, wish: Wish) -> None:
    require_publishable(facts, wish.without_acceptance)
    leaves = facts.leaving and not (wish.revive and wish.visible)
    unseen = not wish.visible and {facts.state(syntax) for syntax in SYNTAXES} != {VISIBLE}
    moves = wish.default and not (wish.first_only and what_stands(candidate(facts)))
    if moves and (leaves or unseen):
        raise StackError(
            "%s cannot be the default, because it is %s." % (
                facts.full_name, "on its way out, as loading it says" if leaves else "not visible"), STEP,
            "Publish it as visible %s." % (
                "again, with -e publish_revive=true" if leaves else "first, with -e publish_to=visible"),
        )
    if wish.visible and not leaves:
        for syntax in SYNTAXES:
            plan.write(SHOW, syntax, Added("", _problems(facts, syntax, wish)))
        for syntax in SYNTAXES:
            plan.list(syntax)
    if moves:
        for syntax in SYNTAXES:
            plan.move_default(syntax, facts.version)


def _roll_back(plan: Plan, facts: Facts, withdrawn: bool = False) -> None:
    for syntax in SYNTAXES:
        if facts.defaults[syntax] == facts.version and not facts.is_anothers(syntax):
            former = former_default(facts, syntax)
            if not former and not withdrawn:
                _require_alone(facts, syntax)
            plan.move_default(syntax, former)


def _require_alone(facts: Facts, syntax: str) -> None:
    """Without a default a module system takes the highest version, which nobody has chosen."""
    others = [
        version for version in visible_versions(facts.root, syntax, facts.name)
        if version != facts.version and _is_listed(facts, syntax, version)
    ]
    if others:
        raise StackError(
            "There was no default before %s, and without one users would get whichever version sorts last of %s." % (
                facts.full_name, ", ".join(others)), STEP,
            "Say which is to be the default: playbooks/publish.yml -e torchstack_release=... -e publish_to=default.",
        )


def _withdraw(plan: Plan, facts: Facts) -> None:
    _roll_back(plan, facts, withdrawn=True)
    own = [syntax for syntax in SYNTAXES if not facts.is_anothers(syntax)]
    for syntax in own:
        plan.remove(syntax)
    for syntax in own:
        plan.list(syntax)


def _take_leave(plan: Plan, facts: Facts, wish: Wish) -> None:
    """Deprecated, hidden or gone; or hidden for its testers, when nobody was told that it goes."""
    present = [syntax for syntax in SYNTAXES if facts.visible[syntax] is not None]
    told = bool(wish.notice.strip()) or facts.leaving
    if wish.state == "hidden" and not told:
        require_publishable(facts, wish.without_acceptance)
        present = list(SYNTAXES)
    elif not present:
        # Nobody sees it: there is nobody to tell, and nothing to hide.
        return
    require_verified_bytes(facts)
    _require_forward(facts, wish)
    if not told and wish.state != "hidden":
        raise StackError(
            "It is not said what loading %s shall say." % facts.full_name, STEP, "Give the sentence as notice.")
    if wish.state == "deprecated":
        for syntax in present:
            _write(plan, facts, wish, syntax)
        for syntax in present:
            plan.list(syntax)
        return
    require_not_default(facts)
    # What is not there yet is hidden before it appears, and what goes before it stops to load. Everybody else is told
    # before it is hidden.
    later = [syntax for syntax in present if wish.state == "gone" or facts.visible[syntax] is None]
    for syntax in present:
        if syntax not in later:
            _write(plan, facts, wish, syntax)
    for syntax in present:
        plan.hide(syntax)
    for syntax in later:
        _write(plan, facts, wish, syntax)


def _write(plan: Plan, facts: Facts, wish: Wish, syntax: str) -> None:
    notice = one_line(wish.notice) or facts.added(syntax).notice or facts.notice
    gone = wish.state == "gone"
    action = GONE if gone else DEPRECATE if notice else SHOW
    plan.write(action, syntax, Added(notice, () if gone else _problems(facts, syntax, wish), gone))


def _problems(facts: Facts, syntax: str, wish: Wish) -> tuple[str, ...]:
    if wish.known_problems is None:
        return tuple(facts.added(syntax).known_problems)
    return tuple(filter(None, map(one_line, wish.known_problems)))


def _require_forward(facts: Facts, wish: Wish) -> None:
    """A release on its way out goes back on it only when that is meant."""
    stages = ("visible", "hidden", "gone")
    wanted = "visible" if wish.state == "deprecated" else wish.state
    for syntax in SYNTAXES:
        now = facts.state(syntax)
        if now == "gone" and wanted != now:
            require_not_removed(facts)
        if facts.leaving and not wish.revive and now in stages and stages.index(now) > stages.index(wanted):
            raise StackError(
                "%s is %s already." % (facts.full_name, now), STEP, "To bring it back, give -e publish_revive=true.")


def candidate(facts: Facts) -> Candidate:
    """The release as one that a rollout may make the default."""
    return Candidate(
        facts.name, facts.version, facts.release, str(facts.frozen.get("frozen_at", "")), facts.defaults, facts.journal)


def listed(facts: Facts) -> dict[str, bool]:
    """Whether users see any version of the module, by syntax, with this release as the facts have it."""
    return {
        syntax: facts.state(syntax) == VISIBLE or any(
            version != facts.version and _is_listed(facts, syntax, version)
            for version in visible_versions(facts.root, syntax, facts.name))
        for syntax in SYNTAXES
    }


def former_default(facts: Facts, syntax: str) -> str:
    """The version that a rollback of this release makes the default; empty for none."""

    return default_before(
        facts.journal, syntax, facts.name, facts.version, lambda version: _is_listed(facts, syntax, version))


def _is_listed(facts: Facts, syntax: str, version: str) -> bool:
    """Whether a version is listed and loads."""
    content = read_bytes(os.path.join(facts.root, relative_path(syntax, facts.name, version)))
    return content is not None and not added_to(content).gone and version not in facts.hidden[syntax]


def facts_after(facts: Facts, actions: Sequence[Action]) -> Facts:
    """The facts as they are when a plan is done."""
    visible, defaults = dict(facts.visible), dict(facts.defaults)
    hidden = {syntax: set(facts.hidden[syntax]) for syntax in SYNTAXES}
    for action in actions:
        if action.action == DEFAULT:
            defaults[action.syntax] = action.version
        elif action.action == HIDE:
            hidden[action.syntax].add(facts.version)
        elif action.action == LIST:
            hidden[action.syntax].discard(facts.version)
        else:
            visible[action.syntax] = action.after
    return facts._replace(visible=visible, defaults=defaults, hidden=hidden)


def not_verified(facts: Facts) -> list[str]:
    """The syntaxes that no module system on the verifying machine could load."""
    checked = {entry.get("syntax") for entry in facts.record.get("checked") or []}
    return [syntax for syntax in SYNTAXES if syntax not in checked]

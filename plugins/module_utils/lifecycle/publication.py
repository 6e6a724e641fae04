# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plan what users see of a release: modulefiles, the default, and how the release goes again.

Every action changes one file by one rename (or one unlink), and is written to the release's journal before it is done,
so that an interrupted run is simply run again. The order is fixed, Tcl before Lua in each step: what loads is there
before it is listed, and listed before it is the default; the default is moved away before what it names goes, and what
goes is out of the list before it stops to load.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

from ..core.errors import StackError
from ..modulefiles.visible_text import Added, one_line
from .publication_changes import (
    ALSO,
    DEFAULT,
    DEPRECATE,
    GONE,
    HIDE,
    LIST,
    SHOW,
    Action,
)
from .publication_facts import (
    STEP,
    VISIBLE,
    Facts,
    command_of_default,
    default_before,
    is_listed,
    notice_of,
    others_listed,
)
from .publication_first import Candidate, reason_to_keep
from .publication_plan import Plan
from .publication_rules import (
    require_not_default,
    require_not_removed,
    require_publishable,
    require_verified_bytes,
)

STATES = ("published", "rolled_back", "withdrawn", "deprecated", "hidden", "gone")


class Desired(NamedTuple):
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


def make_plan(facts: Facts, desired: Desired) -> list[Action]:
    """Return the actions that lead to what is asked for, in order; none where it is there already.

    Raises StackError: the release may not be published, or a file in the way is not ours.
    """
    plan = Plan(facts)
    if desired.state == "published" and (desired.visible or desired.default):
        _publish(plan, facts, desired)
    elif desired.state == "rolled_back":
        _roll_back(plan, facts)
    elif desired.state == "withdrawn":
        _withdraw(plan, facts)
    elif desired.state in ("deprecated", "hidden", "gone"):
        _retire(plan, facts, desired)
    return plan.actions


def _publish(plan: Plan, facts: Facts, desired: Desired) -> None:
    require_publishable(facts, desired.without_acceptance)
    leaves = facts.leaving and not (desired.revive and desired.visible)
    unseen = not desired.visible and {facts.state(syntax) for syntax in facts.syntaxes} != {VISIBLE}
    moves = desired.default and not (desired.first_only and reason_to_keep(candidate_of(facts)))
    if moves and (leaves or unseen):
        raise StackError(
            "%s cannot be the default, because it is %s." % (
                facts.full_name, "on its way out, as loading it says" if leaves else "not visible"), STEP,
            "Publish it as visible %s." % (
                "again, with -e publish_revive=true" if leaves else "first, with -e publish_to=visible"))
    if desired.visible and not leaves:
        for syntax in facts.syntaxes:
            plan.write(SHOW, syntax, Added("", _problems(facts, syntax, desired)))
        for syntax in facts.syntaxes:
            plan.list(syntax)
    if moves:
        for syntax in facts.syntaxes:
            plan.move_default(syntax, facts.version)


def _roll_back(plan: Plan, facts: Facts, withdrawn: bool = False) -> None:
    for syntax in facts.syntaxes:
        if facts.defaults[syntax] == facts.version and not facts.is_anothers(syntax):
            former = former_default(facts, syntax)
            if not former and not withdrawn:
                _require_alone(facts, syntax)
            plan.move_default(syntax, former)


def _require_alone(facts: Facts, syntax: str) -> None:
    """Refuse to take the default away while others are listed: the highest would be taken, which nobody has chosen."""
    others = others_listed(facts, syntax)
    if others:
        raise StackError(
            "There was no default before %s, and without one users would get whichever version sorts last of %s." % (
                facts.full_name, ", ".join(others)), STEP,
            "Say which is to be the default, as in %s." % command_of_default(facts, syntax, others[-1]))


def _withdraw(plan: Plan, facts: Facts) -> None:
    _roll_back(plan, facts, withdrawn=True)
    own = [syntax for syntax in facts.syntaxes if not facts.is_anothers(syntax)]
    for syntax in own:
        plan.remove(syntax)
    for syntax in own:
        plan.list(syntax)


def _retire(plan: Plan, facts: Facts, desired: Desired) -> None:
    """Deprecate a release, hide it or let it go; one of which nobody was told is hidden for its testers."""
    present = [syntax for syntax in facts.syntaxes if facts.visible[syntax] is not None]
    told = bool(desired.notice.strip()) or facts.leaving
    if desired.state == "hidden" and not told:
        require_publishable(facts, desired.without_acceptance)
        present = list(facts.syntaxes)
    elif not present:
        # Nobody sees it: there is nobody to tell, and nothing to hide.
        return
    require_verified_bytes(facts)
    _require_forward(facts, desired)
    if not told and desired.state != "hidden":
        raise StackError(
            "It is not said what loading %s shall say." % facts.full_name, STEP, "Give the sentence as notice.")
    if desired.state == "deprecated":
        for syntax in present:
            _write(plan, facts, desired, syntax)
        for syntax in present:
            plan.list(syntax)
        return
    require_not_default(facts)
    # What is not there yet is hidden before it appears, and what goes before it stops to load. Everybody else is told
    # before it is hidden.
    later = [syntax for syntax in present if desired.state == "gone" or facts.visible[syntax] is None]
    for syntax in present:
        if syntax not in later:
            _write(plan, facts, desired, syntax)
    for syntax in present:
        plan.hide(syntax)
    for syntax in later:
        _write(plan, facts, desired, syntax)


def _write(plan: Plan, facts: Facts, desired: Desired, syntax: str) -> None:
    notice = one_line(desired.notice) or facts.added(syntax).notice or facts.notice
    gone = desired.state == "gone"
    action = GONE if gone else DEPRECATE if notice else SHOW
    plan.write(action, syntax, Added(notice, () if gone else _problems(facts, syntax, desired), gone))


def _problems(facts: Facts, syntax: str, desired: Desired) -> tuple[str, ...]:
    if desired.known_problems is None:
        return tuple(facts.added(syntax).known_problems)
    return tuple(filter(None, map(one_line, desired.known_problems)))


def _require_forward(facts: Facts, desired: Desired) -> None:
    """Return a release on its way out goes back on it only when that is meant."""
    stages = ("visible", "hidden", "gone")
    wanted = "visible" if desired.state == "deprecated" else desired.state
    for syntax in facts.syntaxes:
        now = facts.state(syntax)
        if now == "gone" and wanted != now:
            require_not_removed(facts)
        if facts.leaving and not desired.revive and now in stages and stages.index(now) > stages.index(wanted):
            raise StackError(
                "%s is %s already." % (facts.full_name, now), STEP, "To bring it back, give -e publish_revive=true.")


def candidate_of(facts: Facts) -> Candidate:
    """Return the release as one that a rollout may make the default."""
    return Candidate(
        facts.name, facts.version, facts.release, str(facts.frozen.get("frozen_at", "")),
        {syntax: facts.defaults[syntax] for syntax in facts.syntaxes}, facts.journal)


def is_any_listed(facts: Facts) -> dict[str, bool]:
    """Tell whether users see any version of the module, by syntax, with this release as the facts have it."""
    return {
        syntax: facts.state(syntax) == VISIBLE or bool(others_listed(facts, syntax)) for syntax in facts.syntaxes}


def former_default(facts: Facts, syntax: str) -> str:
    """Return the version that a rollback of this release makes the default; empty for none."""

    return default_before(
        facts.journal, syntax, facts.name, facts.version, lambda version: is_listed(facts, syntax, version))


def facts_after(facts: Facts, actions: Sequence[Action]) -> Facts:
    """Return the facts as they are when a plan is done."""
    visible, defaults = dict(facts.visible), dict(facts.defaults)
    hidden = {syntax: set(facts.hidden[syntax]) for syntax in facts.syntaxes}
    for action in actions:
        if action.action == DEFAULT:
            defaults[action.syntax] = action.version
        elif action.action == HIDE:
            hidden[action.syntax].add(facts.version)
        elif action.action == LIST:
            hidden[action.syntax].discard(facts.version)
        elif action.action != ALSO:
            visible[action.syntax] = action.after
    return facts._replace(visible=visible, defaults=defaults, hidden=hidden)


def said_by_default(before: Facts, after: Facts) -> list[str]:
    """Tell what users read who load another release that becomes the default, such as that it goes; mostly nothing."""
    found = {}
    for syntax in after.syntaxes:
        version = after.defaults[syntax]
        if version and version not in (before.defaults[syntax], after.version):
            notice = notice_of(after, syntax, version)
            if notice:
                found[version] = (notice, _to_have_another(after, syntax, version))
    return ["The default is %s/%s now, which is on its way out, and loading it says: %s%s" % (
        after.name, version, notice, another) for version, (notice, another) in found.items()]


def _to_have_another(facts: Facts, syntax: str, version: str) -> str:
    """Say how a version that stays becomes the default instead of another one; empty where none stays."""
    listed = [*others_listed(facts, syntax), *([facts.version] if facts.state(syntax) == VISIBLE else [])]
    stay = [other for other in listed if other != version and not notice_of(facts, syntax, other)]
    return "".join(" To have %s/%s: %s." % (facts.name, other, command_of_default(facts, syntax, other))
                   for other in stay[-1:])


def not_verified(facts: Facts) -> list[str]:
    """Return the syntaxes that no module system on the verifying machine could load."""
    checked = {entry.get("syntax") for entry in facts.record.get("checked") or []}
    return [syntax for syntax in facts.syntaxes if syntax not in checked]

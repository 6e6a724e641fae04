# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check whether a release may be retired now. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from ..core.errors import StackError
from ..modulefiles.layout import SYNTAXES
from ..release import states
from ..standalone import removal
from ..standalone.tree_amount import DEEPEST
from .publication_first import SYSTEMS
from .retire import STEP, Facts, Rules, days_since


def find_problems(facts: Facts, to: str, rules: Rules, uses: Sequence[Mapping[str, Any]], now: str) -> list[str]:
    """Tell why the release may not be retired now, one sentence each; none where it may.

    ``uses`` is what M(hpcml.torchstack.release_in_use) returned on each host.
    """
    if facts.stage in states.REMOVED and to != "removed":
        return ["It is %s since %s, which nothing takes back." % (
            "being removed" if facts.stage == "removing" else "removed", facts.record.get("since"))]
    if facts.stage == "removed" or facts.record.get("deleting") or to == "kept":
        return []
    return list(dict.fromkeys(_reasons(facts, to, rules, uses, now)))


def _reasons(facts: Facts, to: str, rules: Rules, uses: Sequence[Mapping[str, Any]], now: str) -> Iterator[str]:
    state = facts.state
    of = [SYSTEMS[syntax] for syntax in SYNTAXES if state.default[syntax]]
    if of:
        yield "It is the default of %s: give that back first (playbooks/rollback.yml), or make another release the " \
              "default (playbooks/publish.yml -e torchstack_release=... -e publish_to=default)." % " and ".join(of)
    if state.thawed is not None:
        command = "playbooks/thaw.yml -e torchstack_release=%s -e thaw_state=" % state.release
        yield "It is thawed since %s: freeze it again (%srefrozen), or take the thaw back (%sabandoned)." % (
            state.thawed.get("at", "an unknown time"), command, command)
    frozen_at = str((state.frozen or {}).get("frozen_at", ""))
    age = days_since(frozen_at, now)
    if age < rules.minimum_age:
        yield "It was frozen at %s, %.1f days ago, and retire_minimum_age is %g days." % (
            frozen_at, age, rules.minimum_age)
    if to != "removed":
        if not facts.seen:
            yield "No module system shows it, so that there is nobody to tell: it can be removed at once " \
                  "(%s)." % command_of(state.release, "removed")
        return
    if facts.seen:
        yield from _notice_problems(state.release, facts.record, rules.notice_days, now)
    yield from _tree_problems(facts.amount)
    for host in uses:
        yield from find_use_problems(host, rules.unseen)


def command_of(release: str, to: str) -> str:
    """Return what retires a release so far."""
    return "playbooks/retire.yml -e torchstack_release=%s -e retire_to=%s" % (release, to)


def _notice_problems(release: str, record: Mapping[str, Any], notice_days: float, now: str) -> Iterator[str]:
    told = str(record.get("told_at", ""))
    if notice_days and not told:
        yield "Its users have not been told, and retire_notice_days is %g: tell them first (%s)." % (
            notice_days, command_of(release, "deprecated"))
    elif days_since(told, now) < notice_days:
        yield "Its users have been told at %s, %.1f days ago, and retire_notice_days is %g." % (
            told, days_since(told, now), notice_days)
    elif notice_days and now[:10] < str(record.get("until") or ""):
        yield "Its users have been told that it stays until %s: wait, or take that back with retire_notice_days=0." % (
            record["until"])


def _tree_problems(amount: removal.Amount) -> Iterator[str]:
    for paths, what, remedy in (
        (amount.mounts, "is a mount point, whose files are not removed", "Unmount it."),
        (amount.deep, "lies in more than %d directories, deeper than is removed" % DEEPEST, "Remove it by hand."),
        (amount.foreign, "belongs to another account, so that nothing in it can be removed", "Give it back to yours."),
    ):
        if paths:
            yield "%s %s%s. %s" % (
                paths[0], what, " (and %d more)" % (len(paths) - 1) if len(paths) > 1 else "", remedy)


def find_use_problems(host: Mapping[str, Any], unseen: str) -> Iterator[str]:
    """Tell why the use on one host forbids to remove a release; ``unseen``: why to ignore what was not seen."""
    name = str(host.get("host") or host.get("item") or "a host")
    remedy = "Let Ansible become root there, check by other means, or give in retire_unseen the reason to ignore it."
    if "in_use" not in host:
        if not unseen:
            yield "%s could not be looked at: %s. %s" % (
                name, str(host.get("msg", "no answer")).strip().rstrip("."), remedy)
        return
    count = host.get("process_count", 0)
    if count:
        shown = "; ".join(
            "%s of %s, %s (%s %s)" % (use["pid"], use["account"], use["command"] or "no name", use["how"], use["path"])
            for use in list(host["processes"])[:3])
        yield "On %s, %d process%s it: %s%s." % (
            name, count, " uses" if count == 1 else "es use", shown, "; ..." if count > 3 else "")
    elif host.get("held_count"):
        held = host["held_count"]
        yield (
            "On %s, %d of its files %s open in processes that this account may not see, such as %s: "
            "-e retire_become=true shows whose they are."
        ) % (name, held, "is" if held == 1 else "are", host["held"][0])
    if not unseen:
        for unseen_part in host.get("unseen") or []:
            yield "On %s it could not be seen %s. %s" % (name, unseen_part, remedy)


def refusal_error(facts: Facts, found: Sequence[str]) -> StackError:
    """Return all reasons as one failure."""
    numbered = ["(%d) %s" % (number, text) for number, text in enumerate(found, 1)]
    listed = " ".join(numbered if len(found) > 1 else found)
    return StackError(
        "Release %s is not retired. %s" % (facts.state.release, listed), STEP, "", facts.state.prefix,
        problems=list(found))


def require_gone(facts: Facts) -> None:
    """Refuse to put a release aside that loads. Raises StackError.

    Who judged it may have seen one that nobody could load, and told nobody.
    """
    state = facts.state
    shown = [SYSTEMS[syntax] for syntax in SYNTAXES if state.visible[syntax] or state.hidden[syntax]]
    if shown:
        raise StackError(
            "Release %s is not put aside: it was published meanwhile, and loads in %s." % (
                state.release, " and ".join(shown)), "aside",
            "Run it again, as it tells the users first: %s." % command_of(state.release, "removed"), state.prefix)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How a release is retired: whether it may be, what its users are told, and what is recorded of it. Pure but for facts.

Its users are told first (``deprecated``), then it is listed no more (``hidden``), and then its files go (``removing``,
``removed``). What is recorded here follows what users see, which M(hpcml.torchstack.modulefile_publish) changes.
"""

from __future__ import annotations

import datetime
import os
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.files import read_json
from ..modulefiles.layout import SYNTAXES, stage_directory
from ..release import states as release_states
from ..standalone import removal

RECORD, JOURNAL, ASIDE = "retired.json", "retire.jsonl", "removing"
STAGES = ("deprecated", "hidden", "removed", "kept")
STEP = "check what is to be retired"

_SYSTEMS = {"tcl": "Environment Modules", "lmod": "Lmod"}


class Facts(NamedTuple):
    """What is on disk of a release that is to be retired."""

    state: release_states.ReleaseState
    record: dict[str, Any]
    """Of its retirement so far; empty where that has not begun."""
    default: str
    """The default version of its module; empty where there is none."""
    amount: removal.Amount
    """What its tree holds, wherever that lies now; empty where nobody asked."""

    @property
    def stage(self) -> str:
        """How far its retirement is; empty where it has not begun."""
        return str(self.record.get("state", ""))

    @property
    def afterwards(self) -> str:
        """The directory of what happens to it after its build."""
        return stage_directory(self.state.root, self.state.release)

    @property
    def aside(self) -> str:
        """Where its tree lies while it is removed."""
        return os.path.join(self.afterwards, ASIDE)

    @property
    def module(self) -> str:
        """Its module's full name; empty where it has none."""
        return "%s/%s" % (self.state.name, self.state.version) if self.state.name else ""

    @property
    def seen(self) -> bool:
        """Whether any module system knows it."""
        state = self.state
        return any(state.visible[syntax] or state.hidden[syntax] or state.gone[syntax] for syntax in SYNTAXES)


class Rules(NamedTuple):
    """What a site asks for before a release goes."""

    minimum_age: float = 0.0
    """Days since it was frozen."""
    notice_days: float = 0.0
    """Days since its users were told."""
    unseen: str = ""
    """Why nobody minds what could not be seen of its use; empty where somebody does."""


def read_facts(root: str, release: str) -> Facts:
    """Everything that the judgement depends on, without what the tree holds.

    Args:
        root: the directory that holds the releases.
        release: the release's name.

    Raises:
        StackError: it is not a release of ours, or a record cannot be read.
    """
    state = release_states.one_release(root, release, removed=True)
    defaults = [release_states.default_of(root, syntax, state.name) for syntax in SYNTAXES] if state.name else []
    return Facts(state, state.retired or {}, next(filter(None, defaults), ""), removal.Amount())


def days_since(time: str, now: str) -> float:
    """Days between two moments as records have them (UTC); none where the first is not known."""
    try:
        begin, end = (datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ") for text in (time, now))
    except ValueError:
        return 0.0
    return (end - begin).total_seconds() / 86400.0


def day_after(time: str, days: float) -> str:
    """The date some days after a moment, as ``2026-12-04``: the first on which as many days have gone by."""
    moment = datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ") + datetime.timedelta(days=days)
    if moment.time() > datetime.time():
        moment += datetime.timedelta(days=1)
    return moment.strftime("%Y-%m-%d")


def problems(
    facts: Facts, to: str, rules: Rules, uses: Sequence[Mapping[str, Any]], now: str
) -> list[str]:
    """Why the release may not be retired now, one sentence each; none where it may.

    Args:
        facts: from :func:`read_facts`, with the amount where it is to be removed.
        to: one of ``STAGES``.
        rules: what the site asks for.
        uses: what M(hpcml.torchstack.release_in_use) returned on each host.
        now: this moment, UTC.
    """
    if facts.stage in release_states.REMOVED and to != "removed":
        return ["It is %s since %s, which nothing takes back." % (
            "being removed" if facts.stage == "removing" else "removed", facts.record.get("since"))]
    if facts.stage == "removed" or facts.record.get("deleting") or to == "kept":
        return []
    return list(dict.fromkeys(_reasons(facts, to, rules, uses, now)))


def _reasons(
    facts: Facts, to: str, rules: Rules, uses: Sequence[Mapping[str, Any]], now: str
) -> Iterator[str]:
    state = facts.state
    of = [_SYSTEMS[syntax] for syntax in SYNTAXES if state.default[syntax]]
    if of:
        yield "It is the default of %s: make another release the default first (playbooks/publish.yml, or " \
              "playbooks/rollback.yml)." % " and ".join(of)
    if state.thawed is not None:
        yield "It is thawed since %s: freeze it again, or take the thaw back (playbooks/thaw.yml)." % (
            state.thawed.get("at", "an unknown time"))
    frozen_at = str((state.frozen or {}).get("frozen_at", ""))
    age = days_since(frozen_at, now)
    if age < rules.minimum_age:
        yield "It was frozen at %s, %.1f days ago, and retire_minimum_age is %g days." % (
            frozen_at, age, rules.minimum_age)
    if to != "removed":
        if not facts.seen:
            yield "No module system shows it, so that there is nobody to tell: it can be removed at once " \
                  "(retire_to=removed)."
        return
    if facts.seen:
        yield from _notice_problems(facts.record, rules.notice_days, now)
    yield from _tree_problems(facts.amount)
    for host in uses:
        yield from use_problems(host, rules.unseen)


def _notice_problems(record: Mapping[str, Any], notice_days: float, now: str) -> Iterator[str]:
    told = str(record.get("told_at", ""))
    if notice_days and not told:
        yield "Its users have not been told, and retire_notice_days is %g: run this with retire_to=deprecated " \
              "first." % notice_days
    elif days_since(told, now) < notice_days:
        yield "Its users have been told at %s, %.1f days ago, and retire_notice_days is %g." % (
            told, days_since(told, now), notice_days)
    elif notice_days and now[:10] < str(record.get("until") or ""):
        yield "Its users have been told that it stays until %s: wait, or take that back with retire_notice_days=0." % (
            record["until"])


def _tree_problems(amount: removal.Amount) -> Iterator[str]:
    for paths, what, remedy in (
        (amount.mounts, "is a mount point, whose files are not removed", "Unmount it."),
        (amount.foreign, "belongs to another account, so that nothing in it can be removed", "Give it back to yours."),
    ):
        if paths:
            yield "%s %s%s. %s" % (
                paths[0], what, " (and %d more)" % (len(paths) - 1) if len(paths) > 1 else "", remedy)


def use_problems(host: Mapping[str, Any], unseen: str) -> Iterator[str]:
    """Why the use of a release on one host forbids to remove it.

    Args:
        host: what M(hpcml.torchstack.release_in_use) returned there, or that it failed or was not reached.
        unseen: why nobody minds what could not be seen; empty where somebody does.
    """
    name = str(host.get("host") or host.get("item") or "a host")
    remedy = "Let Ansible become root there, look by other means, or say in retire_unseen why nobody minds."
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
        for sentence in host.get("unseen") or []:
            yield "On %s it could not be seen %s. %s" % (name, sentence, remedy)


def refusal(facts: Facts, found: Sequence[str]) -> StackError:
    """All reasons as one failure."""
    numbered = ["(%d) %s" % (number, text) for number, text in enumerate(found, 1)]
    listed = " ".join(numbered if len(found) > 1 else found)
    return StackError(
        "Release %s is not retired. %s" % (facts.state.release, listed), STEP, "", facts.state.prefix,
        problems=list(found))


class Words(NamedTuple):
    """What is said and recorded about a retirement."""

    reason: str = ""
    successor: str = ""
    """Version of the module that its users should load."""
    until: str = ""
    """Date after which it may be removed."""


def require_date(until: str) -> None:
    """Refuse what users could not tell a day by.

    Raises:
        StackError: it is not a date as ``2026-12-04``.
    """
    try:
        valid = not until or datetime.datetime.strptime(until, "%Y-%m-%d").strftime("%Y-%m-%d") == until
    except ValueError:
        valid = False
    if not valid:
        raise StackError("retire_until is %r, which is no date." % until, STEP, "Write it as 2026-12-04.")


def described(facts: Facts, to: str, words: Words, rules: Rules, now: str) -> dict[str, Any]:
    """The record of a release that is retired; what is not given, and times, stay as they were. Empty where it is kept.

    Args:
        facts: from :func:`read_facts`.
        to: one of ``STAGES``; with ``removed``, the release is about to be.
        words: what the operator gave.
        rules: for when it may be removed, where no date is given.
        now: this moment, UTC.
    """
    if to == "kept":
        return {}
    before = facts.record
    stage = "removing" if to == "removed" else to
    other = facts.default if facts.default != facts.state.version else ""
    record = dict(
        before,
        state=stage, since=before["since"] if facts.stage == stage else now,
        reason=words.reason or before.get("reason", ""), successor=words.successor or before.get("successor") or other,
    )
    if to != "removed":
        record["told_at"] = before.get("told_at") or now
        record["until"] = words.until or before.get("until") or day_after(record["told_at"], rules.notice_days)
    return record


def sentence(facts: Facts, record: Mapping[str, Any], notice: str = "") -> str:
    """What loading the module says.

    Args:
        facts: from :func:`read_facts`.
        record: from :func:`described`.
        notice: the site's own sentence, where it has one.
    """
    if notice or not facts.module or not record:
        return notice
    instead = " Please load %s/%s instead." % (facts.state.name, record["successor"]) if record["successor"] else ""
    because = ": %s" % record["reason"].strip().rstrip(".") if record["reason"].strip() else ""
    if record["state"] in release_states.REMOVED:
        return "%s was retired on %s%s.%s" % (facts.module, record["since"][:10], because, instead)
    return "%s is deprecated and will be removed after %s%s.%s" % (facts.module, record["until"], because, instead)


def removal_record(afterwards: str) -> dict[str, Any]:
    """What the removal itself recorded last; empty where it has not begun.

    Raises:
        StackError: it cannot be read.
    """
    path = os.path.join(afterwards, "removal.json")
    try:
        record = read_json(path)
    except (OSError, ValueError) as error:
        raise StackError(
            "Cannot read the record of the removal, %s: %s." % (path, error), STEP,
            "Remove that file and run this again.", path) from error
    return record if isinstance(record, dict) else {}

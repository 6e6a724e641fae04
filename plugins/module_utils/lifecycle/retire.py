# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the retirement of a release: its stage, what its users are told, and its record.

Its users are told first (``deprecated``), then it is listed no more (``hidden``), and then its files go (``removing``,
``removed``). What is recorded here follows what users see, which M(hpcml.torchstack.modulefile_publish) changes.
"""

from __future__ import annotations

import datetime
import os
from typing import Any, Mapping, NamedTuple

from ..core.clock import seconds_of
from ..core.errors import StackError
from ..core.files import read_json
from ..modulefiles.layout import SYNTAXES, stage_directory
from ..release import states
from ..standalone import removal

RECORD, JOURNAL, ASIDE = "retired.json", "retire.jsonl", "removing"
STAGES = ("deprecated", "hidden", "removed", "kept")
STEP = "check what is to be retired"


class Facts(NamedTuple):
    """What is on disk of a release that is to be retired."""

    state: states.ReleaseState
    record: dict[str, Any]
    """Of its retirement so far; empty where that has not begun."""
    default: str
    """The default version of its module; empty where there is none."""
    amount: removal.Amount
    """What its tree holds, wherever that lies now; empty where nobody asked."""

    @property
    def stage(self) -> str:
        """Tell how far its retirement is; empty where it has not begun."""
        return str(self.record.get("state", ""))

    @property
    def afterwards(self) -> str:
        """Return the directory of what happens to it after its build."""
        return stage_directory(self.state.root, self.state.release)

    @property
    def aside(self) -> str:
        """Tell where its tree lies while it is removed."""
        return os.path.join(self.afterwards, ASIDE)

    @property
    def module(self) -> str:
        """Return its module's full name; empty where it has none."""
        return "%s/%s" % (self.state.name, self.state.version) if self.state.name else ""

    @property
    def seen(self) -> bool:
        """Tell whether any module system knows it."""
        state = self.state
        return any(state.visible[syntax] or state.hidden[syntax] or state.gone[syntax] for syntax in SYNTAXES)


class Rules(NamedTuple):
    """What a site asks for before a release goes."""

    minimum_age: float = 0.0
    """Days since it was frozen."""
    notice_days: float = 0.0
    """Days since its users were told."""
    unseen: str = ""
    """The reason to ignore what could not be seen of its use; empty to refuse it."""


def read_facts(root: str, release: str) -> Facts:
    """Read what the checks depend on, but for the amount. Raises StackError: it is none of ours, or cannot be read."""
    state = states.one_release(root, release, removed=True)
    defaults = [states.default_of(root, syntax, state.name) for syntax in SYNTAXES] if state.name else []
    return Facts(state, state.retired or {}, next(filter(None, defaults), ""), removal.Amount())


def days_since(time: str, now: str) -> float:
    """Return days between two moments as records have them (UTC); none where the first is not known."""
    try:
        return (seconds_of(now) - seconds_of(time)) / 86400.0
    except ValueError:
        return 0.0


def day_after(time: str, days: float) -> str:
    """Return the first date on which some days have gone by since a moment, as ``2026-12-04``."""
    moment = datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ") + datetime.timedelta(days=days)
    if moment.time() > datetime.time():
        moment += datetime.timedelta(days=1)
    return moment.strftime("%Y-%m-%d")


class Words(NamedTuple):
    """What is said and recorded about a retirement."""

    reason: str = ""
    successor: str = ""
    """Version of the module that its users should load."""
    until: str = ""
    """Date after which it may be removed."""


def require_date(until: str) -> None:
    """Refuse what users could not tell a day by. Raises StackError: it is not a date as ``2026-12-04``."""
    try:
        valid = not until or datetime.datetime.strptime(until, "%Y-%m-%d").strftime("%Y-%m-%d") == until
    except ValueError:
        valid = False
    if not valid:
        raise StackError("retire_until is %r, which is no date." % until, STEP, "Write it as 2026-12-04.")


def retirement_record(facts: Facts, to: str, words: Words, rules: Rules, now: str) -> dict[str, Any]:
    """Return the record of a release that is retired; empty where it is kept. What is not given stays as it was."""
    if to == "kept":
        return {}
    before = facts.record
    stage = "removing" if to == "removed" else to
    other = facts.default if facts.default != facts.state.version else ""
    record = dict(
        before, state=stage, since=before["since"] if facts.stage == stage else now,
        reason=words.reason or before.get("reason", ""), successor=words.successor or before.get("successor") or other)
    if to != "removed":
        record["told_at"] = before.get("told_at") or now
        record["until"] = words.until or before.get("until") or day_after(record["told_at"], rules.notice_days)
    return record


def load_message(facts: Facts, record: Mapping[str, Any], notice: str = "") -> str:
    """Return the sentence that loading the module shows. ``notice``: the site's own sentence, where it has one."""
    if notice or not facts.module or not record:
        return notice
    instead = " Please load %s/%s instead." % (facts.state.name, record["successor"]) if record["successor"] else ""
    because = ": %s" % record["reason"].strip().rstrip(".") if record["reason"].strip() else ""
    if record["state"] in states.REMOVED:
        return "%s was retired on %s%s.%s" % (facts.module, record["since"][:10], because, instead)
    return "%s is deprecated and will be removed after %s%s.%s" % (facts.module, record["until"], because, instead)


def removal_record(afterwards: str) -> dict[str, Any]:
    """Tell what the removal itself recorded last; empty before it. Raises StackError: it cannot be read."""
    path = os.path.join(afterwards, "removal.json")
    try:
        record = read_json(path)
    except (OSError, ValueError) as error:
        raise StackError(
            "Cannot read the record of the removal, %s: %s." % (path, error), STEP,
            "Remove that file and run this again.", path) from error
    return record if isinstance(record, dict) else {}

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What users see of a release: its modulefiles becoming visible, and the default moving.

Every action changes one file by one rename (or one unlink), and is written to the release's journal before it is done,
so that an interrupted run is simply run again. The order is fixed: modulefiles before the default that names them, and
the default moved away before the modulefiles that it names are hidden; Tcl before Lua in each.
"""

from __future__ import annotations

import datetime
import json
import os
from typing import Mapping, NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_records import (
    Standing,
    standing,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import flush_directory, read_json, write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_layout import (
    ACCEPTANCE,
    JOURNAL,
    MAKER,
    RECORD,
    SYNTAXES,
    default_path,
    default_text,
    default_version,
    digest,
    make_directory,
    read_bytes,
    relative_path,
    stage_directory,
)

STATES = ("published", "rolled_back", "withdrawn")
STEP = "check what is to be published"


class Facts(NamedTuple):
    """What is on disk, read once: the release's records, and the module tree as users see it."""

    root: str
    release: str
    record: dict
    acceptance: object
    standing: Standing
    staged: dict
    visible: dict
    defaults: dict
    versions: dict
    journal: list

    @property
    def name(self) -> str:
        """Name of the module."""
        return self.record["name"]

    @property
    def version(self) -> str:
        """Version of the module."""
        return self.record["version"]


class Action(NamedTuple):
    """One file that users see, before and after; None where there is none."""

    action: str
    syntax: str
    path: str
    before: object
    after: object
    version: str
    previous: str

    def as_dict(self) -> dict:
        """Plain data for the result and for the journal."""
        return {
            "action": self.action, "syntax": self.syntax, "path": self.path, "version": self.version,
            "previous": self.previous, "sha256": digest(self.after) if isinstance(self.after, bytes) else "",
        }


def read_facts(root: str, release: str, subject: str = "") -> Facts:
    """Everything that a plan depends on.

    Args:
        root: the directory that holds the releases and the module tree.
        release: the release's name.
        subject: digest of the frozen release, to which its acceptance has to belong; empty for whichever.

    Raises:
        StackError: a record is missing or cannot be read; ``planned_after`` names the role that writes it.
    """
    stage = stage_directory(root, release)
    record = _read_record(os.path.join(stage, RECORD))
    if not isinstance(record, dict) or not {"name", "version", "files", "passed"} <= set(record):
        raise StackError(
            "Release %s has no record of a verified modulefile, %s." % (release, os.path.join(stage, RECORD)), STEP,
            "Run the role modulefile for this release first.", os.path.join(stage, RECORD), planned_after="modulefile",
        )
    name, version = record["name"], record["version"]
    paths = {syntax: relative_path(syntax, name, version) for syntax in SYNTAXES}
    return Facts(
        root, release, record, _read_record(os.path.join(stage, ACCEPTANCE)),
        standing(root, release, subject),
        {syntax: read_bytes(os.path.join(stage, paths[syntax])) for syntax in SYNTAXES},
        {syntax: read_bytes(os.path.join(root, paths[syntax])) for syntax in SYNTAXES},
        {syntax: read_bytes(os.path.join(root, default_path(syntax, name))) for syntax in SYNTAXES},
        {syntax: _visible_versions(root, syntax, name) for syntax in SYNTAXES},
        _read_journal(os.path.join(stage, JOURNAL)),
    )


def _read_record(path: str) -> object:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise StackError(
            "Cannot read the record %s: %s." % (path, error), STEP, "Run the role that writes it again.", path
        ) from error


def _visible_versions(root: str, syntax: str, name: str) -> list[str]:
    sample = relative_path(syntax, name, "")
    suffix = os.path.basename(sample)
    try:
        names = os.listdir(os.path.join(root, os.path.dirname(sample)))
    except OSError:
        return []
    return sorted(
        entry[:len(entry) - len(suffix)] for entry in names if entry.endswith(suffix) and not entry.startswith("."))


def _read_journal(path: str) -> list[dict]:
    entries = []
    for line in (read_bytes(path) or b"").decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            # The end of a line that an interrupted run was writing; what it announced was not done.
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def make_plan(facts: Facts, state: str, visible: bool, default: bool, without_acceptance: str) -> list[Action]:
    """The actions that lead from what is there to what is asked for, in order; none when it is there already.

    Args:
        facts: from :func:`read_facts`.
        state: one of ``STATES``.
        visible: in the state ``published``: the modulefiles are to be visible. False leaves them as they are.
        default: in the state ``published``: this version is to be the default. False leaves the default as it is.
        without_acceptance: why a release without a successful acceptance is published all the same; empty for never.

    Raises:
        StackError: the release may not be published, or a file in the way is not ours.
    """
    if state == "published":
        if not (visible or default):
            return []
        _require_verified_bytes(facts)
        _require_acceptance(facts, without_acceptance)
        if default and not visible and None in facts.visible.values():
            raise StackError(
                "%s/%s cannot be the default, because it is not visible." % (facts.name, facts.version), STEP,
                "Publish it as visible too (publish_visible: true).",
            )
        return (_show(facts) if visible else []) + (_make_default(facts) if default else [])
    return _roll_back(facts) + (_hide(facts) if state == "withdrawn" else [])


def _require_verified_bytes(facts: Facts) -> None:
    stage = stage_directory(facts.root, facts.release)
    remedy = "Run the role modulefile for this release again."
    if facts.record["passed"] is not True:
        raise StackError(
            "The modulefile of release %s failed its verification." % facts.release, STEP, remedy,
            os.path.join(stage, RECORD),
        )
    for syntax in SYNTAXES:
        content = facts.staged[syntax]
        path = os.path.join(stage, relative_path(syntax, facts.name, facts.version))
        if content is None or digest(content) != facts.record["files"].get(syntax, {}).get("sha256"):
            raise StackError("%s is not the file that was verified." % path, STEP, remedy, path)


def _require_acceptance(facts: Facts, without: str) -> None:
    path = os.path.join(stage_directory(facts.root, facts.release), ACCEPTANCE)
    if without.strip():
        return
    remedy = "Run playbooks/accept.yml for it, or give the reason for doing without in publish_without_acceptance."
    if facts.standing.state != "passed":
        # In a plan, what a rollout accepts before it publishes is still to come.
        details = {} if facts.standing.state == "failed" else {"planned_after": "acceptance"}
        raise StackError(facts.standing.sentence, STEP, remedy, path, **details)
    accepted = facts.acceptance if isinstance(facts.acceptance, dict) else {}
    digests = accepted.get("modulefiles") or {}
    for syntax in SYNTAXES:
        if digests.get(syntax, facts.record["files"][syntax]["sha256"]) != facts.record["files"][syntax]["sha256"]:
            raise StackError(
                "Release %s was accepted with another %s modulefile than the one that is to be published." % (
                    facts.release, syntax), STEP, remedy, path,
            )


def require_ours(root: str, path: str, content: bytes | None) -> None:
    """Refuse to change a file in the module tree that somebody else wrote.

    Args:
        root: the directory that holds the module tree.
        path: the file, below it.
        content: what is in it; None where there is no such file.

    Raises:
        StackError: it is not ours.
    """
    if content is not None and MAKER.encode() not in content:
        raise StackError(
            "%s was not written by this collection." % os.path.join(root, path), STEP,
            "Move it away, or choose another name for the module.", os.path.join(root, path),
        )


def _show(facts: Facts) -> list[Action]:
    actions = []
    for syntax in SYNTAXES:
        path = relative_path(syntax, facts.name, facts.version)
        before, after = facts.visible[syntax], facts.staged[syntax]
        if before != after:
            require_ours(facts.root, path, before)
            actions.append(Action("show", syntax, path, before, after, facts.version, ""))
    return actions


def _hide(facts: Facts) -> list[Action]:
    actions = []
    for syntax in SYNTAXES:
        path = relative_path(syntax, facts.name, facts.version)
        before = facts.visible[syntax]
        if before is not None:
            require_ours(facts.root, path, before)
            actions.append(Action("hide", syntax, path, before, None, facts.version, ""))
    return actions


def current_default(facts: Facts, syntax: str) -> str:
    """The version that ``module load NAME`` means by our own default file; empty where there is none."""
    content = facts.defaults[syntax]
    return default_version(syntax, content.decode("utf-8", "replace")) if content is not None else ""


def _make_default(facts: Facts) -> list[Action]:
    actions = []
    for syntax in SYNTAXES:
        previous = current_default(facts, syntax)
        if previous != facts.version:
            actions.append(_default_action(facts, syntax, facts.version, previous))
    return actions


def _roll_back(facts: Facts) -> list[Action]:
    actions = []
    for syntax in SYNTAXES:
        if current_default(facts, syntax) == facts.version:
            before = [
                entry.get("previous", "") for entry in facts.journal
                if entry.get("action") == "default" and entry.get("syntax") == syntax
                and entry.get("version") == facts.version
            ]
            target = before[-1] if before and before[-1] in facts.versions[syntax] else ""
            actions.append(_default_action(facts, syntax, target, facts.version))
    return actions


def _default_action(facts: Facts, syntax: str, version: str, previous: str) -> Action:
    path = default_path(syntax, facts.name)
    before = facts.defaults[syntax]
    require_ours(facts.root, path, before)
    after = default_text(syntax, facts.name, version).encode("utf-8") if version else None
    return Action("default", syntax, path, before, after, version, previous)


def not_verified(facts: Facts) -> list[str]:
    """The syntaxes that no module system on the verifying machine could load."""
    checked = {entry.get("syntax") for entry in facts.record.get("checked") or []}
    return [syntax for syntax in SYNTAXES if syntax not in checked]


def carry_out(facts: Facts, actions: list[Action], without_acceptance: str) -> None:
    """Do a plan: each action is written to the journal and then done.

    Raises:
        StackError: a file could not be written; everything before it is done and in the journal.
    """
    journal = os.path.join(stage_directory(facts.root, facts.release), JOURNAL)
    for action in actions:
        path = os.path.join(facts.root, action.path)
        try:
            _append(journal, {**action.as_dict(), "time": _now(), "without_acceptance": without_acceptance})
            if isinstance(action.after, bytes):
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


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _append(path: str, entry: Mapping) -> None:
    make_directory(os.path.dirname(path))
    content = read_bytes(path) or b""
    start = "" if not content or content.endswith(b"\n") else "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.fchmod(descriptor, 0o644)
        os.write(descriptor, (start + json.dumps(entry, sort_keys=True) + "\n").encode("utf-8"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

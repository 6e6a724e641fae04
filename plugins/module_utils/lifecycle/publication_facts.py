# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what a publication depends on: the release's records, and the module tree as users see it."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ..acceptance.status import AcceptanceState, required, state_on
from ..core.errors import StackError
from ..core.files import read_json
from ..core.lenient_json import mapping
from ..modulefiles.layout import (
    ACCEPTANCE,
    RECORD,
    SYNTAXES,
    default_path,
    read_bytes,
    read_own,
    relative_path,
    stage_directory,
    visible_versions,
)
from ..modulefiles.visible_text import Added, read_added
from ..release.records import ReleaseFiles, subject_of
from ..release.states import (
    all_publications,
    default_of,
    hidden_of,
)
from .publication_changes import ALSO, DEFAULT, SHOW

STEP = "check what is to be published"
NONE, VISIBLE, HIDDEN, GONE = "none", "visible", "hidden", "gone"
"""What users see of a modulefile: nothing; it is listed; it loads by its full name; loading it fails."""


class Facts(NamedTuple):
    """What is on disk, read once: the release's records, and the module tree as users see it."""

    root: str
    release: str
    record: dict
    acceptances: dict
    """The last acceptance, by the partition of the site; of a site without any, by the empty text."""
    standing: AcceptanceState
    frozen: dict
    retired: dict
    thawed: dict
    staged: dict
    visible: dict
    defaults: dict
    hidden: dict
    journal: list
    others: tuple[Facts, ...] = ()
    """The same of each further name of the module, and of each that it had before, of which nothing is staged."""

    @property
    def name(self) -> str:
        """Return name of the module."""
        return self.record["name"]

    @property
    def version(self) -> str:
        """Return version of the module."""
        return self.record["version"]

    @property
    def syntaxes(self) -> tuple[str, ...]:
        """Return the kinds of modulefile that it was verified with."""
        return tuple(syntax for syntax in SYNTAXES if syntax in self.record["files"])

    @property
    def full_name(self) -> str:
        """Tell what users type."""
        return "%s/%s" % (self.name, self.version)

    def added(self, syntax: str) -> Added:
        """Tell what the visible modulefile says beyond the verified one."""
        return read_added(self.visible[syntax])

    def state(self, syntax: str) -> str:
        """Return one of ``NONE``, ``VISIBLE``, ``HIDDEN`` and ``GONE``."""
        if self.visible[syntax] is None:
            return NONE
        if self.added(syntax).gone:
            return GONE
        return HIDDEN if self.version in self.hidden[syntax] else VISIBLE

    def is_anothers(self, syntax: str) -> bool:
        """Tell whether another release with the same version of the module is what users see."""
        path = os.path.join(self.root, relative_path(syntax, self.name, self.version))
        return self.visible[syntax] is None and read_bytes(path) is not None

    @property
    def notice(self) -> str:
        """Tell what users are told when they load it; empty for nothing."""
        return next((self.added(syntax).notice for syntax in self.syntaxes if self.added(syntax).notice), "")

    @property
    def leaving(self) -> bool:
        """Tell whether users were told that the release goes, or that it is gone."""
        return bool(self.notice) or any(self.added(syntax).gone for syntax in self.syntaxes)


def read_facts(root: str, release: str, subject: str = "", partitions: Mapping[str, Any] | None = None) -> Facts:
    """Return everything that a plan depends on.

    To ``subject``, the digest of the frozen release, its acceptance has to belong; empty for whichever, but for one of
    before a thaw that changed files. ``partitions`` are those of the site, None for those that are recorded. Raises
    StackError: a record is missing or cannot be read; ``planned_after`` names the role that writes it.
    """
    stage = stage_directory(root, release)
    record = _read_record(os.path.join(stage, RECORD))
    if not isinstance(record, dict) or not {"name", "version", "files", "passed"} <= set(record):
        raise StackError(
            "Release %s has no record of a verified modulefile, %s." % (release, os.path.join(stage, RECORD)), STEP,
            "Run the role modulefile for this release first.", os.path.join(stage, RECORD), planned_after="modulefile")
    frozen, retired, thawed = (
        mapping(_read_record(os.path.join(stage, name + ".json"))) for name in ("frozen", "retired", "thawed"))
    if not subject and frozen.get("thawed"):
        subject = subject_of(frozen)
    if partitions is None:
        partitions = mapping(_read_record(ReleaseFiles(root, release).partitions))
    accepted = {
        name: _read_record(os.path.join(stage_directory(root, release, name), ACCEPTANCE))
        for name in (required(partitions) if partitions else [""])}
    facts = _with_tree(Facts(
        root, release, record, accepted, state_on(root, release, subject, partitions), frozen, retired, thawed,
        {}, {}, {}, {}, all_publications(root)))
    also = mapping(record.get("also"))
    former = [
        os.path.basename(os.path.dirname(str(entry.get("path", "")))) for entry in facts.journal
        if entry.get("release") == release and entry.get("action") == ALSO]
    return facts._replace(others=tuple(
        _with_tree(facts._replace(record=dict(record, name=name, files=mapping(also.get(name)))))
        for name in dict.fromkeys([*also, *former]) if name != record["name"]))


def _with_tree(facts: Facts) -> Facts:
    """Return facts with what is staged and seen under the name of their record."""
    root, name = facts.root, facts.name
    paths = {syntax: relative_path(syntax, name, facts.version) for syntax in SYNTAXES}
    stage = stage_directory(root, facts.release)
    return facts._replace(
        staged={syntax: read_bytes(os.path.join(stage, paths[syntax])) for syntax in SYNTAXES},
        visible={syntax: read_own(root, facts.release, paths[syntax]) for syntax in SYNTAXES},
        defaults={syntax: default_of(root, syntax, name) for syntax in SYNTAXES},
        hidden={syntax: hidden_of(root, syntax, name) for syntax in SYNTAXES})


def _read_record(path: str) -> object:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise StackError(
            "Cannot read the record %s: %s." % (path, error), STEP, "Run the role that writes it again.", path
        ) from error


def _added_to(facts: Facts, syntax: str, version: str) -> Added | None:
    """Read what was added to the file of a version that users see; None where there is no such file."""
    content = read_bytes(os.path.join(facts.root, relative_path(syntax, facts.name, version)))
    return None if content is None else read_added(content)


def is_listed(facts: Facts, syntax: str, version: str) -> bool:
    """Tell whether a version is listed and loads."""
    added = _added_to(facts, syntax, version)
    return added is not None and not added.gone and version not in facts.hidden[syntax]


def others_listed(facts: Facts, syntax: str) -> list[str]:
    """Return the other versions of the module that are listed and load."""
    return [
        version for version in visible_versions(facts.root, syntax, facts.name)
        if version != facts.version and is_listed(facts, syntax, version)]


def notice_of(facts: Facts, syntax: str, version: str) -> str:
    """Return what loading a listed version says; empty for nothing."""
    added = _added_to(facts, syntax, version)
    return added.notice if added else ""


def command_of_default(facts: Facts, syntax: str, version: str) -> str:
    """Return what makes a version of the module the default, by the release that has shown it."""
    path = relative_path(syntax, facts.name, version)
    shown = (entry for entry in reversed(facts.journal) if entry.get("action") == SHOW and entry.get("path") == path)
    return "playbooks/publish.yml -e torchstack_release=%s -e publish_to=default" % (
        next((entry.get("release") for entry in shown), version))


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
    """Return the last move of any default of a root, from the journal of all releases; None where none ever moved."""
    for entry in reversed(journal):
        if entry.get("action") == DEFAULT:
            return Move(
                str(entry.get("release", "")), str(entry.get("version", "")), str(entry.get("previous", "")),
                entry.get("undo") is True, str(entry.get("time", "")), str(entry.get("by", "")))
    return None


def last_rollback(journal: Sequence[Mapping[str, Any]], release: str) -> str:
    """Return when a default was last taken back from a release, in UTC; empty where it never was."""
    moves = (entry for entry in journal if entry.get("release") == release and entry.get("action") == DEFAULT)
    return max((str(entry.get("time", "")) for entry in moves if entry.get("undo") is True), default="")


def default_before(
    journal: Sequence[Mapping[str, Any]], syntax: str, name: str, version: str, loads: Callable[[str], bool]
) -> str:
    """Return the last default before ``version`` that users can load; empty where there is none.

    Rollbacks do not count: what was taken back does not come again. ``loads`` tells whether a version is listed and
    loads.
    """
    moves = [
        entry for entry in journal
        if entry.get("action") == DEFAULT and entry.get("syntax") == syntax
        and entry.get("path") == default_path(syntax, name) and entry.get("undo") is not True]
    wanted = version
    while moves:
        entry = moves.pop()
        previous = str(entry.get("previous", ""))
        if entry.get("version") == wanted and previous != wanted:
            if previous == "" or (previous != version and loads(previous)):
                return previous
            wanted = previous
    return ""

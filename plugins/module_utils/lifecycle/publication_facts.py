# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a publication depends on: the release's records, and the module tree as users see it."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..acceptance.records import Standing, standing
from ..core.errors import StackError
from ..core.files import read_json
from ..modulefiles.layout import (
    ACCEPTANCE,
    RECORD,
    SYNTAXES,
    read_bytes,
    read_own,
    relative_path,
    stage_directory,
)
from ..modulefiles.visible_text import Added, added_to
from ..release.records import subject_of
from ..release.states import (
    all_publications,
    default_of,
    hidden_of,
)

STEP = "check what is to be published"
NONE, VISIBLE, HIDDEN, GONE = "none", "visible", "hidden", "gone"
"""What users see of a modulefile: nothing; it is listed; it loads by its full name; loading it fails."""


class Facts(NamedTuple):
    """What is on disk, read once: the release's records, and the module tree as users see it."""

    root: str
    release: str
    record: dict
    acceptance: object
    standing: Standing
    frozen: dict
    retired: dict
    thawed: dict
    staged: dict
    visible: dict
    defaults: dict
    hidden: dict
    journal: list

    @property
    def name(self) -> str:
        """Name of the module."""
        return self.record["name"]

    @property
    def version(self) -> str:
        """Version of the module."""
        return self.record["version"]

    @property
    def full_name(self) -> str:
        """What users type."""
        return "%s/%s" % (self.name, self.version)

    def added(self, syntax: str) -> Added:
        """What the visible modulefile says beyond the verified one."""
        return added_to(self.visible[syntax])

    def state(self, syntax: str) -> str:
        """One of ``NONE``, ``VISIBLE``, ``HIDDEN`` and ``GONE``."""
        if self.visible[syntax] is None:
            return NONE
        if self.added(syntax).gone:
            return GONE
        return HIDDEN if self.version in self.hidden[syntax] else VISIBLE

    def is_anothers(self, syntax: str) -> bool:
        """Whether another release with the same version of the module is what users see."""
        path = os.path.join(self.root, relative_path(syntax, self.name, self.version))
        return self.visible[syntax] is None and read_bytes(path) is not None

    @property
    def notice(self) -> str:
        """What users are told when they load it; empty for nothing."""
        return next((self.added(syntax).notice for syntax in SYNTAXES if self.added(syntax).notice), "")

    @property
    def leaving(self) -> bool:
        """Whether users were told that the release goes, or that it is gone."""
        return bool(self.notice) or any(self.added(syntax).gone for syntax in SYNTAXES)


def read_facts(root: str, release: str, subject: str = "") -> Facts:
    """Everything that a plan depends on.

    Args:
        root: the directory that holds the releases and the module tree.
        release: the release's name.
        subject: digest of the frozen release, to which its acceptance has to belong; empty for whichever, but
            for one of before a thaw that changed files.

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
    frozen, retired, thawed = (
        _read_record(os.path.join(stage, name + ".json")) for name in ("frozen", "retired", "thawed"))
    if not subject and isinstance(frozen, dict) and frozen.get("thawed"):
        subject = subject_of(frozen)
    return Facts(
        root, release, record, _read_record(os.path.join(stage, ACCEPTANCE)),
        standing(root, release, subject),
        frozen if isinstance(frozen, dict) else {},
        retired if isinstance(retired, dict) else {},
        thawed if isinstance(thawed, dict) else {},
        {syntax: read_bytes(os.path.join(stage, paths[syntax])) for syntax in SYNTAXES},
        {syntax: read_own(root, release, paths[syntax]) for syntax in SYNTAXES},
        {syntax: default_of(root, syntax, name) for syntax in SYNTAXES},
        {syntax: hidden_of(root, syntax, name) for syntax in SYNTAXES},
        all_publications(root),
    )


def _read_record(path: str) -> object:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise StackError(
            "Cannot read the record %s: %s." % (path, error), STEP, "Run the role that writes it again.", path
        ) from error

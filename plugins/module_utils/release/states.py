# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the frozen releases of a root, and what users see of each."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple

from ..core import json_lines
from ..core.errors import StackError
from ..core.files import read_json
from ..modulefiles.layout import (
    JOURNAL,
    RECORD,
    SYNTAXES,
    default_path,
    default_version,
    hidden_path,
    hidden_versions,
    read_bytes,
    read_own,
    relative_path,
    stage_directory,
)
from ..modulefiles.visible_text import read_added

STEP = "find the releases"
REMOVED = ("removing", "removed")
"""States of a retired release whose files are going, or gone."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


class ReleaseState(NamedTuple):
    """Describe one frozen release.

    Of ``visible``, ``hidden`` and ``gone`` at most one is true for each syntax.
    """

    root: str
    release: str
    prefix: str
    frozen: dict | None
    """The record of the freeze; None only for a release that is being removed without one."""
    name: str
    """Name of the module, and empty where the release has no verified modulefile."""
    version: str
    visible: dict
    """By syntax: ``module avail`` lists it."""
    default: dict
    """By syntax: ``module load NAME`` means it."""
    hidden: dict
    """By syntax: it loads by its full name and is not listed."""
    deprecated: str
    """The sentence that loading it says; empty where it says none."""
    gone: dict
    """By syntax: loading it fails with one sentence."""
    retired: dict | None
    thawed: dict | None
    defaulted_at: str
    """When it last became the default, in UTC; empty where it never was."""

    @property
    def is_default(self) -> bool:
        """Tell whether it is the default of any module system."""
        return any(self.default.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for a module's result."""
        return dict(self._asdict(), is_default=self.is_default)


def all_releases(root: str, removed: bool = False) -> list[ReleaseState]:
    """Find the frozen releases below a root, in the order of their freezes, ``removed`` ones too.

    Raises StackError: a record is there and cannot be read.
    """
    try:
        names = sorted(os.listdir(os.path.join(root, ".torchstack")))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable_error(os.path.join(root, ".torchstack"), error) from error
    ours = [name for name in names if _NAME.fullmatch(name) and not _explain_foreign(root, name, removed)]
    found = [_read_state(root, name) for name in ours]
    return sorted(found, key=lambda state: (str((state.frozen or {}).get("frozen_at", "")), state.release))


def one_release(root: str, release: str, removed: bool = False) -> ReleaseState:
    """Find one frozen release. Raises StackError: it is none of ours, or a record cannot be read."""
    if not os.path.isabs(root):
        raise StackError("The root %r is no absolute path." % root, STEP, "Write it in full.")
    if not _NAME.fullmatch(release):
        raise StackError(
            "%r is not the name of a release." % release, STEP, "Give the directory's name below %s." % root)
    why = _explain_foreign(root, release, removed)
    if why:
        raise StackError(
            "%s is not a frozen release of this collection: %s." % (os.path.join(root, release), why), STEP,
            "Give one that is: %s." % (", ".join(state.release for state in all_releases(root)) or "there is none yet"),
            os.path.join(root, release))
    return _read_state(root, release)


def _explain_foreign(root: str, release: str, removed: bool) -> str:
    prefix, afterwards = os.path.join(root, release), stage_directory(root, release)
    for path in (afterwards, prefix):
        if os.path.islink(path):
            return "%s is a symbolic link" % path
    frozen = os.path.join(afterwards, "frozen.json")
    if not os.path.isfile(frozen):
        return "there is no %s" % frozen
    resolved = os.path.join(prefix, ".torchstack", "release.yml")
    if os.path.isfile(resolved):
        return ""
    if removed and (_read_record(os.path.join(afterwards, "retired.json")) or {}).get("state") in REMOVED:
        return ""
    return "there is no %s" % resolved


def _read_state(root: str, release: str) -> ReleaseState:
    afterwards = stage_directory(root, release)
    module = _read_record(os.path.join(afterwards, RECORD)) or {}
    name, version = str(module.get("name", "")), str(module.get("version", ""))
    contents: dict[str, bytes | None] = {}
    defaults: dict[str, bool] = {}
    listed: dict[str, bool] = {}
    for syntax in SYNTAXES:
        path = relative_path(syntax, name, version)
        contents[syntax] = read_own(root, release, path) if name else None
        anothers = bool(name) and contents[syntax] is None and read_bytes(os.path.join(root, path)) is not None
        defaults[syntax] = bool(name) and not anothers and default_of(root, syntax, name) == version
        listed[syntax] = bool(name) and version not in hidden_of(root, syntax, name)
    added = {syntax: read_added(contents[syntax]) for syntax in SYNTAXES}
    loads = {syntax: contents[syntax] is not None and not added[syntax].gone for syntax in SYNTAXES}
    return ReleaseState(
        root, release, os.path.join(root, release), _read_record(os.path.join(afterwards, "frozen.json")),
        name, version,
        {syntax: loads[syntax] and listed[syntax] for syntax in SYNTAXES},
        defaults,
        {syntax: loads[syntax] and not listed[syntax] for syntax in SYNTAXES},
        next((added[syntax].notice for syntax in SYNTAXES if loads[syntax] and added[syntax].notice), ""),
        {syntax: added[syntax].gone for syntax in SYNTAXES},
        _read_record(os.path.join(afterwards, "retired.json")),
        _read_record(os.path.join(afterwards, "thawed.json")),
        max((str(entry.get("time", "")) for entry in publications(root, release)
             if entry.get("action") == "default" and entry.get("version") == version), default=""))


def default_of(root: str, syntax: str, name: str) -> str:
    """Return the version that ``module load NAME`` means by our own file, or nothing. Raises StackError: unreadable."""
    content = read_bytes(os.path.join(root, default_path(syntax, name)))
    return default_version(syntax, content.decode("utf-8", "replace")) if content is not None else ""


def hidden_of(root: str, syntax: str, name: str) -> list[str]:
    """Return the versions that our own file keeps out of ``module avail``. Raises StackError: it cannot be read."""
    content = read_bytes(os.path.join(root, hidden_path(syntax, name)))
    return hidden_versions(syntax, content.decode("utf-8", "replace")) if content is not None else []


def publications(root: str, release: str) -> list[dict[str, Any]]:
    """Read the journal of what users saw of one release, oldest first. Raises StackError: it cannot be read."""
    path = os.path.join(stage_directory(root, release), JOURNAL)
    try:
        return json_lines.entries(path)
    except OSError as error:
        raise unreadable_error(path, error) from error


def all_publications(root: str) -> list[dict[str, Any]]:
    """Read the journals of all releases of a root, each entry with its ``release``, in the order of what happened."""
    try:
        names = sorted(os.listdir(os.path.join(root, ".torchstack")))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [dict(entry, release=name) for name in names for entry in publications(root, name)]
    # Entries of before the numbers: by their time, and within one journal by their place, which sorting keeps.
    return sorted(found, key=lambda entry: (number_of(entry), str(entry.get("time", ""))))


def number_of(entry: Mapping[str, Any]) -> int:
    """Return the number of a journal's entry, which grows over a root; 0 for entries without."""
    number = entry.get("seq")
    return number if isinstance(number, int) else 0


def _read_record(path: str) -> dict[str, Any] | None:
    try:
        record = read_json(path)
    except NotADirectoryError:
        return None
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    if record is not None and not isinstance(record, dict):
        raise unreadable_error(path, ValueError("it is not a record"))
    return record


def unreadable_error(path: str, error: Exception) -> StackError:
    """Make the error for a record that cannot be read."""
    return StackError(
        "%s cannot be read: %s." % (path, getattr(error, "strerror", None) or error), STEP,
        "Run as the account that owns the root; where the file is damaged, restore it.", path)

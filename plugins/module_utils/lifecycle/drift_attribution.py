# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Who and when, of a difference, as far as file system and journals tell."""

from __future__ import annotations

import os
import pwd
import time
from typing import Any

from ..core import json_lines as journal_lines
from ..core.files import read_json
from ..trees.boundary import open_parent


def witness(top: str, path: str, removed: bool) -> dict[str, str]:
    """Owner and times of an entry; of one that is gone, those of the nearest directory that is still there.

    Args:
        top: the release, an absolute path.
        path: relative to it, as results show it.
        removed: whether the entry itself is gone.

    Returns:
        ``owner``, ``modified`` (content or entries), ``changed`` (inode: also mode, owner, name or number of links),
        and ``seen_on`` where that is not the entry itself. Empty where nothing can be looked at, for instance as the
        name is no text.
    """
    at = os.path.dirname(path) if removed else path
    while True:
        try:
            with open_parent(os.path.realpath(top), at or ".") as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            break
        except (OSError, ValueError):
            if not removed or not at:
                return {}
            at = os.path.dirname(at)
    told = {
        "owner": account(found.st_uid), "modified": as_time(found.st_mtime), "changed": as_time(found.st_ctime),
    }
    return dict(told, seen_on=at or ".") if removed else told


def account(uid: int) -> str:
    """Name of an account, or its number where it has none any more."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def as_time(seconds: float) -> str:
    """A time of the file system in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Thaws:
    """What was thawed on purpose, now or before.

    Args:
        afterwards: the directory with what happened to the release after its build.
    """

    def __init__(self, afterwards: str) -> None:
        try:
            record = read_json(os.path.join(afterwards, "thawed.json"))
        except (OSError, ValueError):
            record = None
        self.open: dict[str, Any] = record if isinstance(record, dict) else {}
        try:
            self.past = journal_lines.entries(os.path.join(afterwards, "thaw.jsonl"))
        except OSError:
            self.past = []

    @property
    def is_open(self) -> bool:
        """Whether the release is thawed at the moment."""
        return bool(self.open)

    def open_as_result(self) -> dict[str, Any] | None:
        """The thaw that is open, in short."""
        return _in_short(self.open) if self.open else None

    def explain(self, path: str, kind: str) -> dict[str, Any]:
        """What thaws have to say of a difference.

        Returns:
            ``explained`` with the open thaw that names the path, or a directory above it; a directory on the way to a
            named path may have another mode meanwhile. Else ``thaw``, the last one that did, whose changes are in the
            manifest that was written at its end: this came later.
        """
        if self.open and (_names(self.open, path) or (kind == "mode" and _leads_to(self.open, path))):
            return {"explained": _in_short(self.open)}
        for entry in reversed(self.past):
            if _names(entry, path):
                return {"thaw": _in_short(entry)}
        return {}


def _paths(thaw: dict[str, Any]) -> list[str]:
    paths = thaw.get("paths")
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def _names(thaw: dict[str, Any], path: str) -> bool:
    return any(path == named or path.startswith(named.rstrip("/") + "/") for named in _paths(thaw))


def _leads_to(thaw: dict[str, Any], path: str) -> bool:
    return path == "." or any(named.startswith(path + "/") for named in _paths(thaw))


def _in_short(thaw: dict[str, Any]) -> dict[str, Any]:
    return {key: str(thaw.get(key, "")) for key in ("who", "at", "why")}

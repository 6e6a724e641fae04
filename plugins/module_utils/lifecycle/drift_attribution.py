# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Attribute a difference to an account and a time, as far as file system and journals tell."""

from __future__ import annotations

import os
import time
from typing import Any

from ..core import json_lines
from ..core.account import account_name
from ..core.files import read_json
from ..trees.boundary import open_parent


def attribute(top: str, path: str, removed: bool) -> dict[str, str]:
    """Return owner and times of an entry, or of the nearest directory that is left of its path.

    Returns:
        ``owner``, ``modified`` (content or entries), ``changed`` (inode: also mode, owner, name or number of links),
        and ``seen_on`` where that is not the entry itself. Empty where nothing can be looked at, as where the name is
        no text.
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
        "owner": account_name(found.st_uid), "modified": format_time(found.st_mtime),
        "changed": format_time(found.st_ctime)}
    return dict(told, seen_on=at or ".") if removed else told


def format_time(seconds: float) -> str:
    """Return a time of the file system in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Thaws:
    """What was thawed on purpose, now or before."""

    def __init__(self, afterwards: str) -> None:
        try:
            record = read_json(os.path.join(afterwards, "thawed.json"))
        except (OSError, ValueError):
            record = None
        self.open: dict[str, Any] = record if isinstance(record, dict) else {}
        try:
            self.past = json_lines.entries(os.path.join(afterwards, "thaw.jsonl"))
        except OSError:
            self.past = []

    @property
    def is_open(self) -> bool:
        """Tell whether the release is thawed at the moment."""
        return bool(self.open)

    def open_as_result(self) -> dict[str, Any] | None:
        """Return the thaw that is open, in short."""
        return _summary(self.open) if self.open else None

    def explain(self, path: str, kind: str) -> dict[str, Any]:
        """Tell what thaws have to say of a difference.

        ``explained`` has the open thaw that names the path, or a directory above it; a directory on the way to a named
        path may have another mode meanwhile. Else ``thaw`` has the last one that did, after whose manifest this came.
        """
        if self.open and (_covers(self.open, path) or (kind == "mode" and _leads_to(self.open, path))):
            return {"explained": _summary(self.open)}
        for entry in reversed(self.past):
            if _covers(entry, path):
                return {"thaw": _summary(entry)}
        return {}


def _paths(thaw: dict[str, Any]) -> list[str]:
    paths = thaw.get("paths")
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def _covers(thaw: dict[str, Any], path: str) -> bool:
    return any(path == named or path.startswith(named.rstrip("/") + "/") for named in _paths(thaw))


def _leads_to(thaw: dict[str, Any], path: str) -> bool:
    return path == "." or any(named.startswith(path + "/") for named in _paths(thaw))


def _summary(thaw: dict[str, Any]) -> dict[str, Any]:
    return {key: str(thaw.get(key, "")) for key in ("who", "at", "why")}

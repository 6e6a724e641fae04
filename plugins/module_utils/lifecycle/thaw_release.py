# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Represent a release with the thaw that is open on it."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..release.records import subject_of
from ..release.states import REMOVED, ReleaseState, one_release
from ..trees import manifest
from ..trees.manifest_file import Record
from . import (
    thaw_files,
    thaw_log,
    thaw_paths,
)
from .thaw_paths import Named

OPEN, REFROZEN, ABANDONED = "open", "refrozen", "abandoned"

MAX_LISTED = 100
"""How many differences a result lists; the journal has all."""


class Request(NamedTuple):
    """What is asked for."""

    root: str
    release: str
    state: str
    paths: Sequence[str] = ()
    reason: str = ""
    files: Sequence[Mapping[str, Any]] = ()
    """Files to put into place: ``path``, ``sha256`` and, for other permissions than before, ``mode``."""
    only_for_files: bool = False
    """Open nothing where each of the files is in place already."""
    python: str = ""


class Thaw:
    """One release, and its thaw as far as it is open."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = thawable_release(request.root, request.release)
        self.stage = thaw_files.Stage(request.root, request.release)
        self.records = thaw_log.Records(request.root, request.release)
        self.open: dict[str, Any] | None = self.state.thawed
        self.named = _recorded_paths(self.open) if self.open else []

    @property
    def manifest_path(self) -> str:
        """Return the manifest of the release."""
        return os.path.join(self.stage.prefix, thaw_paths.MANIFEST)

    def compare(self, content: bool) -> dict[str, Any]:
        """Compare the release with the manifest of before the thaw."""
        return manifest.compare(self._request(self.stage.before if self.open else self.manifest_path, content))

    def record(self, judge: Any) -> dict[str, Any]:
        """Write the manifest anew, unless ``judge`` raises an error."""
        before = Record(self.stage.before)
        before.close()
        request = self._request(self.manifest_path, True)._replace(exclude=tuple(before.header.exclude))
        return manifest.record(request, True, judge)

    def _request(self, record: str, content: bool) -> manifest.Request:
        return manifest.Request(self.stage.prefix, self.stage.root, record, content, limit=sys.maxsize)

    def left_writable(self, found: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Return directories that a killed run left writable, with the modes to give back."""
        own = {path for path in thaw_paths.own_directories(self.named) if not thaw_paths.covers(self.named, path)}
        return [(entry["path"], int(entry["from"], 8)) for entry in found["differing"]
                if entry["kind"] == "mode" and entry["path"] in own]

    def misplaced(self) -> list[Mapping[str, Any]]:
        """Return the files that are not in place yet. Raises StackError: one would go elsewhere than what is thawed."""
        for file in self.request.files:
            path = thaw_paths.normalise(file["path"])
            if not thaw_paths.covers(self.named, path):
                raise StackError(
                    "%s is not among what is thawed." % path, "thaw_files", "Name it, or its directory, in thaw_paths.",
                    path)
            found = thaw_paths.on_disk(self.stage.prefix, path)
            if found is not None and stat.S_ISDIR(found.st_mode):
                raise StackError("%s is a directory." % path, "thaw_files", "Name the file in it.", path)
        return [file for file in self.request.files
                if thaw_files.digest_of(os.path.join(self.stage.prefix, file["path"])) != file["sha256"]]


def thawable_release(root: str, release: str) -> ReleaseState:
    """Find a release that may be thawed. Raises StackError: it is being removed, or is another account's."""
    state = one_release(root, release)
    if state.retired and state.retired.get("state") in REMOVED:
        raise StackError(
            "Release %s is being removed." % release, "find the releases", "Thaw one that is kept.", state.prefix)
    owner = os.lstat(state.prefix).st_uid
    if owner != os.geteuid():
        raise StackError(
            "Release %s belongs to another account (uid %d) than this one (uid %d)." % (release, owner, os.geteuid()),
            "find the releases", "Run this as the account that rolled it out.", state.prefix)
    return state


def _recorded_paths(record: Mapping[str, Any]) -> list[Named]:
    return [Named(path, path in record["directories"]) for path in record["paths"]]


def thaw_result(thaw: Thaw, changed: bool, **more: Any) -> dict[str, Any]:
    record = more.pop("record", None) or thaw.open or {}
    result = {
        "changed": changed, "open": True, "paths": list(record.get("paths", [])), "thaw": record.get("thaw"),
        "thawed": [], "put": [], "wanted": [], "differed": [], "difference": [], "difference_total": 0, "objects": [],
        "digest": ((thaw.state.frozen or {}).get("manifest") or {}).get("digest"), "who": record.get("who"),
        "why": record.get("why"), "since": record.get("at"), "subject": subject_of(thaw.state.frozen),
        "stage": thaw.stage.directory,
    }
    result.update(more)
    return result

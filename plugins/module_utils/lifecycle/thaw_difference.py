# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the manifests of before and after a thaw, and find what the thaw does not explain."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..core.text import shortly
from ..trees.manifest_diff import readable_path
from ..trees.manifest_entry import Entry, decode_entry
from ..trees.manifest_file import Record
from .thaw_paths import Named, explains

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


def read_entries(path: str, several: Sequence[Named]) -> dict[str, Entry]:
    """Tell what a manifest has of the paths that a thaw explains. Raises StackError: it cannot be used."""
    found = {}
    try:
        record = Record(path)
    except FileNotFoundError as error:
        raise StackError(
            "The manifest %s is missing." % path, "read the record", "Restore it from a copy.", path) from error
    with contextlib.closing(record):
        for piece in record.pieces():
            for line in piece.splitlines():
                entry = decode_entry(line)
                name = os.fsdecode(entry.path)
                if explains(several, name):
                    found[name] = entry
    return found


def compare_entries(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[dict[str, Any]]:
    """Tell what differs between two such sets of entries, sorted by path."""
    found = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new:
            change = ADDED if old is None else REMOVED if new is None else CHANGED
            found.append({
                "path": readable_path(os.fsencode(path)), "change": change, "before": _facts(old), "after": _facts(new),
            })
    return found


def _facts(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    facts = {
        "type": entry.kind, "mode": None if entry.mode is None else "%04o" % entry.mode, "size": entry.size,
        "sha256": entry.sha256, "target": None if entry.target is None else readable_path(entry.target)}
    return {key: value for key, value in facts.items() if value is not None}


def differing_paths(result: Mapping[str, Any]) -> list[str]:
    """Return every path that differs by the result of a comparison."""
    return sorted({*result["added"], *result["removed"], *(entry["path"] for entry in result["differing"])})


def unexplained_paths(result: Mapping[str, Any], several: Sequence[Named], restored: Sequence[str] = ()) -> list[str]:
    """Return paths that differ and that neither the thaw nor modes that are ``restored`` explain."""
    kinds: dict[str, set[str]] = {}
    for entry in result["differing"]:
        kinds.setdefault(entry["path"], set()).add(entry["kind"])
    return [path for path in differing_paths(result)
            if not explains(several, path) and not (path in restored and kinds.get(path) == {"mode"})]


def unexplained_error(paths: Sequence[str], prefix: str, opened: bool) -> StackError:
    """Return the error for differences that the thaw does not explain."""
    return StackError(
        "%d %s of %s differ%s from the manifest and %s not among what is thawed: %s." % (
            len(paths), "entry" if len(paths) == 1 else "entries", prefix, "s" if len(paths) == 1 else "",
            "is" if len(paths) == 1 else "are", shortly(list(paths))),
        "compare",
        "Bring them back as they were%s, or name them in thaw_paths too, with a reason." % (
            "" if opened else " (playbooks/drift.yml tells more)"),
        prefix, outside=list(paths)[:100], outside_total=len(paths))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record a verification: its rules, and where each object finds each library that it needs.

Paths below the verified directory are relative to it, in the rules as ``{prefix}``: the record survives a move.
"""

from __future__ import annotations

import collections
import json
import os
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..core.files import read_json, write_json
from .libraries import Outcome
from .library_findings import text
from .library_graph import WITH, WITHOUT, Found
from .library_rules import (
    PREFIX,
    Rules,
    as_record,
    relocate,
)

FORMAT = 1
NAME = os.path.join(".torchstack", "verification.json")
"""Where a release has its record."""


def find_top(record: str, paths: Sequence[str]) -> bytes:
    """Find what a record's paths are relative to: the release it lies in, else what was verified first."""
    directory = os.path.dirname(os.path.abspath(record))
    if os.path.basename(directory) == os.path.dirname(NAME):
        return os.fsencode(os.path.dirname(directory))
    return os.path.abspath(os.fsencode(paths[0]))


def build(rules: Rules, paths: Sequence[str], outcome: Outcome, top: bytes) -> dict[str, Any]:
    """Build the record of a verification, its paths relative to the directory ``top``.

    ``needed`` is what holds with the LD_LIBRARY_PATH of the rules, if any; ``needed_without`` what differs with none.
    """
    objects: dict[str, Any] = {}
    for path, by_environment in outcome.needed.items():
        bare = by_environment.get(WITHOUT, {})
        needed = by_environment.get(WITH, bare)
        entry = objects[_relative(path, top)] = {"needed": _places(needed, top)}
        different = {name: found for name, found in bare.items() if needed.get(name) != found}
        if different:
            entry["needed_without"] = _places(different, top)
    return {
        "format": FORMAT, "rules": relocate(as_record(rules), os.fsdecode(top), PREFIX),
        "paths": [_relative(os.path.abspath(os.fsencode(path)), top) for path in paths], "objects": objects,
    }


def _places(needed: Mapping[bytes, Found], top: bytes) -> dict[str, dict[str, str | None]]:
    return {
        text(name): {"path": None if found.path is None else _relative(found.path, top), "rule": found.rule}
        for name, found in needed.items()
    }


def _relative(path: bytes, top: bytes) -> str:
    if path == top:
        return "."
    return text(path[len(top) + 1:] if path.startswith(top + b"/") else path)


def read(path: str) -> dict[str, Any] | None:
    """Read the record in a file; None where there is none, or one that this version cannot read."""
    try:
        record = read_json(path)
    except (ValueError, RecursionError):
        return None
    except OSError as error:
        message = "Cannot read the record %s: %s." % (path, error.strerror)
        remedy = "Give the account that verifies the right to read it, or remove it: it is written anew."
        raise StackError(message, "record", remedy, path) from error
    return record if isinstance(record, dict) and _is_record(record) else None


def _is_record(record: dict[str, Any]) -> bool:
    """Tell whether it is what :func:`build` makes, as far as :func:`render` goes into it."""
    try:
        return record["format"] == FORMAT and isinstance(record["rules"], dict) and all(
            isinstance(place["rule"], str) and isinstance(place["path"], (str, type(None)))
            for entry in record["objects"].values() for place in entry["needed"].values()
        )
    except (AttributeError, KeyError, TypeError):
        return False


def render(record: dict[str, Any] | None) -> str:
    """Render a record as text to compare: where each library comes from, for how many, and the rules."""
    if record is None:
        return ""
    places = collections.Counter(
        (name, place["path"] or "not found", place["rule"])
        for entry in record["objects"].values() for name, place in entry["needed"].items()
    )
    lines = ["%s  %s  %s  needed by %d" % (*key, count) for key, count in sorted(places.items())]
    lines.append("%d objects" % len(record["objects"]))
    return "\n".join(lines) + "\n" + json.dumps(record["rules"], indent=2, sort_keys=True) + "\n"


def rules_for(prefix: str, given: Any) -> Any:
    """Adapt the rules of a file, a record or plain rules, to the directory that is verified now."""
    if isinstance(given, dict) and "format" in given:
        if given["format"] != FORMAT or not isinstance(given.get("rules"), dict):
            raise StackError("The record has an unknown format.", "rules", "Verify with the version that wrote it.")
        given = given["rules"]
    return relocate(given, PREFIX, os.path.abspath(prefix))


def write_record(path: str, record: Mapping[str, Any]) -> None:
    """Replace a record; where it cannot be written, an older one is still there."""
    try:
        write_json(path, record)
    except OSError as error:
        message = "Cannot write the record %s: %s." % (path, error.strerror)
        remedy = "Thaw the release if it is frozen, and see that its directory exists and has room; then verify again."
        raise StackError(message, "record", remedy, path) from error

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record what the last comparisons of a release found, and since when that is so.

``drift.json`` has the outcome of the last comparison of each kind, and since when it is this one. It is only written
when an outcome has changed; a comparison that finds what the last one found sets the file's time of modification and
nothing else, so that time is when the last one ran. ``drift.jsonl`` gets a line whenever an outcome has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

from ..core import json_lines
from ..core.account import actor
from ..core.clock import now
from ..core.errors import StackError
from ..core.files import read_json, write_json
from ..modulefiles.layout import stage_directory

FORMAT = 1
RECORD = "drift.json"
HISTORY = "drift.jsonl"
HISTORY_KEYS = ("matches", "drifted", "passed", "totals", "findings", "findings_total")
"""What the history keeps of an outcome."""


def read_outcomes(root: str, release: str) -> dict[str, Any]:
    """Return the last outcomes by their kind; none without a usable record. Raises StackError: it may not be read."""
    path = os.path.join(stage_directory(root, release), RECORD)
    try:
        record = read_json(path)
    except ValueError:
        return {}
    except OSError as error:
        raise StackError(
            "Cannot read %s: %s." % (path, error.strerror), "record", "Run this as the account that owns the root.",
            path) from error
    looks = record.get("looks") if isinstance(record, dict) and record.get("format") == FORMAT else None
    return looks if isinstance(looks, dict) else {}


def keep_outcome(
    root: str, release: str, kind: str, outcome: dict[str, Any], apply: bool
) -> tuple[bool, dict[str, Any] | None]:
    """Keep the outcome of a comparison; return whether it is new of its kind, and the last one of that kind.

    The kind is ``quick``, ``full`` or ``system on HOST``. Raises StackError: it cannot be written.
    """
    outcome = json.loads(json.dumps(outcome))
    looks = read_outcomes(root, release)
    entry = looks.get(kind)
    before = entry.get("outcome") if isinstance(entry, dict) else None
    directory = stage_directory(root, release)
    path = os.path.join(directory, RECORD)
    if not apply:
        return before != outcome, before
    try:
        if before == outcome:
            with contextlib.suppress(OSError):  # another account may compare, too
                os.utime(path)
            return False, before
        digest = hashlib.sha256(json.dumps(outcome, sort_keys=True).encode("ascii")).hexdigest()
        history = os.path.join(directory, HISTORY)
        alike = [line for line in json_lines.entries(history) if line.get("look") == kind]
        last = alike[-1] if alike else {}
        since = str(last.get("time", ""))
        if last.get("outcome") != digest or not since:
            since = now()
            json_lines.append(history, {
                "look": kind, "time": since, "by": actor(), "outcome": digest,
                **{key: outcome[key] for key in HISTORY_KEYS if key in outcome}})
        looks[kind] = {"since": since, "outcome": outcome}
        write_json(path, {"format": FORMAT, "release": release, "looks": looks})
    except OSError as error:
        raise StackError(
            "Cannot write %s: %s." % (error.filename or path, error.strerror), "record",
            "Run this as the account that owns the root, or with --check to record nothing.", path) from error
    return True, before

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the last looks at a release found, and when that was first so.

``drift.json`` has the outcome of the last look of each kind, and since when it is this one. It is only written when an
outcome is another one; a look that finds what the last one found sets the file's time of modification and nothing
else, so that time is when somebody looked last. ``drift.jsonl`` gets a line whenever an outcome is another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

from ..core import json_lines as journal_lines
from ..core.account import actor
from ..core.clock import now
from ..core.errors import StackError
from ..core.files import read_json, write_json
from ..modulefiles.layout import stage_directory

FORMAT = 1
RECORD = "drift.json"
HISTORY = "drift.jsonl"
SHORT = ("matches", "drifted", "passed", "totals", "findings", "findings_total")
"""What the history keeps of an outcome."""


def read(root: str, release: str) -> dict[str, Any]:
    """The last looks by their kind; none where there is no record, or none that can be used, which is made anew.

    Raises:
        StackError: it is there and may not be read.
    """
    path = os.path.join(stage_directory(root, release), RECORD)
    try:
        record = read_json(path)
    except ValueError:
        return {}
    except OSError as error:
        raise StackError(
            "Cannot read %s: %s." % (path, error.strerror), "record", "Run this as the account that owns the root.",
            path,
        ) from error
    looks = record.get("looks") if isinstance(record, dict) and record.get("format") == FORMAT else None
    return looks if isinstance(looks, dict) else {}


def keep(
    root: str, release: str, kind: str, outcome: dict[str, Any], apply: bool
) -> tuple[bool, dict[str, Any] | None]:
    """Keep the outcome of a look.

    Args:
        root: the directory that holds the releases.
        release: the release's name.
        kind: of the look: ``quick``, ``full`` or ``system on HOST``.
        outcome: plain data, the same whenever the same was found.
        apply: False only says what would be done.

    Returns:
        whether the outcome is another one than that of the last look, and that one, None where there is none.

    Raises:
        StackError: it cannot be written.
    """
    outcome = json.loads(json.dumps(outcome))
    looks = read(root, release)
    entry = looks.get(kind)
    before = entry.get("outcome") if isinstance(entry, dict) else None
    directory = stage_directory(root, release)
    path = os.path.join(directory, RECORD)
    if not apply:
        return before != outcome, before
    try:
        if before == outcome:
            with contextlib.suppress(OSError):  # another account may look, too
                os.utime(path)
            return False, before
        digest = hashlib.sha256(json.dumps(outcome, sort_keys=True).encode("ascii")).hexdigest()
        history = os.path.join(directory, HISTORY)
        alike = [line for line in journal_lines.entries(history) if line.get("look") == kind]
        last = alike[-1] if alike else {}
        since = str(last.get("time", ""))
        if last.get("outcome") != digest or not since:
            since = now()
            journal_lines.append(history, {
                "look": kind, "time": since, "by": actor(), "outcome": digest,
                **{key: outcome[key] for key in SHORT if key in outcome},
            })
        looks[kind] = {"since": since, "outcome": outcome}
        write_json(path, {"format": FORMAT, "release": release, "looks": looks})
    except OSError as error:
        raise StackError(
            "Cannot write %s: %s." % (error.filename or path, error.strerror), "record",
            "Run this as the account that owns the root, or with --check to record nothing.", path,
        ) from error
    return True, before

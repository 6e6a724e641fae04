# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record thaws: which one is open, who opened it and why, and what each has changed.

``thawed.json`` lies beside the release's other later records while a thaw is open; ``thaw.jsonl`` only ever grows.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Mapping

from ..core import json_lines
from ..core.account import actor
from ..core.clock import now
from ..core.files import flush_directory, write_json
from ..core.lenient_json import mapping, text
from ..core.redaction import without_credentials
from ..trees.manifest_exclude import temporary_pattern

OPENED, REFROZEN, ABANDONED = "thawed", "refrozen", "abandoned"
"""The actions of the journal."""


class Records:
    """The records of one release's thaws."""

    def __init__(self, root: str, release: str) -> None:
        directory = os.path.join(root, ".torchstack", release)
        self.open_path = os.path.join(directory, "thawed.json")
        self.journal_path = os.path.join(directory, "thaw.jsonl")
        self.frozen_path = os.path.join(directory, "frozen.json")

    def next_number(self) -> int:
        """Return the number of the next thaw; numbers are never used twice."""
        return 1 + max((entry.get("thaw", 0) for entry in json_lines.entries(self.journal_path)), default=0)

    def corrections(self) -> list[dict[str, str]]:
        """List the thaws that have changed files, oldest first: ``at`` which time, and ``why``."""
        ended = [entry for entry in json_lines.entries(self.journal_path) if entry.get("action") == REFROZEN]
        digests = [mapping(entry.get("manifest")) for entry in ended]
        return [{"at": text(entry.get("at")), "why": text(entry.get("why"))}
                for entry, digest in zip(ended, digests) if digest.get("before") != digest.get("after")]

    def begin(self, record: Mapping[str, Any]) -> None:
        """Record that a thaw is open; the journal follows in :meth:`announce`."""
        write_json(self.open_path, record)

    def announce(self, record: Mapping[str, Any]) -> None:
        """Write what an open thaw is about into the journal, unless it is there."""
        said: set[str] = set()
        for entry in json_lines.entries(self.journal_path):
            if entry.get("thaw") == record["thaw"] and entry.get("action") == OPENED:
                said.update(entry["paths"])
        new = [path for path in record["paths"] if path not in said]
        if new:
            last = record["asked"][-1]
            self._append(dict(last, action=OPENED, thaw=record["thaw"], paths=new))

    def close(self, record: Mapping[str, Any], action: str, **more: Any) -> None:
        """Write the end of a thaw into the journal, unless it is there, and remove its record and unfinished ones."""
        ended = any(entry.get("thaw") == record["thaw"] and entry.get("action") in (REFROZEN, ABANDONED)
                    for entry in json_lines.entries(self.journal_path))
        if not ended:
            self._append(dict(more, action=action, thaw=record["thaw"], paths=record["paths"], why=record["why"],
                              who=actor(), at=now()))
        directory = os.path.dirname(self.open_path)
        for name in os.listdir(directory):
            records = (self.open_path, self.frozen_path)
            if any(temporary_pattern(os.path.basename(path)).fullmatch(name) for path in records):
                os.unlink(os.path.join(directory, name))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.open_path)
        flush_directory(directory)

    def _append(self, entry: Mapping[str, Any]) -> None:
        json_lines.append(self.journal_path, entry)


def requester(reason: str) -> dict[str, str]:
    """Tell who asks for something now, and why."""
    return {"who": actor(), "why": without_credentials(" ".join(reason.split())), "at": now()}

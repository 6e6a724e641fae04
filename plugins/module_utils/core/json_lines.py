# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Append to journals, and read them: one line of JSON for each entry.

An entry is on disk before what it announces is done: a line that a crash has cut is passed over by a reader.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from .files import flush_directory, regular_file
from .redaction import redacted_data


def append(path: str, entry: Mapping[str, Any]) -> None:
    """Add an entry to a journal, credentials masked, and flush it to disk; the file is for everybody to read."""
    line = json.dumps(redacted_data(entry), sort_keys=True) + "\n"
    # Appending as a whole: two writers never mix their lines, also where the one before was cut.
    with open(path, "ab+", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                line = "\n" + line
        left = line.encode("utf-8")
        while left:
            left = left[stream.write(left):]
        os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())
    if not size:
        flush_directory(os.path.dirname(path) or ".")


def entries(path: str) -> list[dict[str, Any]]:
    """Read the entries of a journal, oldest first; none where there is no such file."""
    try:
        with open(path, "rb", opener=regular_file) as stream:
            content = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for line in content.decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name the lock whose hash pip did not find in what it fetched; on the control node, where the locks are."""

from __future__ import annotations

import pathlib
import re
from typing import Iterable

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import lock_lines

_ANOTHER = re.compile(r"\b([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==(\S+) from ")
_EXPECTED = re.compile(r"Expected\s+(?:sha256|or)\s+([0-9a-f]{64})\b")


def mismatch(said: str, lock_files: Iterable[str]) -> str:
    """Say which line of which lock pip found another file for; empty where it says nothing like that.

    Args:
        said: pip's words about hashes.
        lock_files: the paths of the release's locks.
    """
    expected, named = set(_EXPECTED.findall(said)), _ANOTHER.search(said)
    if not expected or not named:
        return ""
    name, version = named.groups()
    for file in sorted(set(lock_files)):
        try:
            lock = pathlib.Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if any(digest in lock for digest in expected):
            return (
                "The file that the index has as %s %s is not the one that %s locks in line %d: nothing of it was "
                "installed; find out who changed which of the two, and take the right file from another index or "
                "mirror, or have bin/lock lock the file that is there." % (
                    name, version, file, lock_lines.line_of(lock, name, version)))
    return ""

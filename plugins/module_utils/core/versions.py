# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare versions: as PEP 440 orders those of Python, and all others by their numbers. Pure."""

from __future__ import annotations

import re
from typing import Any

_PYTHON = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?:-(?P<implied>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\Z", re.IGNORECASE,
)
_PHASE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL = 3
_CHUNKS = re.compile(r"\d+|[A-Za-z]+")

UP, DOWN, CHANGED, SAME = "up", "down", "changed", "same"


def direction(before: str, after: str) -> str:
    """Tell how a version differs from the one before it: ``up``, ``down``, or ``same`` where nothing differs.

    ``changed``: neither is newer, as of builds of one version for other hardware (``2.13.0+cpu``, ``2.13.0+cu130``).
    """
    if before == after:
        return SAME
    keys = _python_key(before), _python_key(after)
    if None in keys:
        keys = _chunks(before), _chunks(after)
    if keys[0] == keys[1]:
        return CHANGED
    return UP if keys[0] < keys[1] else DOWN


def _python_key(version: str) -> Any:
    """Return what PEP 440 compares of a public version, as a tuple that compares so; None for another version.

    A pre-release comes before its release, a developmental one before what it leads to, a post-release after it.
    """
    match = _PYTHON.match(version.strip())
    if not match:
        return None
    release = [int(part) for part in match["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    post = (match["post_number"] or "0") if match["post"] else match["implied"]
    phase: tuple[int, int] = (_FINAL, 0)
    if match["pre"]:
        phase = (_PHASE[match["pre"].lower()], int(match["pre_number"] or 0))
    elif match["dev"] and post is None:
        phase = (-1, 0)
    developed = (0, int(match["dev_number"] or 0)) if match["dev"] else (1, 0)
    return int(match["epoch"] or 0), release, phase, -1 if post is None else int(post), developed


def _chunks(version: str) -> list[tuple[int, int, str]]:
    """Split any version into numbers and words; a number comes after a word, as 1.1.1 does after 1.1.a."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in _CHUNKS.findall(version)]

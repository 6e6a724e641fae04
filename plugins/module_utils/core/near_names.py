# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the known name that an unknown one was probably meant for. Pure."""

from __future__ import annotations

import difflib
from typing import Iterable

NEAR = 0.6
"""Up to this likeness (0 to 1) two names are not taken for slips of the same one."""

VERY_NEAR = 0.85
"""From this likeness on, a name is taken for a slip where it might just as well be somebody's own."""


def _plain(text: str) -> str:
    return text.lower().replace("-", "_")


def find_nearest(word: str, candidates: Iterable[str], above: float = NEAR) -> tuple[str, float]:
    """Find the candidate most like ``word``, case and dashes aside, and how alike they are; nothing up to ``above``."""
    matcher = difflib.SequenceMatcher(None, "", _plain(word))
    best, likeness = "", above
    for candidate in candidates:
        matcher.set_seq1(_plain(candidate))
        if matcher.real_quick_ratio() > likeness and matcher.quick_ratio() > likeness:
            ratio = matcher.ratio()
            if ratio > likeness:
                best, likeness = candidate, ratio
    return (best, likeness) if best else ("", 0.0)


def nearest(word: str, candidates: Iterable[str], above: float = NEAR) -> str:
    """Find the candidate most like ``word``; empty for none.

    Of several that are equally alike, one of the same letters, typed in another order, and else the first by name.
    """
    letters = sorted(_plain(word))
    ordered = sorted(candidates, key=lambda candidate: (sorted(_plain(candidate)) != letters, candidate))
    return find_nearest(word, ordered, above)[0]

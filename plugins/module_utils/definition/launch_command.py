# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and fill in the words by which a site starts ranks. Pure."""

from __future__ import annotations

import re
from typing import Sequence

PLACEHOLDERS = ("ranks", "nodes", "per_node")
"""What may stand in braces: all ranks, the nodes, and the ranks on each."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")


def problem(words: Sequence[str]) -> str:
    """Say why words cannot start ranks, as the end of a sentence; empty where they can."""
    if not words or not words[0]:
        return "is empty; give the words of a command, such as [mpiexec, -n, '{ranks}']"
    if len(words[0].split()) > 1:
        return "has '%s' for the name of a program; make each of its words one of the list" % words[0]
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    unknown = sorted(used.difference(PLACEHOLDERS))
    if unknown:
        return "has the placeholder {%s}; known are {%s}" % (unknown[0], "}, {".join(PLACEHOLDERS))
    return ""


def tells_ranks(words: Sequence[str]) -> bool:
    """Tell whether the number of ranks follows from the words, not from the job's request."""
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    return "ranks" in used or {"nodes", "per_node"} <= used


def filled(words: Sequence[str], nodes: int, per_node: int) -> list[str]:
    """Replace the placeholders of the words. ``words``: those in which :func:`problem` found nothing."""
    values = {"ranks": nodes * per_node, "nodes": nodes, "per_node": per_node}
    return [_PLACEHOLDER.sub(lambda found: str(values[found.group(1)]), word) for word in words]

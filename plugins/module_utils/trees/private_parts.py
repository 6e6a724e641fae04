# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Freeze a tree for everybody, but for directories that are their owner's only, which stay so."""

from __future__ import annotations

import glob
import os
import re
import stat
from typing import Any, Callable, Iterable, Sequence

from .policy import FROZEN, Policy

OTHERS = 0o077
RULES = {"files": "u=r,go=", "executables": "u=rx,go=", "directories": "u=rx,go="}
"""What a frozen directory that is its owner's only gets, with everything below it."""


def is_private(path: str) -> bool:
    """Tell whether a directory, and no link to one, is its owner's only; OSError: it is not there."""
    mode = os.lstat(path).st_mode
    return stat.S_ISDIR(mode) and not mode & OTHERS


def private_parts(tree: str, patterns: Iterable[str]) -> list[str]:
    """List the directories of a tree that match relative globs and are their owner's only, relative to it.

    Those within another one are left out: they are frozen with it.
    """
    found: list[str] = []
    for pattern in patterns:
        for path in glob.glob(os.path.join(glob.escape(tree), pattern.strip("/")), recursive=True):
            if is_private(path):
                found.append(os.path.relpath(path, tree))
    return [one for one in sorted(set(found)) if not any(one.startswith(other + "/") for other in found)]


def excluding(parts: Sequence[str]) -> list[str]:
    """Return globs that match these paths and no others."""
    return [re.sub(r"([*?\[])", r"[\1]", part) for part in parts]


def over_all(
    walk: Callable[[Policy, str, Sequence[str]], dict[str, Any]], policy: Policy, parts: Sequence[str], limit: int,
) -> dict[str, Any]:
    """Walk a tree without its private parts, then each of them, and return the result of all.

    ``walk`` gets a policy, where below the tree it begins, and what it leaves out; it returns counters as plain data.
    """
    result = walk(policy, "", excluding(parts))
    result["excluded"] -= len(parts)
    for part in parts:
        _merge(result, walk(Policy(FROZEN, RULES), part, ()), part, limit)
    return result


def _merge(result: dict[str, Any], more: dict[str, Any], part: str, limit: int) -> None:
    for key, value in more.items():
        if isinstance(value, list):
            moved = [
                dict(one, path=os.path.normpath(os.path.join(part, one["path"]))) if isinstance(one, dict)
                else os.path.join(part, one) for one in value]
            result[key] = (result[key] + moved)[:limit]
        else:
            result[key] += value

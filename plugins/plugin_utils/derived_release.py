# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Lay a release file over the one that it extends. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

KEY = "extends"
"""Names the release that a file differs from, one of the same directory that extends no other."""


def merge(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key; anything else of the child replaces what the parent has, and null removes it."""
    found = dict(parent)
    for key, value in child.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = merge(found[key], value)
        else:
            found[key] = value
    return found


def removed_in_vain(parent: Mapping[str, Any], child: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the dotted paths of keys that the child removes and the parent does not have."""
    for key, value in child.items():
        here = "%s.%s" % (path, key) if path else str(key)
        if value is None and key not in parent:
            yield here
        elif isinstance(value, Mapping):
            below = parent.get(key)
            yield from removed_in_vain(below if isinstance(below, Mapping) else {}, value, here)


def paths(data: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each key and element, as a release file's lines have them."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            here = "%s.%s" % (path, key) if path else str(key)
            yield here
            yield from paths(value, here)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            here = "%s[%d]" % (path, number)
            yield here
            yield from paths(value, here)

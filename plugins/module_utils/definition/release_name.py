# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuse names of releases that are those of something else in a root, and texts that no record can hold. Pure."""

from __future__ import annotations

from typing import Iterator, Mapping

from . import container

LONGEST = 64
"""Characters of a name, which is part of those of files and jobs."""

_PARTS = {
    "modulefiles": "modulefiles", container.COPIES: "the copies of images", "tools": "build tools",
    "builds": "what steps have produced", "conda": "the cache of conda's packages",
    "publish.lock.json": "the lock of the root", "module_cache.json": "the record of the module system's cache",
}
"""Directories and files of a root, and of its own .torchstack, beside those of releases."""


def problems(definition: object, source: str = "") -> list[str]:
    """Find what is wrong with a release's name, as one sentence each."""
    name = definition.get("release") if isinstance(definition, dict) else None
    where = " in %s" % source if source else ""
    if not isinstance(name, str):
        return []
    if name in _PARTS:
        return ["'release'%s is %s, where a root has %s; give the release another name." % (where, name, _PARTS[name])]
    if len(name) > LONGEST:
        return ["'release'%s has %d characters; give it a name of at most %d." % (where, len(name), LONGEST)]
    return []


def unwritable(content: object, source: str = "") -> list[str]:
    """Find values that are neither text, number, list nor mapping, such as YAML's binary data, as one sentence each."""
    where = " in %s" % source if source else ""
    return [
        "'%s'%s is %s, which no record can hold; write it as text." % (path, where, kind)
        for path, kind in _unwritable(content, "")]


def _unwritable(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            below = "%s.%s" % (path, key) if path else str(key)
            if not isinstance(key, (str, int, float)):
                yield below, "a key of the type %s" % type(key).__name__
            yield from _unwritable(inner, below)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _unwritable(inner, "%s[%d]" % (path, number))
    elif value is not None and not isinstance(value, (str, int, float)):
        yield path, {"bytes": "binary data", "set": "a set"}.get(type(value).__name__, type(value).__name__)

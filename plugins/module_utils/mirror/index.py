# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write ``mirror.json``: each file of a mirror, its digest and origin, and its releases."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Iterable, Mapping, NamedTuple

from ..core.errors import StackError
from ..core.files import read_json, write_json

NAME = "mirror.json"
NOTES = ".origins"
FORMAT = 1


class Item(NamedTuple):
    """A file of a mirror, there or to be fetched."""

    path: str
    """relative to the mirror; of a git commit that is to be fetched, only the directory is known"""
    sha256: str
    """empty where only the commit is known"""
    size: int
    """bytes; -1 where it is not known"""
    url: str
    name: str
    version: str
    commit: str = ""

    @property
    def described(self) -> str:
        """Return a line for the difference that an operator reads."""
        size = "" if self.size < 0 else ", %s" % format_bytes(self.size)
        return "%s %s: %s%s" % (self.name, self.version, self.commit or os.path.basename(self.path), size)


def format_bytes(size: int) -> str:
    """Return a number of bytes for people."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return "%d %s" % (amount, unit) if unit == "bytes" else "%.1f %s" % (amount, unit)
        amount /= 1000
    return "%.1f GB" % amount


def read(directory: str) -> dict[str, Any]:
    """Return the list of a mirror; an empty one where there is none. Raises StackError: it cannot be read."""
    path = os.path.join(directory, NAME)
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise StackError(
            "The list of the mirror cannot be read: %s." % error, "read the mirror",
            "Remove it and run `make mirror` again, which writes it anew.", path) from error
    if found is None:
        return {"format": FORMAT, "files": {}, "releases": {}}
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StackError(
            "%s is not the list of a mirror that this version knows." % path, "read the mirror",
            "Use another directory.", path)
    return found


def note_origin(directory: str, item: Item) -> None:
    """Keep where a file came from until the list is written, also if this run never comes to that."""
    with open(os.path.join(directory, NOTES), "a", encoding="utf-8") as stream:
        stream.write(json.dumps([item.path, item.sha256, item.url]) + "\n")


def noted_origins(directory: str) -> dict[tuple[str, str], str]:
    """Tell what was noted: address by path and digest."""
    found = {}
    try:
        with open(os.path.join(directory, NOTES), encoding="utf-8") as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # the last line of a killed run may be half
                    path, sha256, url = json.loads(line)
                    found[(path, sha256)] = url
    except FileNotFoundError:
        pass
    return found


def merged(
    before: Mapping[str, Any], release: str, part: str, items: Iterable[Item], facts: Mapping[str, Any],
    origins: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    """Return the list with what one part of a release consists of now, without files that no release wants any more.

    ``facts`` are what the items were chosen for, ``origins`` is from :func:`noted_origins`.
    """
    mine = {item.path: item for item in items}
    releases = {name: dict(parts) for name, parts in before["releases"].items()}
    releases.setdefault(release, {})[part] = dict(facts, files=sorted(mine))
    files = dict(before["files"])
    for path, item in mine.items():
        former = before["files"].get(path) or {}
        known = former.get("origin", "") if former.get("sha256") == item.sha256 else ""
        files[path] = {
            "sha256": item.sha256, "size": item.size, "origin": origins.get((path, item.sha256), known),
            "name": item.name, "version": item.version}
    asked = {path for parts in releases.values() for found in parts.values() for path in found["files"]}
    return {
        "format": FORMAT, "files": {path: files[path] for path in sorted(asked) if path in files}, "releases": releases}


def write(directory: str, record: Mapping[str, Any]) -> bool:
    """Write the list if it says something new; whether it did."""
    if read(directory) == record and os.path.exists(os.path.join(directory, NAME)):
        return False
    write_json(os.path.join(directory, NAME), record)
    return True

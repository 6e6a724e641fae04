# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the record of a verification of imports, and read the static one to compare with.

A record lies in the directory ``.torchstack`` of the release it is about; paths below the release are relative in it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.files import read_json
from .import_checks import MappedLibrary, Recorded, text

FORMAT = 1
DIRECTORY = ".torchstack"

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


class StaticRecord(NamedTuple):
    """Hold what ldd_verify recorded of a release, links resolved: per object, the path of each name that it needs.

    ``opened`` are the names that its rules say are opened by objects which do not need them.
    """

    path: str
    release: str
    needed: dict[str, dict[str, bytes]]
    opened: frozenset[str] = frozenset()

    def of(self, mapped: Sequence[MappedLibrary]) -> tuple[Recorded, ...]:
        """Return what it found for the objects that a process has mapped, unless it knows none of the release's."""
        paths = [(entry.library.path, text(entry.library.path)) for entry in mapped]
        known = [(path, self.needed[name]) for path, name in paths if name in self.needed]
        if not known and any(name.startswith(self.release + "/") for _path, name in paths):
            message = "The record %s knows none of the libraries of %s that are mapped." % (self.path, self.release)
            remedy = "Verify that directory, with ldd_verify and it as the first of paths."
            raise StackError(message, "plan", remedy, self.path)
        return tuple(
            Recorded(path, os.fsencode(name), found, name in self.opened)
            for path, needed in known for name, found in sorted(needed.items())
        )


def find_release(record: str) -> str:
    """Return the directory that a record is about."""
    directory = os.path.dirname(os.path.abspath(record))
    return os.path.dirname(directory) if os.path.basename(directory) == DIRECTORY else directory


def read_static(path: str, with_library_path: bool) -> StaticRecord:
    """Read the record of ldd_verify, or refuse it; without an LD_LIBRARY_PATH, what it says of that counts."""
    remedy = "Run the static verification (ldd_verify with record) first."
    try:
        record = read_json(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise StackError("Cannot read the record %s: %s." % (path, reason), "plan", remedy, path) from error
    if record is None:
        raise StackError("There is no record %s." % path, "plan", remedy, path)
    known = record if isinstance(record, Mapping) and record.get("format") == FORMAT else {}
    objects = known.get("objects")
    release = os.path.realpath(find_release(path))
    needed: dict[str, dict[str, bytes]] = {}
    opened: frozenset[str] = frozenset()
    try:
        opened = frozenset(rule["name"] for rule in known.get("rules", {}).get("plugins", ()))
        for name, facts in (objects or {}).items():
            found = dict(facts["needed"], **({} if with_library_path else facts.get("needed_without", {})))
            needed[os.path.join(release, name)] = {
                soname: _real(place["path"], release) for soname, place in found.items() if place["path"]
            }
    except (AttributeError, KeyError, TypeError, ValueError):
        objects = None
    if objects is None:
        raise StackError("%s is not a record of ldd_verify in format %d." % (path, FORMAT), "plan", remedy, path)
    return StaticRecord(path, release, needed, opened)


def _real(name: str, release: str) -> bytes:
    """Find the file that a path of a record leads to; bytes that are not UTF-8 are escaped in it."""
    path = os.fsencode(os.path.join(release, name))
    if not os.path.lexists(path):
        path = _ESCAPED.sub(lambda match: bytes([int(match.group(1), 16)]), path)
    return os.path.realpath(path)


def as_record(
    release: str, python: str, version: str, modules: Sequence[str], mapped: Sequence[MappedLibrary],
    values: Mapping[str, Any], allowed: Sequence[Mapping[str, str]], scratch: str,
) -> dict[str, Any]:
    """Make the record: all that is the same whenever the same release is imported.

    Libraries without a name, or in the directory of the run itself, are called differently each time and are left out.
    """
    inside = os.path.realpath(scratch) + "/"
    kept = [(entry.step, entry.library) for entry in mapped if not entry.library.deleted]
    entries = [
        {"path": _relative(text(library.path), release), "soname": text(library.soname), "brought_by": step}
        for step, library in kept if not os.fsdecode(library.path).startswith(inside)
    ]
    return {
        "format": FORMAT, "python": _relative(python, release), "python_version": version, "modules": list(modules),
        "mapped": entries, "reported": dict(values),
        "allowed": [dict(entry, path=_relative(entry["path"], release)) for entry in allowed],
    }


def _relative(path: str, release: str) -> str:
    for top in (release, os.path.realpath(release)):
        if path.startswith(top.rstrip("/") + "/"):
            return path[len(top.rstrip("/")) + 1 :]
    return path


def read_record(path: str) -> Any:
    """Read the record; None where there is none, or none that can be understood."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def render(record: Any) -> str:
    """Render a record as it stands in its file."""
    return "" if record is None else json.dumps(record, indent=2, sort_keys=True) + "\n"

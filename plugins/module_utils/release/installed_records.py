# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the records of a release's build, to list what is installed in it."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Mapping, NamedTuple

from ..core.errors import StackError
from ..core.files import regular_file
from ..core.lenient_json import mapping, text

RECORDS = ".torchstack"
STEP = "read what is installed"


class Places(NamedTuple):
    """Hold the directories that depend on where a release lies, and their names instead, the innermost first."""

    prefix: str
    names: tuple[tuple[str, str], ...]
    tag: str = ""
    """The interpreter, as in the names of wheels."""

    @classmethod
    def of(cls, prefix: str, resolved: Mapping[str, Any]) -> Places:
        """Return the places of a release, there and as its release file, maybe of another place, has them."""
        base = mapping(resolved.get("base"))
        built = os.path.dirname(text(base.get("prefix"))) or prefix
        known = [(text(resolved.get("tools")), "{tools}")]
        known += [(one, "{prefix}") for one in dict.fromkeys((prefix, built))]
        known += [(os.path.dirname(one), "{root}") for one in dict.fromkeys((prefix, built))]
        return cls(prefix, tuple((path, name) for path, name in known if len(path) > 1), text(base.get("tag")))

    def generic(self, words: str) -> str:
        """Replace the places in a text that depend on where the release lies."""
        for path, name in self.names:
            words = _replace_path(words, path, name)
        return words


def _replace_path(words: str, path: str, name: str) -> str:
    """Replace a path where it ends as a path does, so that /soft/a stays apart from /soft/ab."""
    parts = words.split(path)
    found = parts[0]
    for part in parts[1:]:
        whole = not part or not (part[0].isalnum() or part[0] in "._-+")
        found += (name if whole else path) + part
    return found


def read_build(prefix: str) -> dict[str, Any]:
    """Read every small record of the build by its name without ending. Raises StackError: one cannot be read."""
    return {
        os.path.splitext(os.path.basename(path))[0]: read_record(path)
        for path in sorted(glob.glob(os.path.join(glob.escape(prefix), RECORDS, "*.json")))
        if os.path.basename(path) not in ("manifest.json", "sbom.spdx.json")}


def read_record(path: str) -> Any:
    """Read a record as plain data. Raises StackError: it is there and cannot be read, or is not JSON."""
    try:
        with open(path, encoding="utf-8", opener=regular_file) as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable_error(path, error) from error


def unreadable_error(path: str, error: Exception) -> StackError:
    """Make the error for a file of a release that cannot be read."""
    why = error.strerror if isinstance(error, OSError) else error
    return StackError(
        "%s cannot be read: %s." % (path, why), STEP,
        "Compare the release with its manifest (playbooks/drift.yml), and bring the file back.", path)


def step_environment(prefix: str, step: str) -> dict[str, str]:
    """Read the variables of a build step; none where there was no such step. Raises StackError: that cannot be read."""
    record = mapping(read_record(os.path.join(prefix, RECORDS, "steps", step, "inputs.json")))
    given = mapping(mapping(record.get("facts")).get("environment"))
    return {text(name): text(value) for name, value in given.items()}

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release's records on disk: what was asked for, and whether it is frozen."""

from __future__ import annotations

import glob
import os
from typing import NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import read_json, write_atomic, write_json

DIRECTORIES = ("", "wheels", ".torchstack", ".torchstack/steps")
"""What an opened release has from the start, relative to its prefix."""


class ReleaseFiles(NamedTuple):
    """Where the records of one release lie."""

    root: str
    release: str

    @property
    def prefix(self) -> str:
        """The release itself."""
        return os.path.join(self.root, self.release)

    @property
    def resolved(self) -> str:
        """The resolved release file, frozen with the release."""
        return os.path.join(self.prefix, ".torchstack", "release.yml")

    @property
    def afterwards(self) -> str:
        """The directory of what happens to the release after its build."""
        return os.path.join(self.root, ".torchstack", self.release)

    @property
    def frozen(self) -> str:
        """Written last when the release was frozen; outside of the tree that it speaks of."""
        return os.path.join(self.afterwards, "frozen.json")


def read(files: ReleaseFiles) -> dict:
    """What is recorded of the release.

    Returns:
        ``content`` (text of the resolved release file, or None) and ``frozen`` (the record of the freeze, or None).

    Raises:
        StackError: a record is there and cannot be read.
    """
    try:
        with open(files.resolved, encoding="utf-8") as stream:
            content = stream.read()
    except FileNotFoundError:
        content = None
    except (OSError, ValueError) as error:
        raise _unreadable(files.resolved, error) from error
    try:
        frozen = read_json(files.frozen)
    except (OSError, ValueError) as error:
        raise _unreadable(files.frozen, error) from error
    return {"content": content, "frozen": frozen}


def _unreadable(path: str, error: Exception) -> StackError:
    return StackError(
        "The record %s cannot be read: %s." % (path, error),
        failed_step="read",
        remedy="Restore it or, if nothing of the release is in use, remove the release and roll out again.",
        path=path,
    )


def collect(files: ReleaseFiles) -> dict:
    """Every record that roles and steps left behind, for a summary.

    Returns:
        ``steps`` (name to the step's stamp), ``build`` and ``afterwards`` (record name without its ending to the
        record, from inside and outside of the release). A record that cannot be read is left out: a summary is no
        judge.
    """
    return {
        "steps": _json_files(os.path.join(files.prefix, ".torchstack", "steps", "*", "stamp.json"), by_directory=True),
        "build": _json_files(os.path.join(files.prefix, ".torchstack", "*.json")),
        "afterwards": _json_files(os.path.join(files.afterwards, "*.json")),
    }


def _json_files(pattern: str, by_directory: bool = False) -> dict:
    found = {}
    for path in sorted(glob.glob(pattern)):
        name = os.path.basename(os.path.dirname(path)) if by_directory else os.path.basename(path)[: -len(".json")]
        try:
            found[name] = read_json(path)
        except (OSError, ValueError):
            continue
    return found


def planned_directories(files: ReleaseFiles) -> list[str]:
    """The directories of an open release that are not there yet, outermost first."""
    wanted = [os.path.join(files.prefix, name) if name else files.prefix for name in DIRECTORIES]
    return [path for path in [*wanted, files.afterwards] if not os.path.isdir(path)]


def open_release(files: ReleaseFiles, content: str, missing: list[str]) -> None:
    """Make the directories and write the resolved release file.

    Args:
        files: where.
        content: the text of the resolved release file.
        missing: what :func:`planned_directories` found.

    Raises:
        StackError: the file system refuses.
    """
    try:
        for path in missing:
            os.makedirs(path, mode=0o755, exist_ok=True)
        write_atomic(files.resolved, content.encode("utf-8"))
    except OSError as error:
        raise StackError(
            "The release cannot be opened: %s." % error,
            failed_step="open",
            remedy="Make room or correct the permissions there, and run again.",
            path=str(error.filename or files.prefix),
        ) from error


def record_freeze(files: ReleaseFiles, record: dict) -> None:
    """Record that the release is frozen.

    Raises:
        StackError: the file system refuses.
    """
    try:
        write_json(files.frozen, record)
    except OSError as error:
        raise StackError(
            "The freeze cannot be recorded: %s." % error,
            failed_step="freeze",
            remedy="Correct the cause and run again; the release's files are read-only already.",
            path=files.frozen,
        ) from error

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release's records on disk: what was asked for, and whether it is frozen."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from ..core.errors import StackError
from ..core.files import read_json, write_atomic, write_json
from ..verify.summary import (
    summarise_imports,
    summarise_libraries,
)

DIRECTORIES = ("", "wheels", ".torchstack", ".torchstack/steps")
"""What an opened release has from the start, relative to its prefix."""

IN_SHORT: dict[str, Callable[[Any], dict]] = {
    "verification": summarise_libraries,
    "imports": summarise_imports,
    "sbom.spdx": lambda record: {"packages": len(record["packages"])},
}
"""Records of the build that have an entry for each object or package, and what makes them short."""

LEFT_OUT = ("manifest",)
"""Records of the build that have an entry for each file; the record of the freeze has the manifest's digest."""

OF_MANY_NODES: dict[str, Callable[[Any], dict]] = {
    "node_health": lambda record: dict(
        record, nodes=[{key: value for key, value in node.items() if key != "facts"} for node in record["nodes"]]),
    "sweep": lambda record: dict(
        {key: value for key, value in record.items() if key != "repeated"}, measured=len(record["measured"])),
    "report": lambda record: {"there": bool(record)},
}
"""Records of what came afterwards that have an entry for each node or pair of nodes, and what makes them short."""


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

    @property
    def freezing(self) -> str:
        """Written first when the release is frozen, and removed when that is recorded."""
        return os.path.join(self.afterwards, "freezing.json")

    @property
    def thawed(self) -> str:
        """There while named paths of the frozen release may be changed."""
        return os.path.join(self.afterwards, "thawed.json")

    @property
    def retired(self) -> str:
        """There once users were told that the release goes, and for good when it is gone."""
        return os.path.join(self.afterwards, "retired.json")


def read(files: ReleaseFiles) -> dict:
    """What is recorded of the release.

    Returns:
        ``content`` (text of the resolved release file, or None), ``frozen`` (the record of the freeze, or None),
        ``freezing`` (the record of a freeze that began and was interrupted, or None), ``thawed`` (the record of a thaw
        that is open, or None), ``retired`` (the record of its retirement, or None) and ``subject`` (see
        :func:`subject_of`).

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
    frozen = _read(files.frozen)
    return {
        "content": content, "frozen": frozen, "freezing": None if frozen else _read(files.freezing),
        "thawed": _read(files.thawed), "retired": _read(files.retired), "subject": subject_of(frozen),
    }


def subject_of(frozen: Mapping[str, Any] | None) -> str:
    """What an acceptance of a frozen release belongs to: the digest of what was asked for.

    After a thaw that changed files, these count too: it is another subject, and what was accepted before says nothing
    of it. Empty where the release is not frozen.
    """
    if not frozen:
        return ""
    digest = str(frozen.get("digest", ""))
    if not frozen.get("thawed"):
        return digest
    both = "%s %s" % (digest, (frozen.get("manifest") or {}).get("digest", ""))
    return hashlib.sha256(both.encode("utf-8")).hexdigest()


def _read(path: str) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> StackError:
    why = getattr(error, "strerror", None) or error
    remedy = "Restore it or, if nothing of the release is in use, remove the release and roll out again."
    if isinstance(error, PermissionError):
        remedy = "Run this as the account that owns the root, or name another root."
    elif isinstance(error, NotADirectoryError):
        remedy = "Name a root that is a directory."
    return StackError("The record %s cannot be read: %s." % (path, why), failed_step="read", remedy=remedy, path=path)


def collect(files: ReleaseFiles) -> dict:
    """Every record that roles and steps left behind, for a summary.

    Returns:
        ``steps`` (name to the step's stamp), ``build`` and ``afterwards`` (record name without its ending to the
        record, from inside and outside of the release; long ones in short), and ``unreadable``: a summary is no judge,
        so a record that cannot be read, or is not as it was written, is left out and only named, with the reason.
    """
    records = os.path.join(files.prefix, ".torchstack")
    unreadable: list[str] = []
    return {
        "steps": {
            os.path.basename(os.path.dirname(path)): record
            for path, record in _readable(os.path.join(records, "steps", "*", "stamp.json"), unreadable)
        },
        "build": dict(_in_short(records, IN_SHORT, unreadable)),
        "afterwards": dict(_in_short(files.afterwards, OF_MANY_NODES, unreadable)),
        "unreadable": unreadable,
    }


def _in_short(
    directory: str, shorter: Mapping[str, Callable[[Any], dict]], unreadable: list[str]
) -> Iterator[tuple[str, object]]:
    for path, record in _readable(os.path.join(directory, "*.json"), unreadable, LEFT_OUT):
        shorten = shorter.get(_name(path))
        try:
            yield _name(path), shorten(record) if shorten else record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            unreadable.append("%s (it is not as it was written: %s)" % (path, error))


def _readable(pattern: str, unreadable: list[str], without: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    for path in sorted(glob.glob(pattern)):
        if _name(path) in without:
            continue
        try:
            record = read_json(path)
        except (OSError, ValueError) as error:
            unreadable.append("%s (%s)" % (path, getattr(error, "strerror", None) or error))
        else:
            yield path, record


def _name(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def planned_directories(files: ReleaseFiles) -> list[str]:
    """The directories of an open release that are not there yet, outermost first."""
    wanted = [os.path.join(files.prefix, name) if name else files.prefix for name in DIRECTORIES]
    return [path for path in [*wanted, files.afterwards] if not os.path.isdir(path)]


def open_release(files: ReleaseFiles, content: str, missing: list[str]) -> None:
    """Make the directories, write the resolved release file, and forget a freeze that was interrupted.

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
        _forget(files.freezing)
    except OSError as error:
        raise StackError(
            "The release cannot be opened: %s." % error,
            failed_step="open",
            remedy="Make room or correct the permissions there, and run again.",
            path=str(error.filename or files.prefix),
        ) from error


def begin_freeze(files: ReleaseFiles, record: dict) -> None:
    """Record that the release is about to be frozen: from here on it is not built any more.

    Raises:
        StackError: the file system refuses.
    """
    try:
        write_json(files.freezing, record)
    except OSError as error:
        raise _not_recorded(files.freezing, error, "nothing of the release was changed.") from error


def record_freeze(files: ReleaseFiles, record: dict) -> None:
    """Record that the release is frozen.

    Raises:
        StackError: the file system refuses.
    """
    try:
        write_json(files.frozen, record)
        _forget(files.freezing)
    except OSError as error:
        raise _not_recorded(files.frozen, error, "the release's files are read-only already.") from error


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _not_recorded(path: str, error: OSError, state: str) -> StackError:
    return StackError(
        "The freeze cannot be recorded: %s." % error,
        failed_step="freeze",
        remedy="Correct the cause and run again; %s" % state,
        path=path,
    )

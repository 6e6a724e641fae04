# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write a release's records: what was asked for, and whether it is frozen."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from typing import Any, Callable, Iterator, Mapping

from ..core.errors import StackError
from ..core.files import (
    read_json,
    regular_file,
    write_atomic,
    write_json,
)
from ..core.lenient_json import mapping, number, text
from ..modulefiles.layout import PARTITIONS
from ..verify.summary import (
    summarise_imports,
    summarise_libraries,
)

DIRECTORIES = ("", "wheels", ".torchstack", ".torchstack/steps")
"""What an opened release has from the start, relative to its prefix."""

BUILD_SUMMARIES: dict[str, Callable[[Any], dict]] = {
    "verification": summarise_libraries, "imports": summarise_imports,
    "sbom.spdx": lambda record: {"packages": len(record["packages"])}}
"""Records of the build that have an entry for each object or package, and what makes them short."""

UNSUMMARISED = ("manifest",)
"""Records of the build that have an entry for each file; the record of the freeze has the manifest's digest."""

LATER_SUMMARIES: dict[str, Callable[[Any], dict]] = {
    "node_health": lambda record: dict(
        record, nodes=[{key: value for key, value in node.items() if key != "facts"} for node in record["nodes"]]),
    "sweep": lambda record: dict(
        {key: value for key, value in record.items() if key != "repeated"}, measured=len(record["measured"])),
    "report": lambda record: {"there": bool(record)},
}
"""Records of what came afterwards that have an entry for each node or pair of nodes, and what makes them short."""


class ReleaseFiles:
    """Name where the records of one release lie."""

    def __init__(self, root: str, release: str) -> None:
        self.root = root
        self.release = release
        self.prefix = os.path.join(root, release)
        # Frozen with the release.
        self.resolved = os.path.join(self.prefix, ".torchstack", "release.yml")
        # The directory of what happens to the release after its build.
        self.afterwards = os.path.join(root, ".torchstack", release)
        # Written last when the release is frozen; the next one first, and removed once the freeze is recorded.
        self.frozen = os.path.join(self.afterwards, "frozen.json")
        self.freezing = os.path.join(self.afterwards, "freezing.json")
        # On which partitions of the site it has to be accepted; only where the site names any.
        self.partitions = os.path.join(self.afterwards, "partitions.json")
        # There while named paths of the frozen release may be changed.
        self.thawed = os.path.join(self.afterwards, "thawed.json")
        # There once users were told of the retirement, and for good afterwards.
        self.retired = os.path.join(self.afterwards, "retired.json")


def read(files: ReleaseFiles) -> dict:
    """Read what is recorded of the release: records, or None each. Raises StackError: one cannot be read.

    ``freezing`` is of a freeze that was interrupted, ``thawed`` of a thaw that is open, ``partitions`` as
    :func:`write_partitions` has them, empty without a record; for ``subject`` see :func:`subject_of`.
    """
    try:
        with open(files.resolved, encoding="utf-8", opener=regular_file) as stream:
            content = stream.read()
    except FileNotFoundError:
        content = None
    except (OSError, ValueError) as error:
        raise _unreadable_error(files.resolved, error) from error
    frozen = _read(files.frozen)
    return {
        "content": content, "frozen": frozen, "freezing": None if frozen else _read(files.freezing),
        "thawed": _read(files.thawed), "retired": _read(files.retired), "subject": subject_of(frozen),
        "partitions": _read(files.partitions) or {}}


def subject_of(frozen: Mapping[str, Any] | None) -> str:
    """Return what an acceptance of a frozen release belongs to: the digest of what was asked for; empty if not frozen.

    After a thaw that changed files, these count too: what was accepted before says nothing of them.
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
        raise _unreadable_error(path, error) from error


def _unreadable_error(path: str, error: Exception) -> StackError:
    why = getattr(error, "strerror", None) or error
    remedy = "Restore it or, if nothing of the release is in use, remove the release and roll out again."
    if isinstance(error, PermissionError):
        remedy = "Run this as the account that owns the root, or name another root."
    elif isinstance(error, NotADirectoryError):
        remedy = "Name a root that is a directory."
    return StackError("The record %s cannot be read: %s." % (path, why), failed_step="read", remedy=remedy, path=path)


def collect(files: ReleaseFiles) -> dict:
    """Collect every record that roles and steps left behind, for a summary.

    ``steps`` has stamps by step, ``build`` and ``afterwards`` records by name, from inside and outside of the release,
    and ``partitions`` those of each partition of the site, where there are any; long ones in short. A summary is no
    judge, so one that cannot be read, or is not as it was written, is only named as ``unreadable``.
    """
    records = os.path.join(files.prefix, ".torchstack")
    unreadable: list[str] = []
    partitions = {
        os.path.basename(path): dict(_shorten_records(path, LATER_SUMMARIES, unreadable))
        for path in sorted(glob.glob(os.path.join(glob.escape(files.afterwards), PARTITIONS, "*")))}
    return {
        "steps": {
            os.path.basename(os.path.dirname(path)): record
            for path, record in _read_records(os.path.join(records, "steps", "*", "stamp.json"), unreadable)},
        "build": dict(_shorten_records(records, BUILD_SUMMARIES, unreadable)),
        "afterwards": dict(_shorten_records(files.afterwards, LATER_SUMMARIES, unreadable)),
        **({"partitions": partitions} if partitions else {}),
        "unreadable": unreadable,
    }


def last_durations(files: ReleaseFiles) -> dict[str, Any]:
    """Return how long the steps of the release took that was frozen last, besides this one; empty without one.

    ``release`` is its name, ``seconds`` by step: of one that was taken over, what its build had taken. A release that
    was removed says nothing any more.
    """
    frozen = {
        os.path.basename(os.path.dirname(path)): text(mapping(record).get("frozen_at"))
        for path, record in _read_records(os.path.join(glob.escape(files.root), ".torchstack", "*", "frozen.json"), [])}
    frozen.pop(files.release, None)
    for name in sorted(frozen, key=lambda name: (frozen[name], name), reverse=True):
        stamps = os.path.join(glob.escape(os.path.join(files.root, name)), ".torchstack", "steps", "*", "stamp.json")
        seconds = {}
        for path, stamp in _read_records(stamps, []):
            took = number((mapping(mapping(stamp).get("taken_over")) or mapping(stamp)).get("seconds"))
            if took is not None:
                seconds[os.path.basename(os.path.dirname(path))] = took
        if seconds:
            return {"release": name, "seconds": seconds}
    return {}


def _shorten_records(
    directory: str, shorter: Mapping[str, Callable[[Any], dict]], unreadable: list[str]
) -> Iterator[tuple[str, object]]:
    for path, record in _read_records(os.path.join(directory, "*.json"), unreadable, UNSUMMARISED):
        shorten = shorter.get(_name(path))
        try:
            yield _name(path), shorten(record) if shorten else record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            unreadable.append("%s (it is not as it was written: %s)" % (path, error))


def _read_records(pattern: str, unreadable: list[str], without: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
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
    """List the directories of an open release that are not there yet, outermost first."""
    wanted = [os.path.join(files.prefix, name) if name else files.prefix for name in DIRECTORIES]
    return [path for path in [*wanted, files.afterwards] if not os.path.isdir(path)]


def open_release(files: ReleaseFiles, content: str, missing: list[str]) -> None:
    """Make ``missing``, write the resolved release file, end an interrupted freeze. Raises StackError: refused."""
    try:
        for path in missing:
            os.makedirs(path, mode=0o755, exist_ok=True)
        write_atomic(files.resolved, content.encode("utf-8"))
        _remove(files.freezing)
    except OSError as error:
        raise StackError(
            "The release cannot be opened: %s." % error, failed_step="open",
            remedy="Make room or correct the permissions there, and run again.",
            path=str(error.filename or files.prefix)) from error


def write_partitions(files: ReleaseFiles, wanted: Mapping[str, Any], check: bool) -> bool:
    """Record on which partitions of the site the release has to be accepted; tell whether that has changed.

    ``wanted`` has by name why one is ``optional``, and why it is ``left_out``; empty for a site that names none. Raises
    StackError: the file system refuses.
    """
    changed = (_read(files.partitions) or {}) != wanted
    if changed and not check:
        try:
            if wanted:
                os.makedirs(files.afterwards, mode=0o755, exist_ok=True)
                write_json(files.partitions, wanted)
            else:
                _remove(files.partitions)
        except OSError as error:
            raise StackError(
                "The partitions of release %s cannot be recorded: %s." % (files.release, error),
                failed_step="partitions", remedy="Correct the cause and run again.", path=files.partitions) from error
    return changed


def begin_freeze(files: ReleaseFiles, record: dict) -> None:
    """Record that the release is about to be frozen, and built no more. Raises StackError: the system refuses."""
    try:
        write_json(files.freezing, record)
    except OSError as error:
        raise _freeze_error(files.freezing, error, "nothing of the release was changed.") from error


def record_freeze(files: ReleaseFiles, record: dict) -> None:
    """Record that the release is frozen. Raises StackError: the file system refuses."""
    try:
        write_json(files.frozen, record)
        _remove(files.freezing)
    except OSError as error:
        raise _freeze_error(files.frozen, error, "the release's files are read-only already.") from error


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _freeze_error(path: str, error: OSError, state: str) -> StackError:
    return StackError(
        "The freeze cannot be recorded: %s." % error, failed_step="freeze",
        remedy="Correct the cause and run again; %s" % state, path=path)

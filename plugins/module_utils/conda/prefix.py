# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and correct a conda prefix as it lies on disk: its records and its files.

A record is ``conda-meta/<name>-<version>-<build>.json``, written after the last file of its package; so a package with
a record was linked to its end. The history is conda's own format (conda/history.py reads it): a date between ``==>``
and ``<==``, the command, ``-`` and ``+`` with channel, subdir and package, and the specs that were asked for, from
which conda decides what a later ``conda update`` may change.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from typing import Container, Iterable, Mapping, NamedTuple, Sequence

from ..core.digests import sha256_of
from ..core.errors import StackError
from ..core.files import write_atomic
from .package import (
    Package,
    replace_start,
)

META = "conda-meta"
ASIDE, DROPPED = META + "/.before", META + "/.dropped"
"""Where a transaction keeps what it takes out of the prefix, and what of that is no longer wanted; neither is part of
the prefix."""
RECORDS, FILES, CONTENTS = "records", "files", "contents"
"""How much of an installed package is looked at: its record alone, the names of its files, their digests."""

_NEITHER = object()
_IS_LINK = {"softlink": True, "hardlink": False, "unix_python_entry_point": False}
"""Whether a path of a kind is a link in the prefix; conda calls every other file a hard link, however it came there."""


class Record(NamedTuple):
    """An installed package, and the paths that it put into the prefix."""

    package: Package
    file: str
    paths: Sequence[Mapping]
    noarch: str = ""

    @property
    def names(self) -> list[str]:
        """Return the paths, relative to the prefix."""
        return [str(path["_path"]) for path in self.paths]


def read_records(prefix: str, half: bool = False) -> list[Record]:
    """Return the records of a prefix, sorted by file name; none where there is no prefix.

    In one that was left ``half``, a record which is none was being written and is passed over: py-rattler takes no
    notice of an error when the last bytes of a record are written.
    """
    directory = os.path.join(prefix, META)
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(directory, error.strerror) from error
    records = []
    for name in names:
        try:
            records.append(_read_record(os.path.join(directory, name)))
        except StackError:
            if not half:
                raise
    return records


def _read_record(path: str) -> Record:
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
        package = Package(
            found["name"], found["version"], found["build"], found.get("subdir") or "",
            (found.get("channel") or "").rstrip("/"), found.get("url") or "", found.get("sha256") or "",
        )
        paths = found.get("paths_data", {}).get("paths")
        if paths is None:
            paths = [{"_path": name} for name in found.get("files", ())]
        return Record(package, path, paths, str(found.get("noarch") or ""))
    except OSError as error:
        raise _unreadable(path, error.strerror) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, "it is not a conda record") from error


def _unreadable(path: str, why: object) -> StackError:
    message = "Cannot read the record %s: %s." % (path, why)
    remedy = "Restore it, or remove the whole prefix with state absent and install it again."
    return StackError(message, "read the prefix", remedy, path)


def find_damaged(prefix: str, records: Iterable[Record], depth: str) -> list[str]:
    """Return the names of installed packages with files that are missing or, if read, differ."""
    if depth == RECORDS:
        return []
    try:
        found = _list_paths(prefix)
    except OSError:
        found = {}
    broken = []
    for record in records:
        for path in record.paths:
            # Nearly all paths end here, and there are tens of thousands.
            if depth == FILES and found.get(path["_path"]) == _IS_LINK.get(path.get("path_type", ""), _NEITHER):
                continue
            if not _is_intact(prefix, path, depth, found):
                broken.append(record.package.name)
                break
    return broken


def _is_intact(prefix: str, path: Mapping, depth: str, found: Mapping[str, bool]) -> bool:
    """Tell whether a path is there and of the right kind; ``found`` tells which paths of the prefix are links."""
    full = os.path.join(prefix, path["_path"])
    kind = path.get("path_type")
    is_link = found.get(path["_path"])
    try:
        if is_link is None:  # a directory, reached through a link, or not there
            is_link = stat.S_ISLNK(os.lstat(full).st_mode)
        if kind in ("pyc_file", "directory"):
            return True
        if (kind == "softlink") != is_link and kind is not None:
            return False
        wanted = path.get("sha256_in_prefix") or path.get("sha256")
        return depth != CONTENTS or not wanted or is_link or sha256_of(full) == wanted
    except FileNotFoundError:
        return kind == "pyc_file"
    except OSError:
        return False


def find_unowned(prefix: str, records: Iterable[Record]) -> list[str]:
    """Return every path in the prefix that is in no record: files, links and empty directories."""
    owned = {name for record in records for name in record.names}
    owned |= {os.path.relpath(record.file, prefix) for record in records}
    return sorted(path for path in _list_paths(prefix) if path not in owned)


def _list_paths(prefix: str) -> dict[str, bool]:
    """List files, links and empty directories of a prefix, and whether each is a link; each directory once."""
    found, waiting = {}, [""]
    while waiting:
        relative = waiting.pop()
        start = relative + "/" if relative else ""
        try:
            with os.scandir(prefix + "/" + relative) as listing:
                entries = list(listing)
        except FileNotFoundError:
            continue
        if not entries and relative:
            found[relative] = False
        for entry in entries:
            path = start + entry.name
            if not entry.is_dir(follow_symlinks=False):
                found[path] = entry.is_symlink()
            elif path not in (ASIDE, DROPPED):
                waiting.append(path)
    return found


def sweep(prefix: str, records: Iterable[Record], kept: Iterable[str]) -> list[str]:
    """Remove what an interrupted transaction left: everything in no record that was not there before it began.

    Returns:
        the paths removed, relative to the prefix; directories that became empty are not named.
    """
    before = set(kept)
    gone = [path for path in find_unowned(prefix, records) if path not in before]
    for path in gone:
        full = os.path.join(prefix, path)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(full) and not os.path.islink(full):
                os.rmdir(full)
            else:
                os.unlink(full)
        prune(prefix, os.path.dirname(path), before)
    return gone


def prune(prefix: str, relative: str, kept: Container[str] = ()) -> None:
    """Remove a directory of the prefix and those above it as far as they are empty and not to be kept."""
    with contextlib.suppress(OSError):
        while relative and relative not in kept:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(os.path.join(prefix, relative))
            relative = os.path.dirname(relative)


def correct_modes(prefix: str, records: Iterable[Record]) -> None:
    """Let others read the records, and let nobody but the owner write generated commands.

    Whatever the umask, py-rattler creates records with 0600, in which another account could not list the packages, and
    commands with 0775.
    """
    for record in records:
        if stat.S_IMODE(os.stat(record.file).st_mode) != 0o644:
            os.chmod(record.file, 0o644)
        for path in record.paths:
            if path.get("path_type") == "unix_python_entry_point":
                full = os.path.join(prefix, path["_path"])
                mode = stat.S_IMODE(os.lstat(full).st_mode)
                if mode & 0o022:
                    os.chmod(full, mode & ~0o022)


def restore_origin(records: Iterable[Record], replaced: Mapping[str, str]) -> None:
    """Let records name their channel's own address where a mirror stood for it."""
    if not replaced:
        return
    for record in records:
        with open(record.file, encoding="utf-8") as stream:
            found = json.load(stream)
        changed = {key: replace_start(found.get(key) or "", replaced) for key in ("url", "channel")}
        if any(found.get(key) != value for key, value in changed.items()):
            found.update(changed)
            write_atomic(record.file, json.dumps(found, indent=2).encode("utf-8"))


def remove_prefix(prefix: str) -> None:
    """Remove the whole prefix."""
    try:
        shutil.rmtree(prefix)
    except FileNotFoundError:
        return
    except OSError as error:
        message = "Cannot remove %s: %s." % (error.filename or prefix, error.strerror)
        remedy = "If it is frozen, thaw it with tree_permissions first; then run it again."
        raise StackError(message, "remove the prefix", remedy, prefix) from error

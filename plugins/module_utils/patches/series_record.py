# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep the record and the lock of a patched tree, and name where its journal is.

All names live in ``state_dir``, outside the tree, keyed by the tree's path relative to it, so that a root can move and
one state_dir can serve several trees.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
from typing import Any, Iterator

from ..core.errors import StackError
from ..core.files import read_json
from .header_paths import display
from .source_files import named_errors, write_file

FORMAT = 1
_EXTRACT_AGAIN = "Extract the source again and remove that file."


class Place:
    """Name a tree and where its record, journal and lock are kept."""

    def __init__(self, src: str, state_dir: str) -> None:
        self.src = os.path.realpath(os.fsencode(src))
        self.state_dir = os.path.realpath(os.fsencode(state_dir))
        self.relative = os.path.relpath(self.src, self.state_dir)
        label = re.sub(rb"[^A-Za-z0-9._-]", b"_", os.path.basename(self.src))[:80] or b"tree"
        key = hashlib.sha256(self.relative).hexdigest()[:10].encode("ascii")
        self.stem = b"patch-series-%s-%s" % (label, key)
        path = os.fsdecode(os.path.join(self.state_dir, self.stem))
        self.record, self.journal, self.lock = path + ".json", path + ".journal", path + ".lock"
        self.staged = b"." + self.stem + b".new"


def as_text(path: bytes) -> str:
    """Decode a path for a record, the same in every locale; :func:`as_path` gives every byte back."""
    return path.decode("utf-8", "surrogateescape")


def as_path(text: str) -> bytes:
    """Encode the path that :func:`as_text` wrote."""
    return text.encode("utf-8", "surrogateescape")


def read_record(place: Place) -> dict[str, Any] | None:
    """Read what the last finished run recorded about the tree, or None."""
    try:
        found = read_json(place.record)
    except (OSError, ValueError) as error:
        raise unreadable_error(place.record, error) from error
    return None if found is None else require_format(found, place.record)


def require_format(found: object, path: str) -> dict[str, Any]:
    """Return a record of this version; refuse another one."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StackError("%s is not a record of this version." % path, "read record", _EXTRACT_AGAIN, path=path)
    return found


def unreadable_error(path: str, error: Exception) -> StackError:
    """Make the error for a record that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) else error
    return StackError("Cannot read the record %s: %s." % (path, reason), "read record", _EXTRACT_AGAIN, path=path)


def stage_record(directory: int, place: Place, record: dict[str, Any] | None) -> None:
    """Write the record beside its place, unless it is there: undoing must not need space for that."""
    if record is not None and not _is_recorded(place, record):
        content = json.dumps(record, indent=2, sort_keys=True).encode("ascii") + b"\n"
        with named_errors(os.fsencode(place.record)):
            write_file(directory, place.staged, (content,), 0o644)


def commit_record(directory: int, place: Place, record: dict[str, Any] | None) -> None:
    """Give the staged record its name, or remove the record for None."""
    name = os.path.basename(os.fsencode(place.record))
    with named_errors(os.fsencode(place.record)):
        if record is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        elif not _is_recorded(place, record):
            os.replace(place.staged, name, src_dir_fd=directory, dst_dir_fd=directory)


def _is_recorded(place: Place, record: dict[str, Any]) -> bool:
    try:
        return read_json(place.record) == record
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Make ``state_dir``, keep other runs on the tree out, and clear what a killed run left there."""
    where = os.fsdecode(place.state_dir)
    try:
        with exact_modes():
            _make_state_dir(place.state_dir)
            descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        message = "Cannot write in state_dir %s: %s." % (display(place.state_dir), error.strerror)
        raise StackError(message, "lock", "Give a directory that this account may write.", where) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Parallel file systems may be mounted without locks; the release's own lock is what counts there.
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                message = "Another run is patching %s." % display(place.src)
                raise StackError(message, "lock", "Wait for it to end.", where) from error
        clear_state_dir(place)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exact_modes() -> Iterator[None]:
    """Make files and directories with their exact modes: a run that is killed before a chmod(2) leaves others."""
    mask = os.umask(0)
    try:
        yield
    finally:
        os.umask(mask)


def _make_state_dir(path: bytes) -> None:
    if not os.path.isdir(path):
        _make_state_dir(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)


def clear_state_dir(place: Place) -> None:
    """Remove what a killed run left in ``state_dir``."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place.state_dir):
            if name.startswith(b"." + place.stem):
                os.unlink(os.path.join(place.state_dir, name))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Change many files of a tree as one: after an interruption the next run completes the change or takes it back.

The order is: the journal with every file's content before and after, flushed to disk; the files, each replaced by
rename; the record; the journal's removal. While the journal is there the tree may be anything between before and after,
and nobody may build from it (:func:`has_open_journal`). All names of this module live in ``state_dir``, outside the
tree, keyed by the tree's path relative to it, so that a root can move and one state_dir can serve several trees.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import os
import re
from typing import Any, Iterator, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import flush_directory, read_json, write_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.patch_names import display
from ansible_collections.hpcml.torchstack.plugins.module_utils.tree_files import TreeFile, read_tree_file

FORMAT = 1


class Change(NamedTuple):
    """One file below the tree, before and after; None where it is not there."""

    path: bytes
    before: TreeFile | None
    after: TreeFile | None


class Place:
    """A tree and where its record, journal and lock are kept."""

    def __init__(self, src: str, state_dir: str) -> None:
        self.src = os.path.realpath(os.fsencode(src))
        self.state_dir = os.path.realpath(os.fsencode(state_dir))
        self.relative = os.path.relpath(self.src, self.state_dir)
        label = re.sub(rb"[^A-Za-z0-9._-]", b"_", os.path.basename(self.src))[:80] or b"tree"
        key = hashlib.sha256(self.relative).hexdigest()[:10].encode("ascii")
        self.stem = b"patch-series-%s-%s" % (label, key)
        self.record = self._path(b".json")
        self.journal = self._path(b".journal")
        self.lock = self._path(b".lock")

    def _path(self, suffix: bytes) -> str:
        return os.fsdecode(os.path.join(self.state_dir, self.stem + suffix))


class Journal(NamedTuple):
    """An intended change of a tree: all that is needed to finish it, or to undo it.

    ``make`` are the directories that come with it, parents first, ``drop`` those that go, children first, each with
    permission bits. ``request`` names the wish that it came from. ``record`` and ``previous`` are the tree's record
    after and before.
    """

    identity: str
    request: dict[str, object]
    changes: tuple[Change, ...]
    make: tuple[tuple[bytes, int], ...]
    drop: tuple[tuple[bytes, int], ...]
    record: dict[str, Any] | None
    previous: dict[str, Any] | None


def has_open_journal(src: str, state_dir: str) -> bool:
    """Whether a change of the tree was begun and not finished: it must not be built from.

    Args:
        src: the tree, as given to ``patch_series``.
        state_dir: the ``state_dir`` given to ``patch_series`` for it.
    """
    return os.path.lexists(Place(src, state_dir).journal)


# -- records -----------------------------------------------------------------------------------------------------


def as_text(path: bytes) -> str:
    """A path for a record: the same in every locale, and every byte comes back from :func:`as_path`."""
    return path.decode("utf-8", "surrogateescape")


def as_path(text: str) -> bytes:
    """The path that :func:`as_text` wrote."""
    return text.encode("utf-8", "surrogateescape")


def read_record(place: Place) -> dict[str, Any] | None:
    """What the last finished run recorded about the tree, or None."""
    return _read(place.record)


def _read(path: str) -> dict[str, Any] | None:
    remedy = "Extract the source again and remove that file."
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise StackError("Cannot read the record %s: %s." % (path, error), "read record", remedy, path=path) from error
    if found is None:
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StackError("%s is not a record of this version." % path, "read record", remedy, path=path)
    return found


def write_record(place: Place, record: dict[str, Any] | None) -> None:
    """Stamp the record, or remove it for None."""
    if record is not None:
        write_json(place.record, record)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.record)


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Make ``state_dir``, keep other runs on the same tree out, and clear what a killed run left there.

    Raises:
        StackError: state_dir cannot be written, or another run is at work.
    """
    descriptor = -1
    try:
        _make_state_dir(place.state_dir)
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        busy = error.errno in (errno.EWOULDBLOCK, errno.EACCES) and descriptor >= 0
        # Parallel file systems may be mounted without locks; the release's own lock is what counts there.
        if busy or descriptor < 0:
            if busy:
                os.close(descriptor)
            raise StackError(
                "Another run is patching %s." % display(place.src) if busy
                else "Cannot write in state_dir %s: %s." % (display(place.state_dir), error.strerror),
                "lock", "Wait for it to end." if busy else "Give a directory that this account may write.",
                path=os.fsdecode(place.state_dir),
            ) from error
    try:
        with contextlib.suppress(OSError):
            for name in os.listdir(place.state_dir):
                if name.startswith(b"." + place.stem):
                    os.unlink(os.path.join(place.state_dir, name))
        yield
    finally:
        os.close(descriptor)


def _make_state_dir(path: bytes) -> None:
    """Make the directory and its parents readable for all, whatever the caller's umask is."""
    if os.path.isdir(path):
        return
    _make_state_dir(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, 0o755)


# -- the journal -------------------------------------------------------------------------------------------------


def read_journal(place: Place) -> Journal | None:
    """The open journal of the tree, or None."""
    found = _read(place.journal)
    if found is None:
        return None
    changes = tuple(
        Change(as_path(entry["path"]), _unpack(entry["before"]), _unpack(entry["after"])) for entry in found["changes"]
    )
    make, drop = (tuple((as_path(path), mode) for path, mode in found[key]) for key in ("make", "drop"))
    return Journal(
        found["identity"], found["request"], changes, make, drop, found["record"], found["previous"]
    )


def write_journal(place: Place, journal: Journal) -> None:
    """Put the journal on disk: from here on the change can be finished or undone, whatever happens."""
    content: dict[str, object] = dict(journal._asdict(), format=FORMAT)
    content["changes"] = [
        {"path": as_text(change.path), "before": _pack(change.before), "after": _pack(change.after)}
        for change in journal.changes
    ]
    for key, directories in (("make", journal.make), ("drop", journal.drop)):
        content[key] = [[as_text(path), mode] for path, mode in directories]
    write_json(place.journal, content)


def recover(
    place: Place, request: dict[str, object], check: bool
) -> tuple[dict[str, object] | None, dict[bytes, TreeFile | None], dict[str, Any] | None]:
    """Close an open journal: complete it for the same wish, undo it for another one.

    Args:
        request: the wish of this run.
        check: write nothing; the files that the caller then has to imagine are returned.

    Returns:
        What to report or None, the files as the journal leaves them, and the record that counts from here on.

    Raises:
        StackError: a file is neither what it was nor what it should have become, or a write failed.
    """
    found = read_journal(place)
    if found is None:
        return None, {}, read_record(place)
    forward = found.request == request
    _pending(place, found, forward)
    if not check:
        try:
            roll(place, found, forward)
        except OSError as error:
            raise StackError(
                "%s an interrupted run failed: %s." % ("Completing" if forward else "Undoing", error), "recover",
                "Remove the cause (space, quota, permissions) and run this again.", path=place.journal,
            ) from error
    report: dict[str, object] = {
        "direction": "forward" if forward else "back",
        "files": [display(change.path) for change in found.changes],
    }
    settled = {change.path: change.after if forward else change.before for change in found.changes}
    return report, settled, found.record if forward else found.previous


def roll(place: Place, journal: Journal, forward: bool) -> None:
    """Bring every file to its state after (``forward``) or before the change, then the record, and close the journal.

    Raises:
        StackError: a file is neither what it was before nor what it should become; nothing is written then.
        OSError: as the system reports it; the journal stays open.
    """
    pending = _pending(place, journal, forward)
    _remove_temporaries(place, journal)
    make, drop = (journal.make, journal.drop) if forward else (journal.drop[::-1], journal.make[::-1])
    touched = set()
    for _index, path, wanted in pending:
        if wanted is None:
            os.unlink(os.path.join(place.src, path))
            touched.add(os.path.dirname(path))
    for path, _mode in drop:
        try:
            os.rmdir(os.path.join(place.src, path))
            touched.add(os.path.dirname(path))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise
    for path, mode in make:
        target = os.path.join(place.src, path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)
            touched.add(os.path.dirname(path))
        os.chmod(target, mode)
    for index, path, wanted in pending:
        if wanted is not None:
            _replace(os.path.join(place.src, path), wanted, _temporary(place, journal, index, path))
            touched.add(os.path.dirname(path))
    for directory in sorted(touched):
        with contextlib.suppress(FileNotFoundError):
            flush_directory(os.fsdecode(os.path.join(place.src, directory)))
    write_record(place, journal.record if forward else journal.previous)
    os.unlink(place.journal)
    flush_directory(os.fsdecode(place.state_dir))


def carry_out(place: Place, journal: Journal) -> None:
    """Journal the change and do it; when a write fails, take it back at once.

    Raises:
        StackError: a write failed. The message says whether the tree is as before or the journal is still open.
    """
    _pending(place, journal, forward=True)
    try:
        write_journal(place, journal)
        roll(place, journal, forward=True)
    except OSError as error:
        where = os.fsdecode(error.filename) if isinstance(error.filename, (bytes, str)) else os.fsdecode(place.src)
        failure = "Writing failed: %s: %s" % (where, error.strerror)
        try:
            if os.path.lexists(place.journal):
                roll(place, journal, forward=False)
        except OSError as second:
            raise StackError(
                "%s; taking it back failed too: %s." % (failure, second.strerror), "write",
                "Remove the cause and run this again: it completes or undoes the change from %s." % place.journal,
                path=where,
            ) from error
        raise StackError(
            "%s. The tree is as it was before." % failure, "write",
            "Remove the cause (space, quota, permissions) and run this again.", path=where,
        ) from error


def _pending(place: Place, journal: Journal, forward: bool) -> Sequence[tuple[int, bytes, TreeFile | None]]:
    """The files that still have to be brought to the wanted side."""
    pending = []
    for index, change in enumerate(journal.changes):
        wanted, other = (change.after, change.before) if forward else (change.before, change.after)
        found = read_tree_file(place.src, change.path)
        if found == wanted:
            continue
        contents = {side.content if side else None for side in (wanted, other)}
        if (found.content if found else None) not in contents:
            raise StackError(
                "An interrupted run cannot be completed: %s is neither what it was nor what it should have become."
                % display(change.path),
                "recover",
                "Extract the source again, then remove %s." % place.journal,
                path=place.journal,
                file=display(change.path),
            )
        pending.append((index, change.path, wanted))
    return pending


def _temporary(place: Place, journal: Journal, index: int, path: bytes) -> bytes:
    name = b".torchstack-%s-%d" % (journal.identity.encode("ascii"), index)
    return os.path.join(place.src, os.path.dirname(path), name)


def _remove_temporaries(place: Place, journal: Journal) -> None:
    """What a killed run left beside the files; the names follow from the journal, so nothing else is hit."""
    for index, change in enumerate(journal.changes):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(_temporary(place, journal, index, change.path))


def _replace(target: bytes, wanted: TreeFile, temporary: bytes) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(wanted.content)
        while view:
            view = view[os.write(descriptor, view):]
        os.fchmod(descriptor, wanted.mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, target)


def _pack(side: TreeFile | None) -> list[object] | None:
    return None if side is None else [base64.b64encode(side.content).decode("ascii"), side.mode]


def _unpack(side: list[Any] | None) -> TreeFile | None:
    return None if side is None else TreeFile(base64.b64decode(side[0]), int(side[1]))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Change many files of a tree as one: after an interruption the next run completes the change or takes it back.

The order is: the journal with every file's content before and after, flushed to disk; everything new, the record too,
written beside its place; then, when nothing can fail for lack of space any more, the names: each file and the record
replaced by rename, the journal removed. While the journal is there the tree may be anything between before and after,
and nobody may build from it (:func:`has_open_journal`).

The journal is one line of JSON, and behind it the contents, byte for byte, in the order and of the sizes told there.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from typing import Any, BinaryIO, Iterator, NamedTuple, Sequence

from ..core.errors import StackError
from .header_paths import display
from .series_record import (
    FORMAT,
    Place,
    as_path,
    as_text,
    checked,
    clear_state_dir,
    exact_modes,
    read_record,
    settle_record,
    stage_record,
    unreadable,
)
from .source_files import (
    TreeFile,
    flush,
    naming,
    open_directory,
    read_tree_file,
    write_file,
)


class Change(NamedTuple):
    """One file below the tree, before and after; None where it is not there."""

    path: bytes
    before: TreeFile | None
    after: TreeFile | None


class _Strange(Exception):
    """A file of the tree is neither as before the change nor as after it; the argument is its path."""


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


# -- the journal -------------------------------------------------------------------------------------------------


def read_journal(place: Place) -> Journal | None:
    """The open journal of the tree, or None."""
    try:
        with open(place.journal, "rb") as stream:
            found = checked(json.loads(stream.readline().decode("ascii")), place.journal)
            changes = tuple(
                Change(as_path(entry["path"]), _content(stream, entry["before"]), _content(stream, entry["after"]))
                for entry in found["changes"]
            )
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise unreadable(place.journal, error) from error
    make, drop = (tuple((as_path(path), mode) for path, mode in found[key]) for key in ("make", "drop"))
    return Journal(
        found["identity"], found["request"], changes, make, drop, found["record"], found["previous"]
    )


def _content(stream: BinaryIO, side: list[int] | None) -> TreeFile | None:
    if side is None:
        return None
    size, mode = side
    content = stream.read(size)
    if len(content) != size:
        raise ValueError("it ends too early")
    return TreeFile(content, mode)


def write_journal(place: Place, journal: Journal) -> None:
    """Put the journal on disk: from here on the change can be finished or undone, whatever happens."""
    header: dict[str, object] = dict(journal._asdict(), format=FORMAT)
    header["changes"] = [
        {
            "path": as_text(change.path),
            "before": change.before and [len(change.before.content), change.before.mode],
            "after": change.after and [len(change.after.content), change.after.mode],
        }
        for change in journal.changes
    ]
    for key, directories in (("make", journal.make), ("drop", journal.drop)):
        header[key] = [[as_text(path), mode] for path, mode in directories]
    contents = (side.content for change in journal.changes for side in (change.before, change.after) if side)
    name = os.path.basename(os.fsencode(place.journal))
    with open_directory(place.state_dir, b"") as directory, naming(os.fsencode(place.journal)):
        chunks = itertools.chain((json.dumps(header, sort_keys=True).encode("ascii"), b"\n"), contents)
        write_file(directory, place.staged, chunks, 0o644)
        os.replace(place.staged, name, src_dir_fd=directory, dst_dir_fd=directory)
        flush(directory)


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
    try:
        if check:
            _pending(place, found, forward)
        else:
            roll(place, found, forward)
    except _Strange as strange:
        raise StackError(
            "An interrupted run cannot be completed: %s is neither what it was nor what it should have become."
            % display(strange.args[0]),
            "recover", "Extract the source again, then remove %s." % place.journal,
            path=place.journal, file=display(strange.args[0]),
        ) from strange
    except StackError as error:
        raise StackError(
            "An interrupted run cannot be completed: %s" % error.message, "recover",
            "Put the tree back as it was, or extract the source again and remove %s." % place.journal,
            path=place.journal, **error.details
        ) from error
    except OSError as error:
        raise StackError(
            "%s an interrupted run failed: %s." % ("Completing" if forward else "Undoing", _reason(error)), "recover",
            "Remove the cause (space, quota, permissions) and run this again.", path=place.journal,
        ) from error
    report: dict[str, object] = {
        "direction": "forward" if forward else "back",
        "files": [display(change.path) for change in found.changes],
    }
    settled = {change.path: change.after if forward else change.before for change in found.changes}
    return report, settled, found.record if forward else found.previous


def roll(place: Place, journal: Journal, forward: bool, begun: set[bytes] | None = None) -> None:
    """Bring every file to its state after (``forward``) or before the change, then the record, and close the journal.

    Args:
        begun: forward, it gets the path of each file right before that is touched; back, only these are looked at.

    Raises:
        _Strange: a file is neither what it was before nor what it should become; no file is touched then.
        StackError: a directory has become a symbolic link.
        OSError: as the system reports it; the journal stays open.
    """
    only = None if forward else begun
    begun = set() if begun is None else begun
    with exact_modes(), open_directory(place.state_dir, b"") as state_dir:
        _remove_temporaries(place, journal)
        pending = _pending(place, journal, forward, only)
        record = journal.record if forward else journal.previous
        stage_record(state_dir, place, record)
        touched = _make_directories(place, journal.make if forward else journal.drop[::-1])
        for index, path, wanted in pending:
            if wanted is not None:
                folder, name = _temporary(journal, index, path)
                with open_directory(place.src, folder) as directory, naming(os.path.join(place.src, path)):
                    write_file(directory, name, (wanted.content,), wanted.mode)
        touched |= _rename(place, journal, forward, pending, begun)
        for folder in sorted(touched):
            with contextlib.suppress(OSError), open_directory(place.src, folder) as directory:
                flush(directory)
        settle_record(state_dir, place, record)
        flush(state_dir)
        with naming(os.fsencode(place.journal)):
            os.unlink(place.journal)
        flush(state_dir)


def _make_directories(place: Place, make: Sequence[tuple[bytes, int]]) -> set[bytes]:
    """Make the directories that are not there, save where a file still has the name; returns where they are."""
    touched = set()
    for path, mode in make:
        parent, name = os.path.split(path)
        whole = os.path.join(place.src, path)
        with contextlib.suppress(NotADirectoryError), open_directory(place.src, parent) as directory, naming(whole):
            try:
                os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                os.mkdir(name, mode, dir_fd=directory)
                touched.add(parent)
    return touched


def _rename(
    place: Place, journal: Journal, forward: bool, pending: Sequence[tuple[int, bytes, TreeFile | None]],
    begun: set[bytes],
) -> set[bytes]:
    """Give everything its new name; returns the directories whose entries changed."""
    make, drop = (journal.make, journal.drop) if forward else (journal.drop[::-1], journal.make[::-1])
    touched: set[bytes] = set()

    @contextlib.contextmanager
    def beside(path: bytes) -> Iterator[int]:
        touched.add(os.path.dirname(path))
        with open_directory(place.src, os.path.dirname(path)) as directory, naming(os.path.join(place.src, path)):
            yield directory

    for _index, path, wanted in pending:
        if wanted is None:
            begun.add(path)
            with beside(path) as directory:
                os.unlink(os.path.basename(path), dir_fd=directory)
    # A full file system has met its limit before this, unless a directory takes the place of a file.
    for path, _mode in drop:
        try:
            with beside(path) as directory:
                os.rmdir(os.path.basename(path), dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise
    touched |= _make_directories(place, make)
    for index, path, wanted in pending:
        if wanted is not None:
            begun.add(path)
            folder, name = _temporary(journal, index, path)
            with open_directory(place.src, folder) as source, beside(path) as directory:
                os.replace(name, os.path.basename(path), src_dir_fd=source, dst_dir_fd=directory)
    return touched


def carry_out(place: Place, journal: Journal) -> None:
    """Journal the change and do it; when a write fails, take it back at once.

    Raises:
        StackError: a write failed. The message says whether the tree is as before or the journal is still open.
    """
    begun: set[bytes] = set()
    try:
        _pending(place, journal, forward=True)
        write_journal(place, journal)
        roll(place, journal, True, begun)
    except (OSError, StackError, _Strange) as error:
        failure = _failure(place, error)
        try:
            if os.path.lexists(place.journal):
                roll(place, journal, False, begun)
        except (OSError, StackError, _Strange) as second:
            failure.message += " Taking it back failed too: %s" % _failure(place, second).message
            failure.remedy = (
                "Remove the cause and run this again: it completes or undoes the change from %s." % place.journal
            )
        else:
            failure.message += " The tree is as it was before."
        clear_state_dir(place)
        raise failure from error


def _failure(place: Place, error: Exception) -> StackError:
    """Why a change failed, as a sentence of the step that writes."""
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, (bytes, str)) else place.src
        return StackError(
            "Writing failed: %s." % _reason(error), "write",
            "Remove the cause (space, quota, permissions) and run this again.", path=os.fsdecode(where),
        )
    if isinstance(error, StackError):
        return StackError(error.message, "write", error.remedy, error.path, **error.details)
    path = error.args[0]
    return StackError(
        "%s changed while this run was at work." % display(path), "write",
        "Let nothing else write in the tree, and run this again.",
        path=os.fsdecode(os.path.join(place.src, path)), file=display(path),
    )


def _reason(error: OSError) -> str:
    """The error of the system with the path where it is known."""
    where = error.filename
    return "%s%s" % (display(os.fsencode(where)) + ": " if isinstance(where, (bytes, str)) else "", error.strerror)


def _pending(
    place: Place, journal: Journal, forward: bool, only: set[bytes] | None = None
) -> Sequence[tuple[int, bytes, TreeFile | None]]:
    """The files, or of them those in ``only``, that still have to be brought to the wanted side."""
    pending = []
    for index, change in enumerate(journal.changes):
        if only is not None and change.path not in only:
            continue
        wanted, other = (change.after, change.before) if forward else (change.before, change.after)
        found = read_tree_file(place.src, change.path)
        if found == wanted:
            continue
        contents = {side.content if side else None for side in (wanted, other)}
        if (found.content if found else None) not in contents:
            raise _Strange(change.path)
        pending.append((index, change.path, wanted))
    return pending


def _temporary(journal: Journal, index: int, path: bytes) -> tuple[bytes, bytes]:
    """Where a file is written before it gets its name: the nearest directory that is there all the time."""
    passing = {folder for folder, _mode in journal.make + journal.drop}
    folder = os.path.dirname(path)
    while folder in passing:
        folder = os.path.dirname(folder)
    return folder, b".torchstack-%s-%d" % (journal.identity.encode("ascii"), index)


def _remove_temporaries(place: Place, journal: Journal) -> None:
    """What a killed or failed run left beside the files; the names follow from the journal, so nothing else is hit."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place.state_dir, place.staged))
    for index, change in enumerate(journal.changes):
        folder, name = _temporary(journal, index, change.path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(place.src, folder) as directory:
            # A read-only file system refuses also to remove what is not there.
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            os.unlink(name, dir_fd=directory)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Change many files of a tree as one: the next run completes or undoes what was interrupted.

The order is: the journal with every file's content before and after, flushed to disk; everything new, the record too,
written beside its place; then, when nothing can fail for lack of space any more, the names: each file and the record
replaced by rename, the journal removed. While the journal is there the tree may be anything between before and after,
and nobody may build from it (:func:`has_open_journal`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, Iterator, Sequence

from ..core.errors import StackError
from .header_paths import display
from .journal import Journal, read_journal, write_journal
from .series_record import Place, clear_state_dir, commit_record, exact_modes, read_record, stage_record
from .source_files import TreeFile, flush, named_errors, open_directory, read_tree_file, write_file

_REMEDY = "Remove the cause (space, quota, permissions) and run this again."


class _UnexpectedContent(Exception):
    """Report a file that is neither as before the change nor as after it; its path is the argument."""


def recover(
    place: Place, request: dict[str, object], check: bool
) -> tuple[dict[str, object] | None, dict[bytes, TreeFile | None], dict[str, Any] | None]:
    """Close an open journal: complete it for the same desired state, undo it for another one.

    With ``check`` nothing is written, and the files that are returned have to be imagined.

    Returns:
        What to report or None, the files as the journal leaves them, and the record that counts from here on.
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
    except _UnexpectedContent as unexpected:
        file = display(unexpected.args[0])
        message = "An interrupted run cannot be completed: %s is neither what it was nor what it should have become."
        remedy = "Extract the source again, then remove %s." % place.journal
        raise StackError(message % file, "recover", remedy, path=place.journal, file=file) from unexpected
    except StackError as error:
        message = "An interrupted run cannot be completed: %s" % error.message
        remedy = "Put the tree back as it was, or extract the source again and remove %s." % place.journal
        raise StackError(message, "recover", remedy, path=place.journal, **error.details) from error
    except OSError as error:
        message = "%s an interrupted run failed: %s." % ("Completing" if forward else "Undoing", _error_text(error))
        raise StackError(message, "recover", _REMEDY, path=place.journal) from error
    files = [display(change.path) for change in found.changes]
    reconciled = {change.path: change.after if forward else change.before for change in found.changes}
    report: dict[str, object] = {"direction": "forward" if forward else "back", "files": files}
    return report, reconciled, found.record if forward else found.previous


def roll(place: Place, journal: Journal, forward: bool, touched_paths: set[bytes] | None = None) -> None:
    """Bring every file to its state after or before the change, then the record, and close the journal.

    Forward, ``touched_paths`` gets the path of each file right before that is touched; back, only these are looked at.

    Raises:
        _UnexpectedContent: a file is neither what it was before nor what it should become; none is touched then.
        StackError: a directory has become a symbolic link.
        OSError: as the system reports it; the journal stays open.
    """
    only = None if forward else touched_paths
    touched_paths = set() if touched_paths is None else touched_paths
    with exact_modes(), open_directory(place.state_dir, b"") as state_dir:
        _remove_temporaries(place, journal)
        pending = _pending(place, journal, forward, only)
        record = journal.record if forward else journal.previous
        stage_record(state_dir, place, record)
        touched = _make_directories(place, journal.make if forward else journal.drop[::-1])
        for index, path, wanted in pending:
            if wanted is not None:
                folder, name = _temporary(journal, index, path)
                with open_directory(place.src, folder) as directory, named_errors(os.path.join(place.src, path)):
                    write_file(directory, name, (wanted.content,), wanted.mode)
        touched |= _rename(place, journal, forward, pending, touched_paths)
        for folder in sorted(touched):
            with contextlib.suppress(OSError), open_directory(place.src, folder) as directory:
                flush(directory)
        commit_record(state_dir, place, record)
        flush(state_dir)
        with named_errors(os.fsencode(place.journal)):
            os.unlink(place.journal)
        flush(state_dir)


def _make_directories(place: Place, make: Sequence[tuple[bytes, int]]) -> set[bytes]:
    """Make the directories that are missing, unless a file still has the name; returns those that got an entry."""
    touched = set()
    for path, mode in make:
        parent, name = os.path.split(path)
        with contextlib.suppress(NotADirectoryError), _open_parent(place, path) as directory:
            try:
                os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                os.mkdir(name, mode, dir_fd=directory)
                touched.add(parent)
    return touched


def _rename(
    place: Place, journal: Journal, forward: bool, pending: Sequence[tuple[int, bytes, TreeFile | None]],
    touched_paths: set[bytes],
) -> set[bytes]:
    """Give everything its new name; returns the directories whose entries changed."""
    make, drop = (journal.make, journal.drop) if forward else (journal.drop[::-1], journal.make[::-1])
    moved = [*(path for _index, path, _wanted in pending), *(path for path, _mode in drop)]
    touched = {os.path.dirname(path) for path in moved}
    for _index, path, wanted in pending:
        if wanted is None:
            touched_paths.add(path)
            with _open_parent(place, path) as directory:
                os.unlink(os.path.basename(path), dir_fd=directory)
    # A full file system has met its limit before this, unless a directory takes the place of a file.
    for path, _mode in drop:
        try:
            with _open_parent(place, path) as directory:
                os.rmdir(os.path.basename(path), dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise
    touched |= _make_directories(place, make)
    for index, path, wanted in pending:
        if wanted is not None:
            touched_paths.add(path)
            folder, name = _temporary(journal, index, path)
            with open_directory(place.src, folder) as source, _open_parent(place, path) as directory:
                os.replace(name, os.path.basename(path), src_dir_fd=source, dst_dir_fd=directory)
    return touched


@contextlib.contextmanager
def _open_parent(place: Place, path: bytes) -> Iterator[int]:
    with open_directory(place.src, os.path.dirname(path)) as directory, named_errors(os.path.join(place.src, path)):
        yield directory


def commit(place: Place, journal: Journal) -> None:
    """Journal the change and do it; when a write fails, take it back at once, and say in the error what the tree is."""
    touched_paths: set[bytes] = set()
    try:
        _pending(place, journal, forward=True)
        write_journal(place, journal)
        roll(place, journal, True, touched_paths)
    except (OSError, StackError, _UnexpectedContent) as error:
        failure = _write_error(place, error)
        try:
            if os.path.lexists(place.journal):
                roll(place, journal, False, touched_paths)
        except (OSError, StackError, _UnexpectedContent) as second:
            failure.message += " Taking it back failed too: %s" % _write_error(place, second).message
            remedy = "Remove the cause and run this again: it completes or undoes the change from %s."
            failure.remedy = remedy % place.journal
        else:
            failure.message += " The tree is as it was before."
        clear_state_dir(place)
        raise failure from error


def _write_error(place: Place, error: Exception) -> StackError:
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, (bytes, str)) else place.src
        return StackError("Writing failed: %s." % _error_text(error), "write", _REMEDY, path=os.fsdecode(where))
    if isinstance(error, StackError):
        return StackError(error.message, "write", error.remedy, error.path, **error.details)
    path = error.args[0]
    message = "%s changed while this run was at work." % display(path)
    remedy = "Let nothing else write in the tree, and run this again."
    return StackError(message, "write", remedy, path=os.fsdecode(os.path.join(place.src, path)), file=display(path))


def _error_text(error: OSError) -> str:
    where = error.filename
    return "%s%s" % (display(os.fsencode(where)) + ": " if isinstance(where, (bytes, str)) else "", error.strerror)


def _pending(
    place: Place, journal: Journal, forward: bool, only: set[bytes] | None = None
) -> Sequence[tuple[int, bytes, TreeFile | None]]:
    """List the files, or of them those in ``only``, that have to be brought to the wanted side."""
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
            raise _UnexpectedContent(change.path)
        pending.append((index, change.path, wanted))
    return pending


def _temporary(journal: Journal, index: int, path: bytes) -> tuple[bytes, bytes]:
    """Return where a file is written before it gets its name: the nearest lasting directory."""
    passing = {folder for folder, _mode in journal.make + journal.drop}
    folder = os.path.dirname(path)
    while folder in passing:
        folder = os.path.dirname(folder)
    return folder, b".torchstack-%s-%d" % (journal.identity.encode("ascii"), index)


def _remove_temporaries(place: Place, journal: Journal) -> None:
    """Remove what a killed or failed run left beside the files; the journal gives the names."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place.state_dir, place.staged))
    for index, change in enumerate(journal.changes):
        folder, name = _temporary(journal, index, change.path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(place.src, folder) as directory:
            # A read-only file system refuses also to remove what is not there.
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            os.unlink(name, dir_fd=directory)

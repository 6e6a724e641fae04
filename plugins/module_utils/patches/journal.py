# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep an intended change of a tree on disk, until it is finished or undone.

The journal is one line of JSON, and behind it the contents, byte for byte, in the order and of the sizes told there.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any, BinaryIO, NamedTuple

from .series_record import (
    FORMAT,
    Place,
    as_path,
    as_text,
    require_format,
    unreadable_error,
)
from .source_files import (
    TreeFile,
    flush,
    named_errors,
    open_directory,
    write_file,
)


class Change(NamedTuple):
    """Describe one file below the tree, before and after; None where it is not there."""

    path: bytes
    before: TreeFile | None
    after: TreeFile | None


class Journal(NamedTuple):
    """Describe an intended change of a tree: all that is needed to finish it, or to undo it.

    ``make`` are the directories that come with it, parents first, ``drop`` those that go, children first, each with
    permission bits. ``request`` names the wish. ``record`` and ``previous`` are the tree's record after and before.
    """

    identity: str
    request: dict[str, object]
    changes: tuple[Change, ...]
    make: tuple[tuple[bytes, int], ...]
    drop: tuple[tuple[bytes, int], ...]
    record: dict[str, Any] | None
    previous: dict[str, Any] | None


def has_open_journal(src: str, state_dir: str) -> bool:
    """Tell whether a change of the tree that ``patch_series`` began is not finished: it must not be built from."""
    return os.path.lexists(Place(src, state_dir).journal)


def read_journal(place: Place) -> Journal | None:
    """Read the open journal of the tree, or None."""
    try:
        with open(place.journal, "rb") as stream:
            found = require_format(json.loads(stream.readline().decode("ascii")), place.journal)
            changes = tuple(
                Change(as_path(entry["path"]), _content(stream, entry["before"]), _content(stream, entry["after"]))
                for entry in found["changes"]
            )
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise unreadable_error(place.journal, error) from error
    make, drop = (tuple((as_path(path), mode) for path, mode in found[key]) for key in ("make", "drop"))
    return Journal(found["identity"], found["request"], changes, make, drop, found["record"], found["previous"])


def _content(stream: BinaryIO, side: list[int] | None) -> TreeFile | None:
    if side is None:
        return None
    size, mode = side
    content = stream.read(size)
    if len(content) != size:
        raise ValueError("it ends too early")
    return TreeFile(content, mode)


def write_journal(place: Place, journal: Journal) -> None:
    """Put the journal on disk: from here on the change can be finished or undone."""
    header: dict[str, object] = dict(journal._asdict(), format=FORMAT)
    header["changes"] = [
        {
            "path": as_text(change.path), "before": change.before and [len(change.before.content), change.before.mode],
            "after": change.after and [len(change.after.content), change.after.mode],
        }
        for change in journal.changes
    ]
    for key, directories in (("make", journal.make), ("drop", journal.drop)):
        header[key] = [[as_text(path), mode] for path, mode in directories]
    contents = (side.content for change in journal.changes for side in (change.before, change.after) if side)
    name = os.path.basename(os.fsencode(place.journal))
    with open_directory(place.state_dir, b"") as directory, named_errors(os.fsencode(place.journal)):
        chunks = itertools.chain((json.dumps(header, sort_keys=True).encode("ascii"), b"\n"), contents)
        write_file(directory, place.staged, chunks, 0o644)
        os.replace(place.staged, name, src_dir_fd=directory, dst_dir_fd=directory)
        flush(directory)

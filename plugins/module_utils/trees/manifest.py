# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record what a tree holds, type, mode, size, digest and link target of every path, and compare it with its record.

Paths are relative to the tree, and neither times nor owners are part of what is recorded, so that a tree that was moved
or copied still matches. Names of one file (hard links) are entries of their own, each with the content's digest: a copy
in which they are separate files is the same release.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import IO, Callable, Iterator, NamedTuple

from ..core.errors import StackError, system_remedy
from ..core.text import shortly
from . import boundary
from .manifest_collector import UNREADABLE, UNSTABLE, Found
from .manifest_diff import KINDS, Comparison, TreeDiff
from .manifest_entry import as_text, single_run
from .manifest_exclude import Exclusion
from .manifest_file import Draft, Record, write_record
from .manifest_walk import Walk


class Request(NamedTuple):
    """Describe what is asked for."""

    path: str
    root: str
    """The boundary that it has to lie in."""
    record: str
    content: bool = True
    """Whether files are read."""
    exclude: tuple[str, ...] = ()
    """Globs of what is left out."""
    workers: int = 0
    """Threads; 0 chooses."""
    limit: int = 100
    """How many paths a list has at most."""
    since: int = 0
    """The time, in nanoseconds, after which an inode that was changed counts as touched; 0 where nobody asks."""


class Place(NamedTuple):
    """Describe where tree and record are."""

    root: str
    relative: str
    record: str
    """The record, with links in its directory resolved."""
    own: str | None
    """Its path in the tree, None where it lies elsewhere."""
    inside: bool
    """Whether it lies in the boundary."""


def locate(request: Request) -> Place:
    """Find tree and record; StackError: the tree is not inside its boundary, or the record has no directory."""
    if request.workers < 0 or request.limit < 0:
        raise StackError("workers and max_listed cannot be negative.", "options", "Correct them.")
    owner = os.stat(request.path).st_uid if os.path.exists(request.path) else os.geteuid()
    root, relative = boundary.locate(request.path, request.root, boundary.home_directories(owner))
    directory, name = os.path.split(request.record)
    if not os.path.isabs(request.record) or not name or not os.path.isdir(directory):
        raise StackError(
            "%s cannot be a record: its directory does not exist." % request.record, "options",
            "Give the absolute path of a file in a directory that exists.", request.record,
        )
    record = os.path.join(os.path.realpath(directory), name)
    prefix = os.path.join(os.path.normpath(os.path.join(root, relative)), "")
    own = as_text(os.fsencode(record[len(prefix):])) if record.startswith(prefix) else None
    return Place(root, relative, record, own, record.startswith(os.path.join(root, "")))


def record(request: Request, apply: bool, judge: Callable[[dict], None] | None = None) -> dict[str, object]:
    """Bring the record of a tree up to date; ``changed`` of the result says whether it is, or would be, another one.

    ``judge`` is shown how the tree differs from the earlier record before anything is written, and may refuse that.
    StackError: the tree changed or cannot be read in full, so that nothing is written; or writing failed.
    """
    began = time.perf_counter()
    place = locate(request)
    if not place.inside:
        raise StackError(
            "The record %s lies outside %s." % (place.record, place.root), "options",
            "Record the tree inside of root.", place.record,
        )
    earlier, problem = _read_earlier(place.record)
    closing = contextlib.closing(earlier) if earlier else contextlib.nullcontext()
    with closing, _temporary_lines(apply) as lines:
        # A record that is older than attributes stays as it is: nothing has changed that it could tell.
        attributes = request.content and (earlier is None or not earlier.header.content or earlier.header.attributes)
        draft = Draft(request.content, list(request.exclude), place.own, lines, attributes)
        exclusion = Exclusion([request.exclude], [place.own])
        walk = Walk(request.content, exclusion, request.workers, attributes=attributes)
        drift = _compare_in_step(walk, place, Comparison(earlier, None, request.limit, request.content), draft)
        header = draft.header()
        result = drift.as_result()
        result.update(_facts(walk, began), digest=header.digest, counts=header.counts, bytes=header.total)
        result["previous"] = earlier.header.digest if earlier else None
        if problem:
            result["record_problem"] = problem
        if drift.unstable.total or drift.unreadable.total:
            raise _incomplete_error(request.path, drift, result)
        if judge is not None:
            judge(result)
        result["changed"] = earlier is None or earlier.header != header
        if result["changed"] and apply:
            with _temporary_file_errors():
                document = draft.document()
            write_record(place.record, document)
    return result


def compare(request: Request) -> dict[str, object]:
    """Compare a tree with its record, whose ``digest`` is returned; what that left out is left out again.

    StackError: there is no record, or it cannot be used.
    """
    began = time.perf_counter()
    place = locate(request)
    try:
        earlier = Record(place.record, check=False)
    except FileNotFoundError as error:
        raise StackError(
            "There is no record %s." % request.record, "read the record",
            "Record the tree first, with state recorded.", request.record,
        ) from error
    with contextlib.closing(earlier):
        header = earlier.header
        if request.content and not header.content:
            raise StackError(
                "%s was recorded without content." % request.record, "read the record",
                "Compare with content quick, or record the tree again.", request.record,
            )
        exclusion = Exclusion([header.exclude, request.exclude], [header.own, place.own])
        walk = Walk(
            request.content, exclusion, request.workers, since=request.since,
            attributes=request.content and header.attributes)
        comparison = Comparison(earlier, exclusion if request.exclude else None, request.limit, request.content)
        try:
            drift = _compare_in_step(walk, place, comparison, None)
        except ValueError as error:
            raise earlier.damage(error) from error
        result = drift.as_result()
        result.update(
            _facts(walk, began), digest=header.digest, counts=header.counts, bytes=header.total, changed=False,
            matches=not drift.any,
        )
        if request.since:
            result["touched"], result["touched_total"] = drift.touched.first, drift.touched.total
    return result


def difference_error(path: str, record: str, result: dict) -> StackError:
    """Make the error for a tree that does not match its record."""
    totals = result["totals"]
    words = ", ".join("%d %s" % (totals[kind], kind) for kind in (*KINDS, UNSTABLE, UNREADABLE) if totals[kind])
    names = [*result["added"], *result["removed"], *(entry["path"] for entry in result["differing"])]
    names = list(dict.fromkeys(names)) or [*result["unstable"], *result["unreadable"]]
    return StackError(
        "%s is not as %s has it (%s), first %s." % (path, record, words, shortly(sorted(names))), "compare",
        "Find out who changed it; bring the files back, or install the release anew.", path,
        **{key: value for key, value in result.items() if key != "changed"},
    )


def _read_earlier(path: str) -> tuple[Record | None, str]:
    """Return the record there is, and what is wrong with it where it cannot be used."""
    try:
        return Record(path), ""
    except FileNotFoundError:
        return None, ""
    except StackError as error:
        if isinstance(error.__cause__, ValueError):
            return None, error.message
        raise


@contextlib.contextmanager
def _temporary_lines(apply: bool) -> Iterator[IO[bytes] | None]:
    """Make a temporary file for the lines of a record that is to be written."""
    if not apply:
        yield None
        return
    with _temporary_file_errors():
        lines = tempfile.TemporaryFile()  # noqa: SIM115 it is closed below, where that may fail
    try:
        yield lines
    finally:
        with contextlib.suppress(OSError):  # what was not written any more is not wanted any more
            lines.close()


@contextlib.contextmanager
def _temporary_file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StackError(
            "Cannot keep the entries of the record in a temporary file: %s; nothing was recorded." % error.strerror,
            "write the record",
            system_remedy(error, "Correct that") + " of temporary files, or set TMPDIR to another directory.",
            tempfile.tempdir or "",
        ) from error


def _compare_in_step(walk: Walk, place: Place, comparison: Comparison, draft: Draft | None) -> TreeDiff:
    """Read record and tree in step."""
    for found in walk.over(place.root, place.relative):
        if isinstance(found, Found):
            comparison.drift.note(found)
            entry = found.entry
            if found.trouble == UNSTABLE or entry is None:
                continue
            comparison.line(found.line)
            run = single_run(entry, found.line)
        else:
            comparison.run(found)
            run = found
        if draft is not None:
            with _temporary_file_errors():
                draft.add(run)
    return comparison.finish()


def _facts(walk: Walk, began: float) -> dict[str, object]:
    return {
        "hardlinked": walk.hardlinked, "excluded": walk.left_out, "workers": walk.workers,
        "seconds": round(time.perf_counter() - began, 3),
    }


def _incomplete_error(path: str, drift: TreeDiff, result: dict) -> StackError:
    sentences, remedies = [], []
    for listing, words, remedy in (
        (drift.unstable, "changed while they were read", "Wait until nothing writes there any more."),
        (drift.unreadable, "cannot be read",
         "Run this as their owner, correct their modes, or have the file system checked."),
    ):
        if listing.total:
            first = shortly(listing.first)
            sentences.append("%d of the entries below %s %s, first %s" % (listing.total, path, words, first))
            remedies.append(remedy)
    details = {key: value for key, value in result.items() if key not in ("digest", "changed")}
    return StackError("; ".join(sentences) + "; nothing was recorded.", "read the tree", " ".join(remedies), path,
                      **details)

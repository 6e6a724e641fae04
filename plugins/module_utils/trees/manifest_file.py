# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write a manifest: one JSON document with a header and one entry per line, sorted by path.

The format is for whoever has nothing of this collection at hand: any JSON reader takes the document, line tools take
the entries. Names are bytes to a file system; in the record they are text as UTF-8 has it, and a byte that is not UTF-8
is the lone surrogate ``\\udcXX`` that :pep:`383` gives it: the file is ASCII, no name is lost, and no locale matters.

The digest, of the entries without what separates them, tells whether records are the same, or still as written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import stat
from typing import IO, Iterator, NamedTuple, cast

from ..core.errors import StackError, system_remedy
from ..core.files import write_atomic
from .dir_handles import OPEN_DIRECTORY, owner_writable
from .manifest_entry import Run
from .manifest_exclude import temporary_pattern

FORMAT = 1


PIECE = 1 << 16
"""Bytes of a record, about, that are in memory at a time."""

_INTERRUPTIONS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Header(NamedTuple):
    """Describe what a record says of itself and of the tree as a whole."""

    content: bool
    """Whether files have digests."""
    exclude: list[str]
    """Globs of what was left out."""
    own: str | None
    """The record's own path in the tree, left out too; None where it lies elsewhere."""
    counts: dict[str, int]
    """Names of files, directories, symlinks and others."""
    total: int
    """Bytes of all files; one with several names counts once for each."""
    digest: str
    """SHA-256 over the lines of the entries, each with a line feed."""
    attributes: bool = False
    """Whether entries have access control lists, capabilities and attributes of users; older records have none."""


class Draft:
    """Collect a record that is being made: counts, digest, and where it is to be written, lines in an empty file."""

    def __init__(
        self, content: bool, exclude: list[str], own: str | None, lines: IO[bytes] | None, attributes: bool = False,
    ) -> None:
        self.content = content
        self.attributes = attributes
        self.exclude = exclude
        self.own = own
        self.counts = {"files": 0, "directories": 0, "symlinks": 0, "others": 0}
        self.total = 0
        self._digest = hashlib.sha256()
        self._lines = lines

    def add(self, run: Run) -> None:
        """Add entries; they come in order."""
        for kind in self.counts:
            self.counts[kind] += getattr(run, kind)
        self.total += run.total
        self._digest.update(run.lines)
        if self._lines is not None:
            self._lines.write(run.lines.replace(b"\n", b",\n"))

    def header(self) -> Header:
        """Return the header for what has been added."""
        return Header(
            self.content, self.exclude, self.own, self.counts, self.total, self._digest.hexdigest(), self.attributes)

    def document(self) -> bytearray:
        """Return the whole file; a draft that is kept has at least the entry of the tree."""
        if self._lines is None:
            raise ValueError("this draft was not kept")
        head = _encode_header(self.header())
        tail = b"\n]\n}\n"
        lines = self._lines.tell() - len(b",\n")
        content = bytearray(len(head) + lines + len(tail))
        self._lines.seek(0)
        content[:len(head)] = head
        with memoryview(content) as view:
            self._lines.readinto(view[len(head):len(head) + lines])  # type: ignore[attr-defined] # a buffered reader
        content[len(head) + lines:] = tail
        return content


def _encode_header(header: Header) -> bytes:
    fields: dict[str, object] = {
        "format": FORMAT, "content": "full" if header.content else "quick", "exclude": header.exclude,
        "record": header.own, "counts": header.counts, "bytes": header.total, "digest": header.digest,
    }
    if header.attributes:
        fields["attributes"] = True
    lines = ["%s: %s,\n" % (json.dumps(key), json.dumps(value)) for key, value in fields.items()]
    return ("{\n" + "".join(lines) + '"entries": [\n').encode("ascii")


class Record:
    """Read a record on disk. Whether it is as it was written shows when its entries are read, with ``check`` here.

    FileNotFoundError: there is none. StackError: it cannot be read, is of a later format, or is not as it was written.
    """

    def __init__(self, path: str, check: bool = True) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            reason = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise StackError(
                "Cannot read the record %s: %s." % (path, reason), "read the record",
                "Name the record itself, and run this as an account that may read it.", path,
            ) from error
        self.stream = os.fdopen(descriptor, "rb", PIECE)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("it is not a regular file")
            self.written = found.st_mtime_ns
            self.header = self._read_header()
            if check:
                for _lines in self.pieces():
                    pass
        except (ValueError, OSError) as error:
            self.stream.close()
            raise self.damage(error) from error

    def damage(self, error: Exception) -> StackError:
        """Make the error for a record that cannot be used."""
        return StackError(
            "%s is not a record as it was written: %s." % (self.path, error), "read the record",
            "Bring it back from a copy, or remove it and record the tree again.", self.path,
        )

    def _read_header(self) -> Header:
        head = b""
        while not head.endswith(b'"entries": [\n'):
            line = self.stream.readline(1 << 20)
            if not line or len(head) > 1 << 22:
                raise ValueError("it has no entries")
            head += line
        self.first = len(head)
        try:
            fields = json.loads(head.decode("ascii") + "]}")
            if fields["format"] != FORMAT:
                raise ValueError("it has format %s, and this is for format %d" % (fields["format"], FORMAT))
            return Header(
                fields["content"] == "full", list(fields["exclude"]), fields["record"], dict(fields["counts"]),
                int(fields["bytes"]), str(fields["digest"]), fields.get("attributes") is True,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("its header is incomplete (%s)" % error) from error

    def pieces(self) -> Iterator[bytes]:
        """Yield the lines of the entries, in order, each with a line feed and some hundred at a time.

        ValueError: the file ends before the entries do, or they do not have the digest that the header names.
        """
        digest = hashlib.sha256()
        self.stream.seek(self.first)
        rest, ends = b"", False
        while not ends:
            block = self.stream.read(PIECE)
            if not block:
                raise ValueError("it is cut off")
            text = rest + block
            end = text.find(b"\n]\n")
            ends = end >= 0
            # The end begins with a line feed, and the comma in front of one may be the last byte that was read.
            whole = end + 1 if ends else text.rfind(b"\n", 0, -2) + 1
            rest = text[whole:]
            lines = text[:whole].replace(b",\n", b"\n")
            digest.update(lines)
            yield lines
        if digest.hexdigest() != self.header.digest:
            raise ValueError("its entries do not have the digest that its header names")

    def close(self) -> None:
        """Close the file."""
        self.stream.close()


def _sweep(path: str) -> None:
    """Remove what killed runs left; nobody else writes this record at the same time."""
    directory, name = os.path.split(path)
    pattern = temporary_pattern(name)
    for candidate in os.listdir(directory):
        if pattern.fullmatch(candidate):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, candidate))


def write_record(path: str, content: bytearray) -> None:
    """Put a record into place, atomically, in a directory that may be frozen.

    The record may be read, and written, by those who may read, and write, its directory; never written by others than
    the owner. A directory without write bit for its owner gets it for the moment. Signals that would end this process
    wait until the directory has its mode again. StackError: it cannot be written; record and directory are as before.
    """
    directory = os.path.dirname(path)
    try:
        with _held_signals(), _writable(directory) as mode:
            _sweep(path)
            write_atomic(path, cast(bytes, content), mode & 0o644)
    except OSError as error:
        raise StackError(
            "Cannot write the record %s: %s." % (path, error.strerror), "write the record",
            system_remedy(error, "Run this as the account that owns %s" % directory) + ", then run it again.", path,
        ) from error


@contextlib.contextmanager
def _held_signals() -> Iterator[None]:
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextlib.contextmanager
def _writable(directory: str) -> Iterator[int]:
    """Make a directory writable to its owner; yields the permission bits that it has otherwise."""
    descriptor = os.open(directory, OPEN_DIRECTORY)
    try:
        with owner_writable(descriptor, directory) as mode:
            yield mode
    finally:
        os.close(descriptor)

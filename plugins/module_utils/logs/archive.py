# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Pack the records of all build steps into one archive, which is the same bytes for the same files.

What leaves the release has no credentials in it: logs of steps that ran before their supervisor masked secrets, and
what a program wrote beside its log, are masked here (see :mod:`..core.redaction`).

Members are sorted by name and bear neither times nor owners. The deflate stream may still differ between versions of
zlib, so an archive on disk is taken for the same if it unpacks to the same bytes. (Python 3.8 fills a header's device
numbers with zeros, so its archives are others.)
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zlib
from typing import IO, BinaryIO, Iterator, NamedTuple, cast

from ..core.errors import StackError, explained
from ..core.files import write_atomic
from ..core.redaction import without_credentials
from ..core.text import readable

_BLOCK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Member(NamedTuple):
    """One file of one step."""

    name: str
    """Relative to the directory of the steps: ``pytorch/log``."""
    path: str
    executable: bool


def members(steps: str) -> list[Member]:
    """List the files of all steps, sorted by the bytes of their names.

    A step is a directory. Hidden files are how a step works, not what it did; only regular files and real directories
    count, and links are not followed. StackError: there is no step, or a directory cannot be read.
    """
    found: list[Member] = []
    try:
        for step in os.scandir(steps):
            if not step.name.startswith(".") and step.is_dir(follow_symlinks=False):
                found += _below(step.path, step.name)
    except OSError as error:
        raise StackError(
            "Cannot read %s: %s." % (readable(error.filename or steps), error.strerror), "read the logs",
            "Name the directory of the steps, and run this as an account that may read it.", steps,
        ) from error
    if not found:
        raise StackError(
            "%s holds no step with a log." % steps, "read the logs", "Name the directory of the steps.", steps
        )
    return sorted(found, key=lambda member: os.fsencode(member.name))


def private_steps(steps: str) -> list[str]:
    """List the steps whose records are their owner's only; OSError: they cannot be read."""
    return sorted(
        step.name for step in os.scandir(steps)
        if not step.name.startswith(".") and step.is_dir(follow_symlinks=False)
        and not step.stat(follow_symlinks=False).st_mode & 0o077)


def _below(directory: str, name: str) -> Iterator[Member]:
    for entry in os.scandir(directory):
        if entry.name.startswith("."):
            continue
        inside = name + "/" + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, inside)
        elif entry.is_file(follow_symlinks=False):
            yield Member(inside, entry.path, bool(entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR))


class _Digester:
    """What is written to it: passed on if there is somewhere, and its digest."""

    def __init__(self, onward: gzip.GzipFile | None = None) -> None:
        self.digest = hashlib.sha256()
        self.onward = onward

    def write(self, content: bytes) -> int:
        """Take some more."""
        self.digest.update(content)
        if self.onward is not None:
            self.onward.write(content)
        return len(content)


class Archive(NamedTuple):
    """An archive in memory or on disk."""

    digest: str
    """SHA-256 of the archive itself."""
    tar_digest: str
    """SHA-256 of what it unpacks to; empty where it does not unpack."""
    listing: list[str]
    """Its files with their sizes, or why it does not unpack."""
    content: bytes = b""
    """The archive, where it was packed just now."""


def pack(files: list[Member], top: str) -> Archive:
    """Pack the files below one directory ``top``; StackError: one cannot be read, or changes meanwhile."""
    buffer = io.BytesIO()
    listing = []
    # Neither file name nor time: gzip writes both into its header otherwise (RFC 1952).
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as packed:
        stream = _Digester(packed)
        with tarfile.open(
            fileobj=cast(IO[bytes], stream), mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for member in files:
                listing.append(_shown(_add(archive, member, top)))
    content = buffer.getvalue()
    return Archive(hashlib.sha256(content).hexdigest(), stream.digest.hexdigest(), listing, content)


def content_of(member: Member) -> bytes:
    """Read a file with its credentials masked; StackError: it cannot be read, or changes meanwhile."""
    remedy = "Run this as the account that owns the release."
    cannot = explained("Cannot read %s" % readable(member.path), "read the logs", remedy, member.path)
    with cannot, os.fdopen(os.open(member.path, _OPEN), "rb") as stream:
        before = os.fstat(stream.fileno())
        content = stream.read(before.st_size)
        after = os.fstat(stream.fileno())
        whole = stat.S_ISREG(before.st_mode) and len(content) == before.st_size and not stream.read(1)
    if not whole or (before.st_mtime_ns, before.st_ctime_ns) != (after.st_mtime_ns, after.st_ctime_ns):
        raise StackError(
            "%s changed while it was read." % readable(member.path), "read the logs",
            "Wait until the step is finished.", member.path,
        )
    return without_credentials(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _shown(entry: tarfile.TarInfo) -> str:
    name = entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "%s (%d bytes%s)" % (name, entry.size, ", executable" if entry.mode & 0o100 else "")


def _add(archive: tarfile.TarFile, member: Member, top: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(top + "/" + os.fsencode(member.name).decode("utf-8", "surrogateescape"))
    entry.mode = 0o755 if member.executable else 0o644
    content = content_of(member)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
    return entry


def read_archive(path: str) -> Archive | None:
    """Read what the archive on disk holds; None where there is none, StackError: it cannot be read."""
    remedy = "Name the archive itself, and run this as the account that owns it."
    with explained("Cannot read %s" % path, "read the archive", remedy, path):
        try:
            with open(path, "rb") as stream:
                whole = hashlib.sha256()
                for block in iter(lambda: stream.read(_BLOCK), b""):
                    whole.update(block)
                stream.seek(0)
                return Archive(whole.hexdigest(), *_unpacked(stream))
        except FileNotFoundError:
            return None


def _unpacked(stream: BinaryIO) -> tuple[str, list[str]]:
    """Compute the digest of what an archive unpacks to, and list the files in it."""
    tar = _Digester()
    try:
        with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:
            for block in iter(lambda: unpacked.read(_BLOCK), b""):
                tar.write(block)
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:gz", encoding="utf-8", errors="surrogateescape") as archive:
            return tar.digest.hexdigest(), [_shown(entry) for entry in archive]
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        return "", ["it does not unpack: %s" % error]


def mode_of(path: str) -> int:
    """Return the permission bits of an archive; 0 where there is none."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0


def write_archive(path: str, packed: Archive, mode: int = 0o644) -> None:
    """Put an archive into place, atomically; StackError: it cannot be written, and an earlier one is untouched."""
    remedy = "Run this as the account that owns %s, with room on its file system." % os.path.dirname(path)
    with explained("Cannot write %s" % path, "write the archive", remedy, path):
        write_atomic(path, packed.content, mode)

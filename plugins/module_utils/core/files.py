# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write files that are either the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from typing import Iterator


def write_atomic(path: str, content: bytes, mode: int = 0o644) -> None:
    """Replace ``path`` by ``content`` through a temporary file in the same directory and rename(2).

    The file and its directory are flushed to disk, so that after a crash the name leads to one of the two contents. The
    umask does not change the mode. OSError: as the system reports it; the old file is untouched then.
    """
    directory = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(prefix=".%s." % os.path.basename(path)[:200], dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    flush_directory(directory)


def flush_directory(directory: str) -> None:
    """Flush a directory's entries to disk, where its file system can do that."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str, record: object, mode: int = 0o644) -> None:
    """Replace ``path`` by ``record`` as indented JSON with sorted keys (see :func:`write_atomic`)."""
    write_atomic(path, (json.dumps(record, indent=2, sort_keys=True) + "\n").encode("utf-8"), mode)


def regular_file(path: str, flags: int) -> int:
    """Open a record, as ``opener`` of :func:`open`: a named pipe in its place would be waited for for ever.

    OSError: it is no regular file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode) or stat.S_ISDIR(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def read_bytes(path: str) -> bytes | None:
    """Read a file; None where there is none. OSError: it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def read_json(path: str) -> object | None:
    """Read the record in ``path``; None where there is no such file, ValueError where it is not JSON."""
    try:
        with open(path, "rb", opener=regular_file) as stream:
            return json.loads(stream.read().decode("utf-8"))
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def readable_by_all() -> Iterator[None]:
    """Create files and directories as everybody may read them, whatever umask the caller has."""
    previous = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(previous)

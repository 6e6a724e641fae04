# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Files on their way into a container: tar archives with nothing of this machine's accounts and umask in them."""

from __future__ import annotations

import io
import pathlib
import tarfile
from collections.abc import Iterable, Mapping
from typing import IO


def write_archive(stream: IO[bytes], top: pathlib.Path, names: Iterable[str] | None = None) -> None:
    """Write files below a directory as an archive of root's, which everybody may read.

    Args:
        stream: where it is written.
        top: the directory.
        names: which files, relative to it; None: all.
    """
    if names is None:
        names = (str(path.relative_to(top)) for path in sorted(top.rglob("*")) if not path.is_dir())
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            archive.add(str(top / name), arcname=name, recursive=False, filter=_readable)


def write_programs(stream: IO[bytes], top: pathlib.Path, there: str) -> None:
    """Write an installed tree as an archive of root's, with the modes that it has, and without what compilers take.

    Args:
        stream: where it is written.
        top: the tree.
        there: the directory that it is for.
    """
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(str(top), arcname=there.strip("/"), filter=_installed)


def archive_of(texts: Mapping[str, str]) -> bytes:
    """An archive of files with these contents, by path."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, text in texts.items():
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def _installed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith((".a", ".la")) else _of_root(entry)


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    _of_root(entry)
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry

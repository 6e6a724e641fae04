# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put aside what a transaction takes out of a prefix, so that one that fails can be undone.

py-rattler writes into a file that is in its way instead of replacing it, so a second name would not keep the old
content. The files are moved: that takes no space, needs neither cache nor channel, and keeps what was changed in them.
A record is moved after the files of its package, so that a file is either owned or aside, whenever a run is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Iterable, Iterator, Sequence

from ..core.files import write_atomic
from .package import Package
from .prefix import ASIDE, DROPPED, META, Record, prune, read_records, sweep

RECORD = ".torchstack-record"
"""What the record beside the prefix was, among the files that are aside; so that going back takes no space."""


def begin(prefix: str, record: str) -> None:
    """Make the place for what will be put aside, and keep there the prefix's history and the record beside it."""
    aside = os.path.join(prefix, ASIDE)
    os.makedirs(os.path.join(aside, META))
    history = os.path.join(META, "history")
    for path, name in ((record, RECORD), (os.path.join(prefix, history), history)):
        if os.path.exists(path):
            shutil.copy2(path, os.path.join(aside, name))


def exists(prefix: str) -> bool:
    """Tell whether all that was taken out since the transaction began is still aside."""
    return os.path.isdir(os.path.join(prefix, ASIDE))


def has_leftovers(prefix: str) -> bool:
    """Tell whether anything is aside that is no longer wanted or still is."""
    return exists(prefix) or os.path.isdir(os.path.join(prefix, DROPPED))


def put_aside(prefix: str, records: Iterable[Record], before: Sequence[Package]) -> None:
    """Move the files of packages, and their records, out of the prefix; directories stay until all is complete.

    What a killed run brought instead of the packages from ``before`` the transaction is removed.
    """
    for record in records:
        for name in [*record.names, os.path.join(META, os.path.basename(record.file))]:
            path, kept = os.path.join(prefix, name), os.path.join(prefix, ASIDE, name)
            if not os.path.lexists(path) or (os.path.isdir(path) and not os.path.islink(path)):
                continue
            if record.package not in before or os.path.lexists(kept):
                os.unlink(path)
            else:
                os.makedirs(os.path.dirname(kept), exist_ok=True)
                os.rename(path, kept)


def drop(prefix: str) -> None:
    """Remove what is aside, and directories that were left empty: the transaction cannot be undone any more."""
    aside, dropped = os.path.join(prefix, ASIDE), os.path.join(prefix, DROPPED)
    for name in {os.path.dirname(name) for name in _files(aside)}:
        prune(prefix, name)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(dropped)
    with contextlib.suppress(FileNotFoundError):
        os.rename(aside, dropped)
        shutil.rmtree(dropped)


def restore(prefix: str, record: str, before: Sequence[Package], kept: Iterable[str]) -> None:
    """Let the prefix and the record beside it be what they were ``before``; no package owned the paths ``kept``.

    Raises:
        OSError: something cannot be removed or moved.
        StackError: a record from before cannot be read.
    """
    aside = os.path.join(prefix, ASIDE)
    old = {package.stem + ".json" for package in before}
    for name in os.listdir(os.path.join(prefix, META)):
        if name.endswith(".json") and (name not in old or os.path.exists(os.path.join(aside, META, name))):
            os.unlink(os.path.join(prefix, META, name))
    records = [*read_records(aside), *read_records(prefix)]
    owned = [found._replace(file=os.path.join(prefix, META, os.path.basename(found.file))) for found in records]
    names = {name for found in owned for name in found.names}
    directories = _directories(names)
    sweep(prefix, owned, {*kept, *directories})
    for directory in directories - names - set(kept):  # where there is a file or link now
        path = os.path.join(prefix, directory)
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
    for name in _files(aside):
        path = os.path.join(prefix, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(os.path.join(aside, name), path)
    saved = os.path.join(aside, RECORD)
    if not os.path.exists(saved):
        os.unlink(record)
    else:
        try:
            os.replace(saved, record)
        except OSError:  # on another file system, for one
            with open(saved, "rb") as stream:
                write_atomic(record, stream.read())
    shutil.rmtree(aside, ignore_errors=True)


def _directories(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        directory = os.path.dirname(name)
        while directory and directory not in found:
            found.add(directory)
            directory = os.path.dirname(directory)
    return found


def _files(top: str) -> Iterator[str]:
    """Return the files and links of the prefix that are aside, relative to it, records last."""
    records = []
    for directory, directories, files in os.walk(top):
        links = [name for name in directories if os.path.islink(os.path.join(directory, name))]
        for name in [*files, *links]:
            relative = os.path.relpath(os.path.join(directory, name), top)
            if os.path.dirname(relative) == META:
                records.append(relative)
            elif relative != RECORD:
                yield relative
    yield from records

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Inspect a cache of extracted packages: entries, interrupted downloads, and who uses what.

py-rattler (0.28) extracts a package into ``.<stem>XXXXXX`` and renames that to ``<stem>``, beside ``<stem>.lock``;
while it installs it holds an exclusive flock(2) on ``.cache.lock``. conda keeps archives as ``<stem>.conda`` and
downloads as ``*.partial``.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Iterable, Iterator, NamedTuple, Sequence

from ..core import rollout_lock
from ..core.errors import StackError
from .cache import NOTES
from .prefix import META

STEP = "look at the cache"
GLOBAL_LOCK = ".cache.lock"
MAGIC = "urls.txt"
"""The file without which conda does not take a directory that it cannot write for a package cache."""

OURS = (NOTES, GLOBAL_LOCK)
"""Hidden names that belong to every cache."""

ARCHIVES = (".conda", ".tar.bz2")
DAY = 86400


class Item(NamedTuple):
    """An entry or a left-over of a cache: its name, bytes of its files, and seconds since it was made."""

    name: str
    size: int
    age: float

    def as_result(self) -> dict[str, object]:
        """Return as plain data."""
        return {"name": self.name, "bytes": self.size, "days": int(self.age // DAY)}


class Content(NamedTuple):
    """What a cache holds."""

    entries: Sequence[str]
    used: Sequence[str]
    unused: Sequence[Item]
    leftovers: Sequence[Item]


def prefixes(root: str) -> list[str]:
    """Return the conda prefixes of all releases below a root: a release itself, or a directory in it.

    Raises:
        StackError: a directory of this account cannot be read, so that it is not known what is used.
    """
    places = [place for release in _directories(root) for place in (release, *_directories(release))]
    return [place for place in places if os.path.isdir(os.path.join(place, META))]


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        if isinstance(error, PermissionError) and os.stat(path).st_uid != os.geteuid():
            return []  # a release below the root belongs to the account that owns the root
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> StackError:
    message = "Cannot read %s: %s." % (path, error.strerror)
    return StackError(message, STEP, "Run this as the account that owns the root.", path)


def records(places: Iterable[str]) -> dict[str, list[str]]:
    """Return the records of installed packages in prefixes by stem (``name-version-build``)."""
    found: dict[str, list[str]] = {}
    for place in places:
        directory = os.path.join(place, META)
        try:
            names = sorted(os.listdir(directory))
        except OSError as error:
            raise _unreadable(directory, error) from error
        for name in names:
            if name.endswith(".json"):
                found.setdefault(name[:-len(".json")], []).append(os.path.join(directory, name))
    return found


def inspect_cache(cache: str, needed: Iterable[str]) -> Content:
    """List what a cache holds, nothing where there is none; the packages ``needed`` (stems) are in use."""
    try:
        names = sorted(os.listdir(cache))
    except FileNotFoundError:
        return Content((), (), (), ())
    except OSError as error:
        raise _unreadable(cache, error) from error
    wanted = set(needed)
    entries = [
        name for name in names
        if not name.startswith(".") and os.path.isfile(os.path.join(cache, name, "info", "index.json"))
    ]
    archives = {name: stem for name in names for stem in [_stem(name)] if stem}
    known = {*entries, *archives.values()}
    hidden = [name for name in names if name.startswith(".") and name not in OURS]
    partial = [name for name in names if name.endswith(".partial")]
    notes = [os.path.join(NOTES, name) for name in _listed(os.path.join(cache, NOTES)) if name.startswith(".")]
    now = time.time()
    unused = []
    for stem in sorted(known - wanted):
        sizes = [measure(cache, name, now) for name in [stem, *companions_of(stem)]]
        unused.append(Item(stem, sum(item.size for item in sizes), min(item.age for item in sizes)))
    return Content(
        entries, sorted(known & wanted), unused, [measure(cache, name, now) for name in [*hidden, *partial, *notes]]
    )


def companions_of(stem: str) -> list[str]:
    """Tell what lies in a cache for an entry, beside the entry itself."""
    return [os.path.join(NOTES, stem), *(stem + ending for ending in (*ARCHIVES, ".lock"))]


def _stem(name: str) -> str:
    fitting = (ending for ending in ARCHIVES if name.endswith(ending) and not name.startswith("."))
    return next((name[:-len(ending)] for ending in fitting), "")


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def measure(cache: str, name: str, now: float) -> Item:
    """Return the size and the age of something in a cache, which may be gone meanwhile.

    The age is that of its last change as the file system keeps it: archives date their files to when they were built.
    """
    found = list(_walk(os.path.join(cache, name)))
    size = sum(status.st_size for status in found if not stat.S_ISDIR(status.st_mode))
    return Item(name, size, max(0.0, now - max((status.st_ctime for status in found), default=0.0)))


def _walk(path: str) -> Iterator[os.stat_result]:
    try:
        found = os.lstat(path)
        yield found
        if not stat.S_ISDIR(found.st_mode):
            return
        with os.scandir(path) as entries:
            inside = [entry.path for entry in entries]
    except OSError:
        return
    for one in inside:
        yield from _walk(one)


def other_rollout(root: str, release: str) -> str:
    """Name another release than this one below the root that may be in a rollout, in a sentence; empty for none."""
    directory = os.path.join(root, ".torchstack")
    here = rollout_lock.this_place()
    for name in _listed(directory):
        if name == release or not os.path.isdir(os.path.join(directory, name)):
            continue
        try:
            record = rollout_lock.read_lock(os.path.join(directory, name, "lock.json"))
        except (StackError, OSError) as error:
            return "the lock of release %s cannot be read (%s)" % (name, error)
        if record is not None and rollout_lock.judge(record, here) != rollout_lock.DEAD:
            return "release %s is being rolled out by %s" % (name, rollout_lock.describe(record))
    return ""

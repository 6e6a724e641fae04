# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check a cache of extracted packages, and archives of local channels, before they are linked.

py-rattler (0.28) checks the digest of what it downloads, but not of ``file://`` archives; it notes the digest in a file
beside each cache entry, after eight bytes of a revision. The content of an entry it checks only when asked to, by
reading all of it. So a note of our own says when an entry was known to be right; as long as nothing in it changed
since, it need not be read again.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Iterable, Iterator, Mapping

from ..core.digests import local_path, sha256_of
from ..core.errors import StackError
from ..core.files import write_atomic
from . import errors
from .package import Package, package_of_url

NOTES = ".checked"
"""The directory of notes in a cache."""


def wrong_digest(where: str, found: str, expected: str) -> StackError:
    """Return the error for a package that is not the one asked for."""
    return StackError(
        "A package is not the one that was asked for: %s has sha256 %s where %s was expected."
        % (where, found or "(none)", expected), errors.PACKAGE,
        "Fetch it anew into the channel or mirror, or correct the lock, then run it again.", expected=expected,
    )


def check_archive(package: Package, cache: str) -> None:
    """Check an archive of a local channel before it may be extracted; py-rattler itself checks what is downloaded.

    Raises:
        StackError: the archive is missing or another one, or the channel gives no digest.
    """
    if package_of_url(package.url, "") is None or not package.sha256:
        message = "The channel gives no sha256 for %s." % package.url
        raise StackError(message, errors.PACKAGE, "Index the channel anew with digests.")
    path = local_path(package.url)
    cached = os.path.isdir(os.path.join(cache, package.stem))
    if path is None or (cached and _is_as_noted(package, cache)):
        return
    try:
        found = sha256_of(path)
    except OSError as error:
        if cached and cached_digest(package.stem, cache) == package.sha256:
            return  # what is in the cache is read instead, and cannot be extracted anew from elsewhere
        message = "The package %s cannot be read: %s." % (path, error.strerror)
        remedy = "Put it into the channel or mirror, then run it again."
        raise StackError(message, errors.PACKAGE, remedy, path) from error
    if found != package.sha256:
        raise wrong_digest(path, found, package.sha256)


def borrow_entries(packages: Iterable[Package], cache: str, shared: Iterable[str]) -> None:
    """Let the cache have entries of other caches, which are only read, where it has none of its own.

    py-rattler locks what it links from by a file beside each entry, which another account cannot do in a cache that is
    not its own. So the entry becomes a link, and the file beside it a copy. Only what is known to be right is taken.
    """
    for package in packages:
        entry = os.path.join(cache, package.stem)
        if os.path.islink(entry) and not (os.path.isdir(entry) and _is_as_noted(package, cache)):
            os.unlink(entry)
        for place in shared:
            source = os.path.join(place, package.stem)
            if os.path.lexists(entry) or not os.path.isdir(source) or not _is_as_noted(package, place):
                continue
            os.makedirs(cache, exist_ok=True)
            with open(source + ".lock", "rb") as stream:
                write_atomic(entry + ".lock", stream.read())
            with contextlib.suppress(FileExistsError):  # another run was quicker
                os.symlink(source, entry)
            note_checked([package], cache)


def cached_digest(stem: str, cache: str) -> str:
    """Return the digest that py-rattler notes for an entry; empty where it has none."""
    try:
        with open(os.path.join(cache, stem + ".lock"), "rb") as stream:
            return stream.read()[8:40].hex()
    except OSError:
        return ""


def any_doubtful(packages: Iterable[Package], cache: str) -> bool:
    """Tell whether an entry must be read before it is used: without a note, changed since, or not to be judged.

    A change of content, mode or number of names moves a file's ctime, which nobody can set back (inode(7)); so an
    entry copied from elsewhere, and one whose files have hard links, are read as well.
    """
    return any(not _is_as_noted(package, cache) for package in packages)


def packages_without_note(packages: Iterable[Package], cache: str, known: Mapping[str, str]) -> list[Package]:
    """Return the packages that have no entry, or one that neither a note nor :func:`check_ahead` says to be right."""
    return [
        package for package in packages
        if not os.path.isdir(os.path.join(cache, package.stem))
        or (known.get(package.stem) != package.sha256 and not _is_as_noted(package, cache))
    ]


def check_ahead(cache: str, known: dict[str, str]) -> Iterator[None]:
    """Check the entries of a cache one by one, before it is known which of them are needed.

    ``known`` gets the digest of each entry that is right, by the entry's name.
    """
    try:
        names = sorted(os.listdir(os.path.join(cache, NOTES)))
    except OSError:
        return
    for name in names:
        digest = _known_digest(name, cache)
        if digest:
            known[name] = digest
        yield


def note_checked(packages: Iterable[Package], cache: str) -> None:
    """Note that the entries of packages are right: they were just extracted, or read."""
    os.makedirs(os.path.join(cache, NOTES), exist_ok=True)
    for package in packages:
        with contextlib.suppress(PermissionError):
            write_atomic(os.path.join(cache, NOTES, package.stem), package.sha256.encode("ascii"))


def _is_as_noted(package: Package, cache: str) -> bool:
    if not os.path.isdir(os.path.join(cache, package.stem)):
        return True
    return bool(package.sha256) and _known_digest(package.stem, cache) == package.sha256


def _known_digest(stem: str, cache: str) -> str:
    """Return the digest of an entry that has a note and did not change since; empty for any other."""
    entry = os.path.join(cache, stem)
    try:
        with open(os.path.join(cache, NOTES, stem), encoding="ascii") as stream:
            noted, digest = os.fstat(stream.fileno()).st_mtime_ns, stream.read()
        if cached_digest(stem, cache) != digest:
            return ""
        listed = os.path.join(entry, "info", "paths.json")
        with open(listed, encoding="utf-8") as stream:
            paths = json.load(stream)["paths"]
        if any(os.lstat(entry + "/" + path["_path"]).st_ctime_ns > noted for path in paths):
            return ""
        return digest if os.stat(listed).st_ctime_ns <= noted else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""

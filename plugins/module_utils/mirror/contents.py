# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the files of a mirror and their digests."""

from __future__ import annotations

import concurrent.futures
import os
from typing import Iterable, Mapping

from ..core.digests import sha256_of
from . import git_archive
from .index import Item
from .requirements import (
    Need,
)

FILES, ARCHIVES, TREES = "pip", "archives", "git"

READERS = 4
"""Files or pages that are read at once."""


class Contents:
    """The files of a mirror and their digests, each read once.

    An empty ``directory``, or one that is not there yet, is empty. ``listed`` is what the mirror's list has, digest by
    relative path, ``others`` the part of that which other releases want, ``scratch`` where archives are unpacked.
    """

    def __init__(
        self, directory: str, listed: Mapping[str, str], others: Mapping[str, str], scratch: str = ""
    ) -> None:
        self.directory = directory
        self.listed = listed
        self.others = others
        self.scratch = scratch
        self.digests: dict[str, str] = {}
        self.proofs: dict[str, str] = {}
        try:
            names = os.listdir(os.path.join(directory, FILES)) if directory else []
        except FileNotFoundError:
            names = []
        self.names = sorted(name for name in names if name[0] != ".")

    def absolute(self, path: str) -> str:
        """Return a relative path below the mirror."""
        return os.path.join(self.directory, path)

    def digest(self, path: str) -> str:
        """Return the sha256 of a file, by its relative path; empty where it is not there or cannot be read."""
        if path not in self.digests:
            try:
                self.digests[path] = sha256_of(self.absolute(path))
            except OSError:
                self.digests[path] = ""
        return self.digests[path]

    def read_ahead(self, paths: Iterable[str]) -> None:
        """Take the digests of several files at once."""
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            list(pool.map(self.digest, dict.fromkeys(paths)))

    def commit_problem(self, path: str, commit: str) -> str:
        """Tell why an archive of git is not the commit with its submodules, as the end of a sentence; empty if it is.

        The digest in its name is whole only if nobody writes the mirror but who fills it; the commit is the proof.
        """
        if self.digest(path) != path.split(".")[-2]:
            return self.problem(path, ())
        if path not in self.proofs:
            self.proofs[path] = git_archive.problem(self.absolute(path), commit, self.scratch)
        return self.proofs[path]

    def item(self, path: str, need: Need) -> Item:
        """Return a file that is there."""
        size = os.path.getsize(self.absolute(path))
        return Item(path, self.digest(path), size, need.url, need.name, need.version, need.commit)

    def problem(self, path: str, hashes: Iterable[str]) -> str:
        """Tell what is wrong with a file, as the end of a sentence; empty where it is right or not there."""
        digest = self.digest(path)
        if digest in hashes or not os.path.exists(self.absolute(path)):
            return ""
        size = os.path.getsize(self.absolute(path))
        return "%s is there with %d bytes and sha256 %s" % (path, size, digest or "that cannot be taken")

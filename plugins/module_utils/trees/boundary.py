# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check that a tree may be worked on, and reach it without following a link."""

from __future__ import annotations

import contextlib
import os
import pwd
from typing import Iterable, Iterator

from ..core.errors import StackError

_SEARCH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def home_directories(owner: int) -> set[str]:
    """List where accounts live, as the password database has it and with parents' links resolved.

    Only parents are looked at on disk: looking at thousands of homes could mount each.
    """
    listed = {entry.pw_dir for entry in pwd.getpwall()}
    for uid in (os.geteuid(), owner):
        with contextlib.suppress(KeyError):
            listed.add(pwd.getpwuid(uid).pw_dir)
    homes = {os.path.normpath(home) for home in listed if home.startswith("/")}
    parents = {parent: os.path.realpath(parent) for parent in {os.path.dirname(home) for home in homes}}
    return homes | {os.path.join(parents[os.path.dirname(home)], os.path.basename(home)) for home in homes}


def locate(path: str, root: str, homes: Iterable[str]) -> tuple[str, str]:
    """Check that a tree, by its absolute path and no link, is a directory inside its safety boundary ``root``.

    Neither a home directory nor one that holds one is a tree; one that holds one is no boundary. Return the boundary,
    resolved, and the path of the tree relative to it. StackError: one of them is none.
    """
    step = "check the boundary"
    for title, value in (("path", path), ("root", root)):
        if not os.path.isabs(value):
            raise StackError("%s is %s, a relative path." % (title, value), step, "Give an absolute path.", value)
        if not os.path.isdir(value):
            what = "is not a directory" if os.path.lexists(value) else "does not exist"
            raise StackError("%s, the %s, %s." % (value, title, what), step, "Correct %s." % title, value)
    if os.path.islink(path.rstrip("/")):
        raise StackError(
            "%s is a symbolic link to %s." % (path, os.readlink(path.rstrip("/"))), step,
            "Name the directory itself: a link can change its target meanwhile.", path,
        )
    real_path, real_root = os.path.realpath(path), os.path.realpath(root)
    known = [(home, home + "/") for home in homes if home != "/"]
    for title, real, holds_only in (("path", real_path, False), ("root", real_root, True)):
        if real == "/":
            raise StackError("%s is the root of the file system." % title, step, "Name the root of the releases.", real)
        for home, prefix in known:
            if prefix.startswith(real + "/") and not (holds_only and home == real):
                raise StackError(
                    "%s, the %s, %s the home directory %s." % (real, title, "is" if home == real else "holds", home),
                    step, "Name a directory of releases.", real,
                )
    if real_path != real_root and not real_path.startswith(real_root + "/"):
        raise StackError(
            "%s lies outside %s (it is %s)." % (path, root, real_path), step, "Correct path or root.", path
        )
    return real_root, os.path.relpath(real_path, real_root)


@contextlib.contextmanager
def open_parent(root: str, relative: str) -> Iterator[tuple[int, str]]:
    """Open the directory that holds the tree, and give the tree's name in it; no link is followed below ``root``."""
    parts = [os.path.basename(root)] + ([] if relative == "." else relative.split("/"))
    descriptor = os.open(os.path.dirname(root), _SEARCH)
    try:
        for part in parts[:-1]:
            below = os.open(part, _SEARCH, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, parts[-1]
    finally:
        os.close(descriptor)

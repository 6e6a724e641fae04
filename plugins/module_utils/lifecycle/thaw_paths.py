# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name the paths of a frozen release that a thaw is about, and the differences that they explain."""

from __future__ import annotations

import os
import stat
from typing import Iterable, NamedTuple, Sequence

from ..core.errors import StackError

STEP = "thaw_paths"
RECORDS = ".torchstack"
"""The build's own records in a release; nobody edits these."""

SBOM = RECORDS + "/sbom.spdx.json"
MANIFEST = RECORDS + "/manifest.json"
CACHE = "__pycache__"


class Named(NamedTuple):
    """A path that is thawed, relative to the release."""

    path: str
    directory: bool


def normalise(path: str) -> str:
    """Return a path as the records write it.

    Raises StackError: it is absolute, leaves the release, is the whole release, or belongs to its records.
    """
    plain = os.path.normpath(path) if path else ""
    if not plain or os.path.isabs(path) or plain != path.rstrip("/") or "\0" in path:
        raise StackError(
            "%r is no path of the release." % path, STEP, "Write it relative to the release, without ..", path)
    parts = plain.split("/")
    if plain == "." or ".." in parts:
        raise StackError(
            "%r is not inside of the release." % path, STEP,
            "Name files or directories below it; a whole release is built anew.", path)
    if parts[0] == RECORDS:
        raise StackError(
            "%s belongs to the records of the build." % path, STEP,
            "Name what the release consists of; its records follow.", path)
    return plain


def on_disk(prefix: str, path: str) -> os.stat_result | None:
    """Tell what is there; None for nothing. Raises StackError: a link is in the way, or it is no file or directory."""
    here = prefix
    found = None
    parts = path.split("/")
    for number, part in enumerate(parts, 1):
        here = os.path.join(here, part)
        try:
            found = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode):
            raise StackError(
                "%s is a symbolic link to %s." % (here, os.readlink(here)), STEP, "Name the file or directory itself.",
                here)
        if number < len(parts) and not stat.S_ISDIR(found.st_mode):
            return None
    if found is not None and not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        raise StackError("%s is neither a file nor a directory." % here, STEP, "Name one that is.", here)
    return found


def named_paths(prefix: str, paths: Iterable[str]) -> list[Named]:
    """Return the paths to thaw, sorted, without those in others. Raises StackError: one of them cannot be thawed."""
    found = {}
    for path in paths:
        plain = normalise(path)
        status = on_disk(prefix, plain)
        if status is None:
            raise StackError(
                "There is no %s in %s." % (plain, prefix), STEP,
                "Correct thaw_paths (no wildcards); for a new file, name the directory that it goes into.",
                os.path.join(prefix, plain))
        if status.st_dev != os.lstat(prefix).st_dev:
            raise StackError(
                "%s lies on another file system than the release." % plain, STEP, "It is no part of the release.",
                plain)
        found[plain] = Named(plain, stat.S_ISDIR(status.st_mode))
    return without_nested(found.values())


def without_nested(several: Iterable[Named]) -> list[Named]:
    """Return paths without those that lie in others of them, sorted."""
    distinct = sorted(set(several))
    return [one for one in distinct if not any(covers([other], one.path) for other in distinct if other != one)]


def covers(several: Sequence[Named], path: str) -> bool:
    """Tell whether a path is one of the named ones, or lies in one."""
    return any(path == one.path or (one.directory and path.startswith(one.path + "/")) for one in several)


def source_of(path: str) -> str:
    """Return the Python file that a path is the bytecode of (:pep:`3147`); empty where it is none."""
    directory, name = os.path.split(path)
    if os.path.basename(directory) != CACHE or not name.endswith(".pyc"):
        return ""
    return os.path.join(os.path.dirname(directory), name.split(".")[0] + ".py")


def explains(several: Sequence[Named], path: str) -> bool:
    """Tell whether a difference may come from the thaw: of what is named, its bytecode and the bill of materials."""
    if covers(several, path) or path == SBOM:
        return True
    source = source_of(path)
    if source:
        return covers(several, source)
    directory, name = os.path.split(path)
    return name == CACHE and any(
        one.path.endswith(".py") and os.path.dirname(one.path) == directory for one in several if not one.directory)


def own_directories(several: Sequence[Named]) -> list[str]:
    """Return directories that are not named, and writable while files are put into them."""
    found = {RECORDS}
    for one in several:
        if not one.directory:
            found.add(os.path.dirname(one.path) or ".")
            if one.path.endswith(".py"):
                found.add(os.path.join(os.path.dirname(one.path), CACHE))
    return sorted(found)


def is_compiled(path: str) -> bool:
    """Tell whether a freeze compiles this Python file, as an interpreter may import it from the release."""
    parts = path.split("/")
    if not path.endswith(".py") or len(parts) < 3:
        return False
    return parts[1] == "site" or (parts[1].startswith("lib") and parts[2].startswith("python"))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Match paths and sonames with the globs of the rules."""

from __future__ import annotations

import functools
import os
import re

from ..core.errors import StackError
from ..core.globs import compile_globs

_SPECIAL = re.compile(r"[*?\[]")
_NEVER = re.compile(r"(?!)")


class Paths:
    """Match path globs; remember where links lead."""

    def __init__(self) -> None:
        self.names = functools.lru_cache(maxsize=None)(self._names)
        self.plain = functools.lru_cache(maxsize=None)(self._plain)
        self._real_directory = functools.lru_cache(maxsize=None)(os.path.realpath)

    def real(self, path: bytes) -> bytes:
        """Return an absolute path with its links resolved; each directory is resolved once."""
        directory, _slash, name = path.rpartition(b"/")
        if not directory or name in (b"", b".", b"..") or os.path.islink(path):
            return os.path.realpath(path)
        return self._real_directory(directory).rstrip(b"/") + b"/" + name

    def _plain(self, path: bytes) -> bytes:
        """Return a path without ``..`` and double slashes, where that is the same file."""
        plain = os.path.normpath(path)
        return plain if plain == path or self.real(plain) == self.real(path) else path

    def _names(self, path: bytes) -> tuple[str, ...]:
        """Return a path, plain and with its links resolved, as globs see it."""
        return tuple(sorted({os.fsdecode(name).strip("/") for name in (self.plain(path), self.real(path))}))

    def match(self, glob: re.Pattern[str], path: bytes) -> bool:
        """Tell whether a path, or where it leads, is what the glob means."""
        return any(glob.fullmatch(name) for name in self.names(path))


class PathsElsewhere(Paths):
    """Match paths that are not of this machine, as inside of a container: its links mean nothing."""

    def real(self, path: bytes) -> bytes:
        """Return the path without ``..`` and double slashes."""
        return os.path.normpath(path)


def soname_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob over sonames."""
    return compile_globs([pattern]) or _NEVER


def path_glob(pattern: str, below: bool = False, here: bool = True) -> re.Pattern[str]:
    """Compile a glob over absolute paths.

    What lies ``below`` a path that matches, matches as well; what is about files of this machine (``here``) means also
    where its own links lead.
    """
    variants = [pattern]
    if here and pattern.startswith("/"):
        fixed = _SPECIAL.split(pattern, maxsplit=1)[0]
        if fixed != pattern:
            fixed = fixed[:fixed.rindex("/")]
        variants.append(os.path.realpath(fixed) + pattern[len(fixed):])
    if below:
        variants += [variant.rstrip("/") + "/**" for variant in variants]
    return compile_globs(variants) or _NEVER


def rule_path_glob(
    kind: str, pattern: str, below: bool = False, failed_step: str = "rules", here: bool = True
) -> re.Pattern[str]:
    """Compile a path glob (see :func:`path_glob`) out of a rule of some kind, unless it can never match."""
    if not pattern.startswith(("/", "**")):
        message = "The path %r under %s can never match: paths are absolute." % (pattern, kind)
        raise StackError(message, failed_step, "Begin it with / or **.")
    return path_glob(pattern, below, here)

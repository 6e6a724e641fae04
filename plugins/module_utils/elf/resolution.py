# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what a resolution says: edges with their rules, order of loading, missing versions."""

from __future__ import annotations

from typing import NamedTuple

DIRECT = "direct path"
LOADED = "already loaded"
RPATH = "RPATH"
RPATH_OF = "RPATH of %s"
ENVIRONMENT = "LD_LIBRARY_PATH"
RUNPATH = "RUNPATH"
CACHE = "ld.so.cache"
DEFAULT = "default directory"
PRELOADED = "preloaded"


class Searched(NamedTuple):
    """Describe one directory in which a name was looked for.

    Attributes:
        directory: "" for the current one; for the cache the path that it holds, or "".
        skipped: "" where there is no such file, else why a file was passed over, or that there is no directory.
    """

    rule: str
    directory: bytes
    skipped: str


class Edge(NamedTuple):
    """Describe one name that one object needs, or that it opens as a plugin.

    Attributes:
        needer: the object's path.
        name: with $ORIGIN and the like replaced.
        path, rule: the file that it is, as ldd prints it, and what found it; None and "" when nothing did.
        searched: where it was looked for before it was found.
    """

    needer: bytes
    name: bytes
    path: bytes | None
    rule: str
    searched: tuple[Searched, ...]


class VersionProblem(NamedTuple):
    """Describe a symbol version, such as ``GLIBCXX_3.4.30``, that an object wants and its library does not define.

    ``needer`` and ``library`` are paths, ``name`` is that by which the object knows the library; it can do without a
    ``weak`` one.
    """

    needer: bytes
    library: bytes
    name: bytes
    version: bytes
    weak: bool


class Plugin(NamedTuple):
    """Describe a library that another one opens at run time.

    ``caller`` is a glob over sonames, or file names where there is no soname, of the one that opens it.
    """

    caller: bytes
    name: bytes


class Resolution(NamedTuple):
    """Describe what the loader does with one object.

    Attributes:
        edges: of the object and of all that it brings, in the loader's order.
        loaded: name and path of all that it brings, in the order in which ldd prints it.
        version_problems: missing symbol versions; weak ones are no errors.
        problem: why the object cannot be resolved to its end, or "".
        unversioned: libraries without any versions, of which some are wanted: the loader warns, and goes on.
    """

    path: bytes
    edges: tuple[Edge, ...] = ()
    loaded: tuple[tuple[bytes, bytes], ...] = ()
    version_problems: tuple[VersionProblem, ...] = ()
    problem: str = ""
    unversioned: tuple[VersionProblem, ...] = ()

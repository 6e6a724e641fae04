# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a resolution says: edges with the rule that found them, the order of loading, and versions that are missing."""

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
    """One directory in which a name was looked for.

    Attributes:
        rule: why there.
        directory: it, "" for the current one; for the cache the path that it holds, or "".
        skipped: "" where there is no such file, else why a file was passed over, or that there is no directory.
    """

    rule: str
    directory: bytes
    skipped: str


class Edge(NamedTuple):
    """One name that one object needs, or that it opens as a plugin.

    Attributes:
        needer: the object's path.
        name: the name, with $ORIGIN and the like replaced.
        path: the file that it is, as ldd prints it, or None.
        rule: what found it; "" when nothing did.
        searched: where it was looked for before it was found.
    """

    needer: bytes
    name: bytes
    path: bytes | None
    rule: str
    searched: tuple[Searched, ...]


class VersionProblem(NamedTuple):
    """A symbol version that an object wants and the library that it got does not define.

    Attributes:
        needer: the object's path.
        library: the library's path.
        name: the name by which the object knows the library.
        version: for example ``GLIBCXX_3.4.30``.
        weak: the object can do without it.
    """

    needer: bytes
    library: bytes
    name: bytes
    version: bytes
    weak: bool


class Plugin(NamedTuple):
    """A library that another one opens at run time.

    Attributes:
        caller: glob over sonames, or file names where there is no soname, of the one that opens it.
        name: what it opens.
    """

    caller: bytes
    name: bytes


class Resolution(NamedTuple):
    """What the loader does with one object.

    Attributes:
        path: the object.
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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what conda's activation of a prefix has to do besides conda itself, for whichever shell. Pure."""

from __future__ import annotations

import hashlib
from typing import Mapping, NamedTuple

from .description import search_paths, under_each_name

OF_CONDA = ("CONDA_", "_CONDA_")
"""How the names of variables begin that are conda's own."""

FRONT, END = "front", "end"
"""Where in a search path an entry is added; any other word is the entry behind which it goes."""


class Work(NamedTuple):
    """What activation does."""

    modules: tuple[str, ...]
    """name and version, as in LOADEDMODULES, under each name of the module; its own first"""
    kept: str
    """the variable that counts activations, and begins the names of those with what was there before"""
    setenv: Mapping[str, str]
    unsetenv: tuple[str, ...]
    added: tuple[tuple[str, str, str], ...]
    """search path, entry, and where: :data:`FRONT`, :data:`END`, or the entry behind which it goes, which is to the
    front where that is not there; in the order in which they are added"""
    binaries: str
    """the prefix's own directory in PATH. conda takes it out before the scripts that deactivate; where it is still
    there, conda goes over to another prefix, or to the same one, and sets PATH after them as it was before"""

    @property
    def module(self) -> str:
        """Return name and version of the module."""
        return self.modules[0]

    @property
    def paths(self) -> list[str]:
        """Return the search paths, each once."""
        return list(dict.fromkeys(name for name, _entry, _front in self.added))


def work_of(description: Mapping, prefix: str) -> Work:
    """Return what is left for the scripts of a normalised description."""
    added: list[tuple[str, str, str]] = []
    for name, (before, after) in search_paths(description).items():
        own = prefix + "/bin" if name == "PATH" else None
        # conda has put the prefix's own in front already.
        first = before.index(own) if own in before else len(before)
        added += [(name, entry, own or FRONT) for entry in reversed(before[first + 1:])]
        added += [(name, entry, FRONT) for entry in reversed(before[:first])]
        added += [(name, entry, END) for entry in after if entry != own]
    return Work(
        tuple("%s/%s" % (name, description["version"]) for name in under_each_name(description)),
        "TORCHSTACK_MODULE_" + hashlib.sha256(prefix.encode("utf-8")).hexdigest()[:8],
        {name: value for name, value in sorted(description["setenv"].items()) if not name.startswith(OF_CONDA)},
        tuple(name for name in sorted(description["unsetenv"]) if not name.startswith(OF_CONDA)), tuple(added),
        prefix + "/bin")

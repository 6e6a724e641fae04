# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what conda's activation of a prefix has to do besides conda itself, for whichever shell. Pure."""

from __future__ import annotations

import hashlib
from typing import Mapping, NamedTuple

from .description import search_paths, under_each_name

OF_CONDA = ("CONDA_", "_CONDA_")
"""How the names of variables begin that are conda's own."""


class Work(NamedTuple):
    """What activation does."""

    modules: tuple[str, ...]
    """name and version, as in LOADEDMODULES, under each name of the module; its own first"""
    kept: str
    """the variable that counts activations, and begins the names of those with what was there before"""
    setenv: Mapping[str, str]
    unsetenv: tuple[str, ...]
    added: tuple[tuple[str, str, bool], ...]
    """search path, entry, and whether it goes to the front; in the order in which they are added"""
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
    added: list[tuple[str, str, bool]] = []
    for name, (before, after) in search_paths(description).items():
        own = prefix + "/bin" if name == "PATH" else None
        added += [(name, entry, True) for entry in reversed(before) if entry != own]
        added += [(name, entry, False) for entry in after if entry != own]
    return Work(
        tuple("%s/%s" % (name, description["version"]) for name in under_each_name(description)),
        "TORCHSTACK_MODULE_" + hashlib.sha256(prefix.encode("utf-8")).hexdigest()[:8],
        {name: value for name, value in sorted(description["setenv"].items()) if not name.startswith(OF_CONDA)},
        tuple(name for name in sorted(description["unsetenv"]) if not name.startswith(OF_CONDA)), tuple(added),
        prefix + "/bin")

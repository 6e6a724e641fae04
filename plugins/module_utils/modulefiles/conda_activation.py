# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render a module's description as the scripts by which conda activates a prefix, for sh, csh and fish. Pure.

What conda sets itself, its own variables and the prefix's ``bin``, is left to it; so are aliases and functions. A shell
in which the module is loaded has everything already, and nothing is touched there. Otherwise each variable's former
value is kept until the last deactivation, and of a search path the entries that were added, as conda and users change
the others meanwhile.
"""

from __future__ import annotations

import hashlib
from typing import Callable, Iterator, Mapping, NamedTuple

from . import conda_activation_csh as csh
from . import conda_activation_fish as fish
from . import conda_activation_sh as sh
from .description import search_paths, under_each_name

NAME = "zz-torchstack-module"
"""Of the scripts, behind those of packages and of run-time settings."""

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


SCRIPTS: Mapping[str, Mapping[str, Callable[[Work], Iterator[str]]]] = {
    # What gives values back comes first: an interrupted run leaves nothing that would stay set.
    "deactivate.d": {"sh": sh.deactivate, "csh": csh.deactivate, "fish": fish.deactivate},
    "activate.d": {"sh": sh.activate, "csh": csh.activate, "fish": fish.activate},
}
"""What writes the lines of a script, by its directory and its ending."""


def scripts(description: Mapping, prefix: str) -> dict[str, str]:
    """Return the scripts for a conda prefix, by their paths below its ``etc/conda``."""
    work = work_of(description, prefix)
    head = "# What the module %s sets, for those who activate %s with conda." % (work.module, prefix)
    return {
        "%s/%s.%s" % (directory, NAME, suffix): "\n".join([head, *lines_of(work)]) + "\n"
        for directory, shells in SCRIPTS.items() for suffix, lines_of in shells.items()}


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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render a module's description as the scripts by which conda activates a prefix, for sh, csh and fish. Pure.

What conda sets itself, its own variables and the prefix's ``bin``, is left to it; so are aliases and functions. A shell
in which the module is loaded has everything already, and nothing is touched there. Otherwise each variable's former
value is kept until the last deactivation, and of a search path the entries that were added, as conda and users change
the others meanwhile.
"""

from __future__ import annotations

from typing import Callable, Iterator, Mapping

from . import conda_activation_csh as csh
from . import conda_activation_fish as fish
from . import conda_activation_sh as sh
from .conda_activation_work import Work, work_of

NAME = "zz-torchstack-module"
"""Of the scripts, behind those of packages and of run-time settings."""

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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what the modules of a site are like on the nodes of its rehearsal."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any

import yaml

CATALOGUE = pathlib.Path(__file__).resolve().parents[3] / "rehearsal" / "dress" / "modules.yml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@functools.lru_cache(maxsize=None)
def _catalogue() -> dict[str, Any]:
    """Read what modules are like, by name."""
    return dict(yaml.safe_load(CATALOGUE.read_text(encoding="utf-8")))


def mpi_of(name: str) -> str:
    """Return the MPI that the nodes have for a module of this name; empty for no module of an MPI."""
    word = name.lower()
    return "mpich" if "mpich" in word else "openmpi" if "mpi" in word else ""


def mpi_of_nodes(toolchain: list[str], mpi: str) -> str:
    """Return the MPI that the nodes of a rehearsal have: that of a module, or of a path; empty for none."""
    found = [mpi_of(module.split("/")[0]) for module in toolchain]
    return next(filter(None, found), "openmpi" if mpi.startswith("/") else "")


def dress_of(name: str, mpi: str) -> dict[str, Any]:
    """Return what a module is like, by its name.

    Args:
        name: without its version.
        mpi: where the MPI of the site is: a variable of a module is set to the place of the MPI's.
    """
    known, stand_in = _catalogue(), mpi_of(name)
    found: dict[str, Any] = {}
    if stand_in and name not in known:
        found["like"] = stand_in
    variable = _VARIABLE.match(mpi)
    if stand_in and variable:
        found["set"] = {variable[1]: "{place}"}
    return found or ({} if name in known else {"empty": True})

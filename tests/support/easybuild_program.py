# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The EasyBuild that tests run, and the module systems that it works with."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD, find_system

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MISSING = "There is no EasyBuild: run the tests by tests/run, or name its command eb by TORCHSTACK_EASYBUILD."


def command() -> pathlib.Path:
    """The path of ``eb``; fails the test where there is none."""
    usual = str(CHECKOUT / ".cache" / "tests" / "easybuild" / "bin" / "eb")
    found = shutil.which(os.environ.get("TORCHSTACK_EASYBUILD") or usual)
    if found is None:
        pytest.fail(MISSING, pytrace=False)
    return pathlib.Path(found)


def site(kind: str, place: pathlib.Path) -> dict:
    """``torchstack_container.easybuild`` of a site with one of the module systems.

    Args:
        kind: :data:`LMOD` or :data:`EM`.
        place: a directory for what EasyBuild wants to find of the latter.
    """
    program = command()
    environment = {"PATH": "%s:/usr/local/bin:/usr/bin:/bin" % program.parent}
    system = find_system(os.environ, kind)
    if kind == LMOD:
        return {
            "command": str(program), "environment": dict(environment, LMOD_CMD=system.command),
            "modules_tool": "Lmod", "module_syntax": "Lua",
        }
    home = place / "modules"
    (home / "libexec").mkdir(parents=True, exist_ok=True)
    if not (home / "libexec" / "modulecmd.tcl").exists():
        (home / "libexec" / "modulecmd.tcl").symlink_to(system.command)
    return {
        "command": str(program), "environment": dict(environment, MODULESHOME=str(home)),
        "modules_tool": "EnvironmentModules", "module_syntax": "Tcl",
    }


__all__ = ["EM", "LMOD", "command", "site"]

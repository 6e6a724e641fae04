# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The module systems and shells of this machine, and modulefiles to try in them."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description_checks import find_faults
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import relative_path, render
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.session import run_session
from support.module_systems import SYNTAX, module_systems, name_of

SYSTEMS = module_systems()
SHELLS = [path for path in map(shutil.which, ("bash", "zsh", "tcsh")) if path]


def pytest_generate_tests(metafunc):
    """Run a test with every module system and in every shell; a machine without modules skips it."""
    if "system" in metafunc.fixturenames:
        metafunc.parametrize("system", SYSTEMS, ids=name_of)
    if "shell" in metafunc.fixturenames:
        metafunc.parametrize("shell", SHELLS, ids=os.path.basename)


@pytest.fixture()
def some_module_system():
    """Skip a test that a machine without any module system cannot run."""
    if not SYSTEMS:
        pytest.skip("not installed: Lmod or Environment Modules")


@pytest.fixture()
def kinds_at_hand():
    """Return which module systems a module of the collection finds by itself: those of SYSTEMS may lie anywhere."""
    found = set()
    for kind in SYNTAX:
        with contextlib.suppress(StackError):
            found.add(module_system.find_system(os.environ, kind).kind)
    return found


@pytest.fixture()
def some_lmod(kinds_at_hand):
    """Skip a test that changes what only Lmod reads."""
    if module_system.LMOD not in kinds_at_hand:
        pytest.skip("not installed: Lmod")


@pytest.fixture()
def other_system(system):
    """Return one of the other kind; a machine without both skips the test."""
    found = next((one for one in SYSTEMS if one.kind != system.kind), None)
    return found or pytest.skip("not installed: Lmod and Environment Modules side by side")


@pytest.fixture()
def modulefiles(tmp_path):
    """Write modulefiles of descriptions below tmp_path, and return the directory that holds both syntaxes."""

    def write(*descriptions):
        for raw in descriptions:
            description = normalise(raw)
            assert find_faults(description) == []
            for syntax, text in render(description, description["version"]).items():
                path = tmp_path / relative_path(syntax, description["name"], description["version"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode("utf-8"))
        return tmp_path / "modulefiles"

    return write


@pytest.fixture()
def session(tmp_path):
    """Run module commands in a shell with the modulefiles below tmp_path, and return the snapshots."""

    def run(system, shell, commands, **environment):
        scratch = tmp_path / ("session-%d" % len(list(tmp_path.iterdir())))
        scratch.mkdir()
        start = {
            "HOME": str(scratch), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
            "MODULEPATH": str(tmp_path / "modulefiles" / SYNTAX[system.kind]), **environment,
        }
        result = run_session(shell, system, commands, start, str(scratch))
        assert set(result.statuses) == {0}, result.messages
        return result

    return run

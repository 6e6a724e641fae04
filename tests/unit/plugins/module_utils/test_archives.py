# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The programs that travel to other machines and accounts have all that they import with them."""

from __future__ import annotations

import ast
import io
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils import (
    acceptance_job,
    archive,
    bandwidth_archive,
    health_archive,
    launcher,
    rank_archive,
    reframe_files,
    sweep_archive,
)

ARCHIVES = {
    "the supervisor of steps": launcher.supervisor_archive,
    "the supervisor of an acceptance": lambda: archive.program_archive(acceptance_job._MAIN, acceptance_job._PARTS),
    "the ranks": rank_archive.archive,
    "the ranks of a sweep": sweep_archive.archive,
    "the collectives": bandwidth_archive.collectives_archive,
    "the health of a node": health_archive.archive,
    "the judge of ReFrame's tests": lambda: reframe_files.wanted({"name": "x"}, "")["judge.pyz"],
}


def imported(text):
    """The modules of this collection that a source imports, as paths in an archive."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ansible_collections."):
            package = node.module.endswith(".module_utils")
            for name in [node.module + "." + alias.name for alias in node.names] if package else [node.module]:
                yield name.replace(".", "/") + ".py"


@pytest.mark.parametrize("program", ARCHIVES)
def test_a_program_has_all_that_it_imports_with_it(program):
    with zipfile.ZipFile(io.BytesIO(ARCHIVES[program]())) as bundle:
        names = set(bundle.namelist())
        needed = {path for name in names if name.endswith(".py") for path in imported(bundle.read(name))}
    assert needed and needed <= names

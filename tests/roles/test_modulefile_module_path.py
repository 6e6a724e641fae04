# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Modules that a release's module loads are found where the site's own start-up file of the module system leads to."""

from __future__ import annotations

import json
import pathlib

import pytest
from support import role_plays

LMOD = pathlib.Path("/usr/share/lmod/lmod")

pytestmark = pytest.mark.skipif(not (LMOD / "init" / "bash").exists(), reason="needs Lmod")


@pytest.fixture()
def play(ansible_environment, tmp_path):
    """Run the role for a module that loads one of the site's; what it said."""
    tree, root = tmp_path / "modules", tmp_path / "root"
    (tree / "toolchain").mkdir(parents=True)
    (tree / "toolchain" / "1.lua").write_text('setenv("TOOLCHAIN", "1")\n')
    (root / "one" / "base" / "bin").mkdir(parents=True)

    def run(**changed):
        variables = {
            "torchstack_root": str(root), "torchstack_release": "one", "torchstack_site": "mine",
            "modulefile_description": {"depends_on": ["toolchain/1"]}, "modulefile_shells": ["bash"],
            "modulefile_module_system": "lmod", "modulefile_module_path": [],
            # As for users, to whom the releases are shown as well.
            "modulefile_module_init": ". %s/init/bash; module use %s %s/modulefiles/lmod" % (LMOD, tree, root),
            **changed}
        done = role_plays.play_tasks("modulefile", "main", variables, [{}], ansible_environment, tmp_path)
        record = root / ".torchstack" / "one" / "modulefile.json"
        return done, json.loads(record.read_text()) if record.exists() else {}

    return run


def test_without_a_module_path_they_are_found_as_users_find_them_and_a_second_run_changes_nothing(play):
    done, record = play()
    assert done.returncode == 0, done.stdout
    assert record["passed"] and {entry["syntax"] for entry in record["checked"]} == {"lmod"}
    again, _record = play()
    assert again.returncode == 0 and "changed=0" in again.stdout, again.stdout


def test_where_nothing_defines_module_the_modules_are_unknown(play):
    done, record = play(modulefile_module_init="")
    assert done.returncode != 0 and "are unknown" in done.stdout and not record.get("passed")

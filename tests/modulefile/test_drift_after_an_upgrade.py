# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""S45: the programming environment was upgraded under published releases, as at ALCF in August 2026."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import system_drift
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_load

BY_NAME = ["PrgEnv-gnu", "cray-hdf5-parallel/1.14.3.5"]
BY_RANGE = ["PrgEnv-gnu", "cray-hdf5-parallel@1.14:1"]


@pytest.fixture()
def look(system, tmp_path):
    """Load what a release depends on as the role drift does, and judge that."""
    start = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MODULEPATH": str(tmp_path / "site")}

    def run(depends_on):
        try:
            result = {"loaded": module_load.loaded(module_load.load_modules(system, start, depends_on)[0])}
        except StackError as error:
            result = dict(error.as_result(), failed=True)
        return system_drift.judge(str(tmp_path / "release"), {"modules": result}, True, "login1")

    return run


@pytest.fixture()
def site(tmp_path):
    """Write a site's modules, or take them away."""

    def write(name, text="", gone=False):
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if gone:
            path.unlink()
        else:
            path.write_text("#%Module1.0\n" + text)

    write("gcc-native/14.2")
    write("PrgEnv-gnu/8.6", "module load gcc-native/14.2\n")
    write("cray-hdf5-parallel/1.14.3.5")
    return write


def test_s45_a_release_whose_modules_an_upgrade_has_renamed_is_named_with_what_there_is_today(look, site):
    assert look(BY_NAME)["passed"] and look(BY_RANGE)["passed"]
    site("cray-hdf5-parallel/1.14.3.5", gone=True)
    site("cray-hdf5-parallel/1.14.3.7")
    outcome = look(BY_NAME)
    (finding,) = outcome["findings"]
    assert (finding["kind"], finding["module"], outcome["passed"]) == ("module_missing", BY_NAME[1], False)
    assert finding["message"] == (
        "The module cray-hdf5-parallel/1.14.3.5, which it loads, is not there any more. "
        "Today there is cray-hdf5-parallel/1.14.3.7.")
    assert look(BY_RANGE)["passed"], "a range goes along with the upgrade"
    site("cray-hdf5-parallel/1.14.3.7", gone=True)
    site("cray-hdf5-parallel/2.0")
    (finding,) = look(BY_RANGE)["findings"]
    assert finding["message"] == (
        "The module cray-hdf5-parallel from 1.14 on and up to 1, which it loads, is not there any more. "
        "Today there is cray-hdf5-parallel/2.0.")


def test_s45_a_module_of_the_site_that_asks_for_one_that_is_gone_is_named_with_that_one(look, site):
    site("gcc-native/14.2", gone=True)
    site("gcc-native/15.1")
    (finding,) = look(["PrgEnv-gnu"])["findings"]
    assert (finding["kind"], finding["module"]) == ("module_refused", "PrgEnv-gnu")
    assert "gcc-native/14.2" in finding["message"] and finding["message"].endswith("Today there is gcc-native/15.1.")

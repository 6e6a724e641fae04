# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site's data as a rollout checks them, all problems at once."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_data
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

SPECIFIED = files.specified()
CONTAINER = {"base": {"kind": "container", "image": {"file": "a.sif"}}}
OVERLAY = {"base": {"kind": "python_overlay"}, "mpi": {}}
SETTING = {"name": "NCCL_CROSS_NIC", "value": "1", "reason": "The site asks for it."}


def site(**changed):
    """A site's data in which nothing is wrong."""
    known = site_data.Site(
        root="/appl/stacks", release="r", site="mysite", file="r.yml", python="", account="-", builds="", mirror="",
        proxy={}, conda_channels=[], conda_mirrors={}, runtime_settings=[SETTING], module_init="", module_path=[],
        module_system="auto",
        compilers=[], jobs={}, ranks={}, acceptance={}, images="/appl/images", container={"binds": ["/appl"]},
        topology={})
    return {**known, **changed}


def problems(definition=None, submits=True, **changed):
    return site_data.problems(site(**changed), SPECIFIED, definition or {}, submits)


def test_data_in_which_nothing_is_wrong_have_no_problems():
    for found in (problems(), problems(OVERLAY), problems(CONTAINER), problems(builds="none"), problems(builds="/x")):
        assert found == []


@pytest.mark.parametrize("changed, sentence", [
    ({"jobs": {"launcher": "slrum"}}, "did you mean 'slurm'?"),
    ({"jobs": "slurm"}, "must be a mapping"),
    ({"jobs": {"node": {"memory": "much"}}}, "it must be a whole number with its unit, such as 240G"),
    ({"jobs": {"node": {"tmpdir": "tmp"}}}, "it must be an absolute path without spaces"),
    ({"builds": "cache"}, "torchstack_cache of site mysite is 'cache'. Name a directory from / on, or none;"),
    ({"acceptance": {"mesure": {}}}, "Unknown key 'torchstack_acceptance.mesure' in the data of site mysite"),
    ({"acceptance": {"measure": {"largest": "1 XB"}}}, "The acceptance could not be run with what torchstack_accept"),
])
def test_what_is_wrong_is_one_sentence(changed, sentence):
    (found,) = problems(**changed)
    assert sentence in found


def test_all_that_is_wrong_is_told_at_once():
    assert len(problems(CONTAINER, jobs={"launcher": "slrum"}, builds="x", images="", acceptance={"x": 1})) == 4


def test_containers_are_only_looked_at_for_a_release_that_is_one():
    assert problems(OVERLAY, images="", container={"binds": 3}) == []
    (found,) = problems(CONTAINER, container={"bind": ["/appl"]})
    assert "did you mean 'binds'?" in found
    (found,) = problems(CONTAINER, topology={"lscpu": "x", "gpus": "y"})
    assert found.startswith("'torchstack_topology': ")
    (found,) = problems(CONTAINER, jobs={"launcher": "local", "options": {"gpus": 4}}, topology={"gpus": "y"})
    assert found.startswith("'torchstack_topology.lscpu' is missing in the data of site mysite")


def test_easybuild_makes_modules_for_the_module_system_that_users_have():
    asked = {"binds": ["/appl"], "method": "easybuild"}
    assert problems(CONTAINER, container=asked) == problems(CONTAINER, container=asked, module_system="lmod") == []
    (found,) = problems(CONTAINER, container=asked, module_system="environment-modules")
    assert found.startswith("'torchstack_container.easybuild.modules_tool' is Lmod, and torchstack_module_system of")
    assert found.endswith("is environment-modules; say EnvironmentModules there, and the module_syntax that it reads.")
    of_tcl = dict(asked, easybuild={"modules_tool": "EnvironmentModules", "module_syntax": "Tcl"})
    assert problems(CONTAINER, container=of_tcl, module_system="environment-modules") == []
    assert problems(CONTAINER, module_system="environment-modules") == []


def test_cuda_on_a_site_with_gpus_of_amd_is_told_with_the_release():
    topology = {"lscpu": "x", "gpus": "GPU[0]\t\t: (Topology) Numa Node: 3"}
    release = {"base": {"kind": "python_overlay"}, "cuda": {}}
    (found,) = site_data.release_problems(site(topology=topology), release, False)
    assert "of site mysite has GPUs of AMD" in found
    assert site_data.release_problems(site(topology=topology), release, True) == []


@pytest.mark.parametrize("account, launcher, submits, told", [
    ("", "slurm", True, True), ("", "slurm", False, False), ("-", "slurm", True, False), ("", "local", True, False),
])
def test_without_an_account_nothing_is_submitted_and_a_plan_is_still_made(account, launcher, submits, told):
    found = problems(submits=submits, account=account, jobs={"launcher": launcher})
    assert found == (["Jobs of site mysite are charged to a project, and none is named. Set TORCHSTACK_ACCOUNT to it, "
                      "and run the same command again."] if told else [])


def test_run_time_settings_of_site_and_release_have_to_go_together():
    assert site_data.release_problems(site(), OVERLAY, False) == []
    twice = dict(OVERLAY, module={"setenv": {"NCCL_CROSS_NIC": "0"}})
    assert site_data.release_problems(site(), twice, False) == [
        "r.yml: module.setenv and the run-time settings both set NCCL_CROSS_NIC; keep it in one of them."]
    assert site_data.release_problems(site(), twice, True) == []
    unknown = dict(OVERLAY, runtime={"without": ["A"]})
    assert site_data.release_problems(site(), unknown, False)[0].startswith("r.yml: runtime.without has A, which the")
    found = site_data.release_problems(site(runtime_settings=[{"name": "A", "value": "1"}]), unknown, True)
    assert found == ["Run-time setting A has no reason."]


def test_a_conda_base_needs_a_channel_from_somewhere():
    base = {"base": {"kind": "conda", "specs": ["python"], "channels": []}}
    (found,) = site_data.release_problems(site(), base, True)
    assert found.startswith("r.yml has specs and names no channel under base.channels, and site mysite has none either")
    assert site_data.release_problems(site(conda_channels=["conda-forge"]), base, False) == []
    assert site_data.release_problems(site(), {"base": dict(base["base"], specs=[])}, False) == []

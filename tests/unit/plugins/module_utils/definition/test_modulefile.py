# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a release's modulefile says."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import modulefile, runtime_settings
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import description, description_checks

BASE = {"search": {"PATH": ["/r/1/base/bin"], "PYTHONPATH": ["/r/1/base/site"]}, "setenv": {"BASE": "1"}}
MPI = {"provider": "named", "prefix": "/opt/mpich", "bin": "/opt/mpich/bin"}
WHEEL = {"provider": "wheel", "prefix": "/r/1/base", "bin": "/r/1/base/bin"}
SETTING = {"name": "NCCL_CROSS_NIC", "value": "1", "reason": "faster on large systems"}


def test_without_anything_of_its_own_it_says_what_it_said_before():
    assert modulefile.describe(BASE, MPI, [], {}) == {
        "external": ["/opt/mpich/bin"],
        "prepend": [
            {"name": "PATH", "values": ["/r/1/base/bin", "/opt/mpich/bin"]},
            {"name": "PYTHONPATH", "values": ["/r/1/base/site"]},
        ],
        "setenv": {"BASE": "1"},
    }
    assert modulefile.describe(BASE, WHEEL, [], {})["external"] == []


def test_wrappers_of_a_programming_environment_come_with_the_sites_modules():
    cray = dict(MPI, prefix="/opt/cray/pe/mpich/8.1.27", bin="/opt/cray/pe/craype/2.7.23/bin")
    assert modulefile.describe(BASE, cray, [], {})["prepend"][0]["values"] == ["/r/1/base/bin"]


def test_commands_of_an_mpi_that_a_module_brings_come_with_that_module_where_users_have_it():
    for own, commands in (({"depends_on": ["cray-mpich"]}, []), ({}, ["/opt/mpich/bin"])):
        for prefix, toolchain in (("${CRAY_MPICH_DIR}", ()), ("", ("openmpi/4.1.6",))):
            found = modulefile.describe(BASE, MPI, [], own, prefix, toolchain)
            assert (found["prepend"][0]["values"], found["external"]) == (["/r/1/base/bin", *commands], commands)


def test_directories_of_the_release_file_come_behind_the_releases_own():
    own = {"external": ["/opt/cuda"], "depends_on": ["PrgEnv-gnu"], "prepend": [
        {"name": "PATH", "values": ["/opt/cuda/bin", "/r/1/base/bin"]},
        {"name": "LD_LIBRARY_PATH", "values": ["/opt/cuda/lib64"]},
    ]}
    found = modulefile.describe(BASE, MPI, [], own)
    assert found["external"] == ["/opt/mpich/bin", "/opt/cuda"] and found["depends_on"] == ["PrgEnv-gnu"]
    assert found["prepend"][0]["values"] == ["/r/1/base/bin", "/opt/mpich/bin", "/opt/cuda/bin"]
    assert found["prepend"][2] == {"name": "LD_LIBRARY_PATH", "values": ["/opt/cuda/lib64"]}
    described = description.normalise(dict(found, name="torchstack", version="1", prefix="/r/1"))
    assert description_checks.find_faults(described) == []


def test_settings_come_with_their_reasons():
    found = modulefile.describe(BASE, MPI, [SETTING], {"setenv": {"A": "${HOME}"}, "reasons": {"A": "why"}})
    assert found["setenv"] == {"BASE": "1", "NCCL_CROSS_NIC": "1", "A": "${HOME}"}
    assert found["reasons"] == {"NCCL_CROSS_NIC": "faster on large systems", "A": "why"}


def test_a_release_differs_from_the_sites_settings():
    site = [SETTING, dict(SETTING, name="NCCL_NET_GDR_LEVEL", value="PHB"), dict(SETTING, name="C")]
    runtime = {"without": ["NCCL_NET_GDR_LEVEL"], "settings": [
        dict(SETTING, value="2", reason="hangs with 1"), dict(SETTING, name="NEW"),
    ]}
    found = runtime_settings.merge(site, runtime)
    assert [(setting["name"], setting["value"]) for setting in found] == [
        ("NCCL_CROSS_NIC", "2"), ("C", "1"), ("NEW", "1"),
    ]
    assert found[0]["reason"] == "hangs with 1"
    assert runtime_settings.merge(site, {}) == site


@pytest.mark.parametrize("runtime, sentence", [
    ({"without": ["NCCL_NET"]}, "runtime.without has NCCL_NET, which the site does not set; remove it."),
    ({"without": ["NCCL_CROSS_NIC"], "settings": [SETTING]}, "runtime has NCCL_CROSS_NIC both under without"),
    ({"settings": [dict(SETTING, reason="")]}, "Run-time setting NCCL_CROSS_NIC has an empty reason"),
    ({"settings": [dict(SETTING, value="a\nb")]}, "The value of run-time setting NCCL_CROSS_NIC holds a line break"),
])
def test_what_cannot_be_used_is_named(runtime, sentence):
    (found,) = runtime_settings.release_problems([SETTING], runtime)
    assert found.startswith(sentence)


def test_a_variable_is_set_in_one_place():
    (found,) = modulefile.problems({"setenv": {"NCCL_CROSS_NIC": "1"}}, [SETTING])
    assert found.startswith("module.setenv and the run-time settings both set NCCL_CROSS_NIC")


@pytest.mark.parametrize("definition", [
    {"module": {"depends_on": ["python/3.11"]}}, {"module": {"family": "pytorch", "depends_on": ["python/3.11"]}},
    {"module": {"family": "pyth", "depends_on": ["python"]}}, {"module": {"family": "x", "depends_on": "x"}}, {}, None,
])
def test_a_family_of_its_own_is_no_problem(definition):
    assert modulefile.family_problems(definition) == []


@pytest.mark.parametrize("definition", [
    {"module": {"family": "python", "depends_on": ["gcc/12", "python/3.11"]}},
    {"module": {"family": "python"}, "toolchain": {"modules": ["python"]}},
    {"module": {"family": "python", "depends_on": ["python"]}, "toolchain": {"modules": ["python"]}},
])
def test_a_family_that_is_the_name_of_a_module_that_is_loaded_along_is_told_once(definition):
    (found,) = modulefile.family_problems(definition, "a.yml")
    assert found.startswith("'module.family' in a.yml is python, and ")
    assert found.endswith("give the family another name, or remove the key.")


CONDA = {"base": {"kind": "conda", "specs": ["python 3.11.*", "conda >=24"]}, "module": {"conda_command": True}}


@pytest.mark.parametrize(("change", "problem"), [
    ({}, ""), ({"module": {}}, ""), ({"base": {"kind": "conda", "specs": ["python"], "optional_specs": ["conda"]}}, ""),
    ({"base": {"kind": "conda", "lock": "conda.lock"}}, ""), ({"base": None}, ""),
    ({"base": {"kind": "python_overlay"}}, "an overlay of the site's Python has no conda of its own; remove the key."),
    ({"base": {"kind": "conda", "specs": ["python"]}}, "base.specs has no conda; add it there, or remove the key."),
])
def test_the_module_defines_conda_only_where_the_release_has_it(change, problem):
    found = modulefile.conda_problems({**CONDA, **change}, "a.yml")
    assert found == (["'module.conda_command' in a.yml is true, and " + problem] if problem else [])


@pytest.mark.parametrize(("change", "problem"), [
    ({"functions": {"conda": {"sh": "true"}}}, "conda_command and functions both define conda; keep one of them."),
    ({"aliases": {"conda": "true"}}, "conda_command and aliases both define conda; keep one of them."),
    ({"also_named": ["torchstack"]}, "The module has the name torchstack already; take it out of also_named."),
    ({"also_named": ["conda", "conda"]}, "The module has the name conda already; take it out of also_named."),
    ({"also_named": ["my conda"]}, "'my conda' in also_named is not one plain word of letters, digits and . _ + -."),
])
def test_a_module_has_each_name_and_each_function_once(change, problem):
    definition = {"release": "r1", "module": {"conda_command": True, **change}}
    assert set(modulefile.rendering_problems(definition, [], "/soft")) == {"'module': " + problem}


def test_a_prefix_that_a_shell_would_take_apart_has_no_conda_command():
    (found,) = modulefile.rendering_problems({"release": "r1", "module": {"conda_command": True}}, [], "/my soft")
    assert "conda_command needs a prefix that every shell takes as it is" in found


def test_what_a_modulefile_cannot_have_is_known_before_anything_is_built():
    own = {"prepend": [{"name": "PATH", "values": ["/opt/x/bin", "${HOME}/bin"]}], "setenv": {"A": "${B}/c"}}
    definition = {"release": "r1", "module": own}
    (found,) = modulefile.rendering_problems(definition, [], "/soft")
    assert found == (
        "'module': PATH leads to /opt/x/bin, outside the prefix /soft/r1; list it in external if that is meant.")
    definition["module"] = dict(own, external=["/opt/x"])
    assert modulefile.rendering_problems(definition, [], "/soft") == []
    for root in ("/", "soft/stacks", "/soft//x/../stacks", ""):
        assert modulefile.rendering_problems(definition, [], root) == []
    settings = [{"name": "A_B", "value": "1", "reason": "why"}]
    assert modulefile.rendering_problems({"release": "r1"}, settings, "/soft") == []

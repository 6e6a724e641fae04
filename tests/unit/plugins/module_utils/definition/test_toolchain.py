# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the steps that compile are run in."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import toolchain

TOOLCHAIN = {
    "modules": ["ncarenv/23.09", "gcc/12.2.0", "cray-mpich/8.1.27", "cuda/12.2.1", "mkl/2024.0.0"],
    "environment": {"CRAY_ACCEL_TARGET": "nvidia80", "TMP": "/tmp"},
    "unset": ["CFLAGS"],
    "compilers": {"CC": "cc", "CXX": "CC"},
    "steps": {
        "nccl": {
            "without": ["cray-mpich", "mkl/2024.0.0"], "environment": {"MPICC": "/bin/false"},
            "compilers": {"CC": "gcc"}, "unset": ["LDFLAGS", "CFLAGS"],
        },
        "package-h5py": {"modules": ["gcc/12.2.0", "cray-hdf5-parallel/1.12.2.3"]},
        "nccl-tests": {"without": ["mkl"]},
    },
}
NOTHING = {"modules": [], "module_init": "", "setup": "", "environment": {}, "unset": [], "compilers": {}}


def of_step(step, init="/etc/profile.d/lmod.sh", path=()):
    return toolchain.step_toolchain({"toolchain": toolchain.describe({"toolchain": TOOLCHAIN}, init, path)}, step)


@pytest.mark.parametrize("context", [
    {}, {"toolchain": {}}, {"toolchain": toolchain.describe({}, "/etc/profile.d/lmod.sh", ["/soft/modulefiles"])},
])
def test_without_a_toolchain_a_step_is_what_it_was(context):
    assert toolchain.step_toolchain(context, "horovod") == NOTHING


def test_a_step_of_which_nothing_is_said_has_what_all_have():
    assert of_step("horovod") == {
        "modules": TOOLCHAIN["modules"], "module_init": "/etc/profile.d/lmod.sh", "setup": "",
        "environment": TOOLCHAIN["environment"], "unset": ["CFLAGS"], "compilers": {"CC": "cc", "CXX": "CC"},
    }


def test_a_step_may_leave_modules_out_with_or_without_their_version():
    assert of_step("nccl")["modules"] == ["ncarenv/23.09", "gcc/12.2.0", "cuda/12.2.1"]


def test_variables_and_compilers_of_a_step_replace_those_of_the_same_name():
    found = of_step("nccl")
    assert found["environment"] == {"CRAY_ACCEL_TARGET": "nvidia80", "TMP": "/tmp", "MPICC": "/bin/false"}
    assert found["compilers"] == {"CC": "gcc", "CXX": "CC"}
    assert found["unset"] == ["CFLAGS", "LDFLAGS"]


def test_a_list_of_modules_of_a_step_replaces_the_list():
    assert of_step("package-h5py")["modules"] == ["gcc/12.2.0", "cray-hdf5-parallel/1.12.2.3"]


@pytest.mark.parametrize("init, path, text", [
    ("", [], ""),
    ("/etc/profile.d/lmod.sh", [], "/etc/profile.d/lmod.sh"),
    ("/etc/profile.d/lmod.sh", ["/a", "/b c"], ". /etc/profile.d/lmod.sh\nmodule use '/b c'\nmodule use /a"),
    ("type module || . /init", ["/a"], "type module || . /init\nmodule use /a"),
    ("", ["/a"], "module use /a"),
])
def test_the_first_directory_of_modulefiles_is_searched_first(init, path, text):
    assert toolchain.defining_modules(init, path) == text


def test_without_modules_the_module_system_is_not_touched():
    described = toolchain.describe({"toolchain": {"environment": {"A": "1"}}}, "/init", ["/a"])
    assert toolchain.step_toolchain({"toolchain": described}, "nccl")["module_init"] == ""


def test_lists_of_single_steps_are_tried_once_each():
    found = toolchain.step_lists(toolchain.describe({"toolchain": TOOLCHAIN}))
    assert [entry["step"] for entry in found] == ["nccl", "package-h5py", "nccl-tests"]


def test_s05_compilers_are_looked_for_as_they_are_typed():
    site = [{"name": "CC", "language": "c"}, {"name": "CXX", "language": "c++"}, {"name": "FC", "command": "ftn"}]
    found = toolchain.typed_compilers(site, toolchain.describe({"toolchain": TOOLCHAIN}))
    assert [entry.get("command") for entry in found] == ["cc", "CC", "ftn"]
    assert toolchain.typed_compilers(site, toolchain.describe({})) == site


def test_steps_that_the_release_does_not_have_are_told():
    definition = {"toolchain": dict(TOOLCHAIN, steps={
        "nccl": {}, "horovod-install": {}, "package-torch-scatter": {}, "mpi-backend": {}, "pytroch": {},
    }), "pytorch": {}, "packages": [{"name": "torch_scatter"}]}
    assert toolchain.unknown_steps(definition) == ["nccl", "horovod-install", "pytroch"]
    assert toolchain.unknown_steps({}) == []


@pytest.mark.parametrize("own, sentence", [
    ({"without": ["mkl", "pgi"]}, "'toolchain.steps.nccl.without' has 'pgi', which is none of the modules"),
    ({"modules": ["gcc"], "without": ["mkl"]}, "'toolchain.steps.nccl.without' has 'mkl'"),
    ({"module": ["gcc"]}, "Unknown key 'toolchain.steps.nccl.module'; known here: modules, without"),
    ({"modules": "gcc"}, "'toolchain.steps.nccl.modules' must be a list; an entry is a module to load"),
    ({"modules": [{"swap": ["gcc"]}]}, "'toolchain.steps.nccl.modules[0]' is {'swap': ['gcc']}; an entry is a module"),
    ({"modules": [{"swop": ["a", "b"]}]}, "'toolchain.steps.nccl.modules[0]' is {'swop': ['a', 'b']}; an entry is a"),
    ({"modules": [{"swap": ["a", "-b"]}]}, "'toolchain.steps.nccl.modules' has '-b', which is not the name of a"),
    ({"modules": ["-"]}, "'toolchain.steps.nccl.modules' has '', which is not the name of a module."),
    ({"modules": [12]}, "'toolchain.steps.nccl.modules[0]' is 12; an entry is a module to load"),
    ({"environment": ["A=1"]}, "'toolchain.steps.nccl.environment' must be a mapping"),
    ({"environment": {"A B": "1"}}, "'toolchain.steps.nccl.environment' has the key 'A B'"),
    ({"environment": {"USE_MPI": True}}, "'toolchain.steps.nccl.environment.USE_MPI' is no text; put it in quotes."),
    ({"compilers": {"CC": " "}}, "'toolchain.steps.nccl.compilers.CC' is empty; name the compiler"),
    ({"unset": ["A=1"]}, "'toolchain.steps.nccl.unset' has 'A=1', which is not the name of a variable."),
    ({"modules": ["--force"]}, "'toolchain.steps.nccl.modules' has '-force', which is not the name of a module."),
    ("gcc", "'toolchain.steps.nccl' must be a mapping"),
])
def test_what_cannot_be_used_is_named_in_one_sentence(own, sentence):
    (found,) = toolchain.problems({"toolchain": dict(TOOLCHAIN, steps={"nccl": own})})
    assert found.startswith(sentence)


def test_a_toolchain_in_order_has_no_problems():
    assert toolchain.problems({"toolchain": TOOLCHAIN}, "releases/a.yml") == []
    assert toolchain.problems({"toolchain": "gcc"}) == toolchain.problems({}) == toolchain.problems(None) == []


def test_the_file_is_named_with_what_is_wrong_in_it():
    (found,) = toolchain.problems({"toolchain": {"steps": {"A B": {}}}}, "releases/a.yml")
    assert found == "'toolchain.steps' in releases/a.yml has the key 'A B', which is not the name of a step."


def answer(variables, unset=(), loaded=()):
    return {"set": variables, "unset": list(unset), "environment": {"HOME": "/home/a", **variables},
            "loaded": list(loaded)}


def test_only_what_the_modules_set_stands_for_a_name():
    purged, loaded = answer({"PATH": "/bin"}), answer({"PATH": "/mpi/bin:/bin", "MPI_DIR": "/mpi"})
    assert toolchain.set_by_modules(purged, loaded) == {"PATH": "/mpi/bin:/bin", "MPI_DIR": "/mpi"}


def test_modules_that_a_purge_leaves_count_with_what_they_set_before():
    found = toolchain.set_by_modules(answer({}, loaded=["ncarenv/23.09"]), answer({"MPI_DIR": "/mpi"}))
    assert found == {"HOME": "/home/a", "MPI_DIR": "/mpi"}


def test_a_task_sees_what_the_modules_set_and_nothing_of_what_they_unset():
    purged = answer({"PATH": "/bin", "OLD": "1"}, unset=["NVHPC", "AGAIN"])
    loaded = answer({"PATH": "/mpi/bin:/bin", "AGAIN": "2", "BASH_FUNC_ml%%": "() { :; }"}, unset=["OLD"])
    assert toolchain.task_environment(purged, loaded) == {
        "PATH": "/mpi/bin:/bin", "AGAIN": "2", "OLD": "", "NVHPC": "",
    }


def test_to_swap_is_to_unload_one_and_to_load_the_other_in_its_place():
    definition = {"toolchain": {"modules": ["PrgEnv-cray/8.5", {"swap": ["PrgEnv-cray", "PrgEnv-gnu"]}, "-cray-libsci"],
                                "steps": {"nccl": {"modules": [{"swap": ["a", "b"]}]}}}}
    assert toolchain.problems(definition) == []
    described = toolchain.describe(definition)
    assert described["modules"] == ["PrgEnv-cray/8.5", "-PrgEnv-cray", "PrgEnv-gnu", "-cray-libsci"]
    assert toolchain.step_toolchain({"toolchain": described}, "nccl")["modules"] == ["-a", "b"]


def test_a_set_up_is_part_of_each_step_and_brings_the_module_command_with_it():
    described = toolchain.describe({"toolchain": {"setup": ". /spack/setup.sh"}}, "/init", [], "lmod")
    step = toolchain.step_toolchain({"toolchain": described}, "horovod")
    assert (step["setup"], step["module_init"], step["modules"]) == (". /spack/setup.sh", "/init", [])
    assert toolchain.step_toolchain({"toolchain": toolchain.describe({}, "/init")}, "horovod")["module_init"] == ""

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a build step takes from the context of its release, by its name."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.step_options import (
    filled_options,
    toolchain_key,
)

DEFINITION = {
    "pytorch": {"version": "2.3.1", "source": {"commit": "c"}},
    "packages": [{"name": "torch_vision"}, {"name": "pre-fetch"}, {"name": "one-wheel"}],
}
CONTEXT = {
    "records": "/soft/r/.torchstack",
    "definition": DEFINITION,
    "toolchain": {
        "modules": ["gcc/12", "cuda/12"], "environment": {"A": "all", "B": "all"}, "unset": ["CFLAGS"],
        "compilers": {"CC": "cc"}, "module_init": "/etc/modules.sh",
        "steps": {
            "horovod": {"without": ["cuda"], "environment": {"B": "own"}, "unset": ["X"], "compilers": {"CXX": "CC"}},
            "mpi4py": {"modules": []},
        },
    },
    "jobs": {"launcher": "pbs", "options": {"queue": "q", "cores": 1}, "steps": {"horovod": {"cores": 8}}},
}
PLAIN = {"state_dir": "/soft/r/.torchstack/steps", "environment": {}, "unset": [], "modules": []}


def filled(name, **given):
    options = filled_options({"name": name, **given}, CONTEXT)
    assert options.pop("name") == name
    return options


def test_a_step_that_compiles_gets_toolchain_job_and_records_by_its_name():
    assert filled("horovod") == {
        "state_dir": "/soft/r/.torchstack/steps", "modules": ["gcc/12"], "module_init": "/etc/modules.sh",
        "environment": {"A": "all", "B": "own"}, "unset": ["CFLAGS", "X"],
        "launcher": "pbs", "launcher_options": {"queue": "q", "cores": 8},
    }


def test_what_the_task_says_wins_key_by_key_and_variables_are_added():
    options = filled(
        "horovod", state_dir="/elsewhere", modules=["own/1"], module_init="module() { :; }", unset=["Y"],
        environment={"B": "task", "C": "task"}, launcher_options={"cores": 2})
    assert options == {
        "state_dir": "/elsewhere", "modules": ["own/1"], "module_init": "module() { :; }",
        "environment": {"A": "all", "B": "task", "C": "task"}, "unset": ["Y", "CFLAGS", "X"],
        "launcher": "pbs", "launcher_options": {"queue": "q", "cores": 2},
    }


def test_compilers_win_over_variables_and_those_of_the_toolchain_over_both():
    options = filled("horovod", compilers={"CC": "gcc-12", "FC": "gfortran"}, environment={"CC": "task", "FC": "task"})
    assert options["environment"] == {"A": "all", "B": "own", "CC": "cc", "FC": "gfortran", "CXX": "CC"}
    assert "compilers" not in options


def test_compilers_without_a_release_are_variables():
    options = filled_options({"name": "s", "state_dir": "/s", "compilers": {"CC": "gcc"}}, {})
    assert options["environment"] == {"CC": "gcc"}


def test_without_modules_the_module_system_is_not_touched():
    assert "module_init" not in filled("mpi4py")


def test_a_launcher_of_the_task_leaves_the_sites_jobs_out():
    options = filled("horovod", launcher="local")
    assert options["launcher"] == "local" and "launcher_options" not in options
    assert options["modules"] == ["gcc/12"]


@pytest.mark.parametrize("name", ["horovod-source", "nccl-plugin-source", "pytorch-fetch", "base", "container", "tools",
                                  "package-torch-vision-fetch"])
def test_what_fetches_or_only_installs_runs_on_the_machine_without_toolchain(name):
    assert filled(name) == PLAIN


def test_bytecode_is_compiled_in_a_job_without_toolchain():
    assert filled("bytecode") == {**PLAIN, "launcher": "pbs", "launcher_options": {"queue": "q", "cores": 1}}


@pytest.mark.parametrize(("step", "key"), [
    ("package-torch-vision", "package-torch-vision"), ("package-torch-vision-wheel", "package-torch-vision"),
    ("package-pre-fetch", "package-pre-fetch"), ("package-pre-fetch-fetch", ""),
    ("package-pre-fetch-wheel", "package-pre-fetch"), ("package-one-wheel", "package-one-wheel"),
    ("package-one-wheel-wheel", "package-one-wheel"), ("pytorch", "pytorch"), ("pytorch-install", "pytorch-install"),
    ("mpi-backend", "mpi-backend"), ("mpi-backend-source", ""), ("mpi", ""),
])
def test_the_toolchain_speaks_of_a_package_by_its_name_whatever_that_ends_in(step, key):
    assert toolchain_key(DEFINITION, step) == key


def test_pytorch_from_its_wheel_is_only_installed():
    for definition in ({"pytorch": {"version": "2.3.1"}}, {}):
        assert toolchain_key(definition, "pytorch") == ""
        assert toolchain_key(definition, "mpi-backend") == "mpi-backend"


def test_a_part_of_a_context_is_enough():
    assert filled_options({"name": "horovod", "state_dir": "/s"}, {"records": "/r"}) == {
        "name": "horovod", "state_dir": "/s", "environment": {}, "unset": [], "modules": [], "launcher": "local",
        "launcher_options": {},
    }

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""``${NAME}`` in a release file stands for what the site's modules set."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.module_variables import expand, restore

VARIABLES = {"CRAY_MPICH_DIR": "/opt/cray/pe/mpich/8.1.27", "CUDA_HOME": "/opt/cuda/12.2", "ODD": "/a/${b}"}
MODULES = {"modules": ["cray-mpich/8.1.27", "cuda/12.2.1"], "environment": {"MKL": "${CUDA_HOME}/x"}}
RELEASE = {
    "toolchain": MODULES,
    "mpi": {"prefix": "${CRAY_MPICH_DIR}"},
    "cuda": {"prefix": "${CUDA_HOME}", "libraries": ["${CUDA_HOME}/cudnn", "/opt/trt"]},
    "nccl": {"plugin": {"libfabric": "/opt/libfabric", "hwloc": ""}},
    "pytorch": {"source": {"environment": {"CUDNN": "${CUDA_HOME}/lib", "LITERAL": "$${x}"}}},
    "module": {
        "external": ["${CUDA_HOME}"], "prepend": [{"name": "PATH", "values": ["${HOME}/bin", "${CUDA_HOME}/bin"]}],
        "setenv": {"CUDA_HOME": "${CUDA_HOME}"},
    },
}


def test_places_and_build_variables_are_what_the_modules_say():
    definition, written, problems = expand(RELEASE, VARIABLES)
    assert problems == []
    assert definition["mpi"]["prefix"] == "/opt/cray/pe/mpich/8.1.27"
    assert definition["cuda"] == {"prefix": "/opt/cuda/12.2", "libraries": ["/opt/cuda/12.2/cudnn", "/opt/trt"]}
    assert definition["toolchain"]["environment"] == {"MKL": "/opt/cuda/12.2/x"}
    assert definition["pytorch"]["source"]["environment"] == {"CUDNN": "/opt/cuda/12.2/lib", "LITERAL": "${x}"}
    assert written["cuda.libraries.0"] == "${CUDA_HOME}/cudnn" and "cuda.libraries.1" not in written


def test_what_a_user_sets_stays_the_users_in_a_modulefile():
    module = expand(RELEASE, VARIABLES).definition["module"]
    assert module["prepend"][0]["values"] == ["${HOME}/bin", "/opt/cuda/12.2/bin"]
    assert module["setenv"] == {"CUDA_HOME": "${CUDA_HOME}"}


def test_the_value_of_a_module_stays_literal_in_a_modulefile():
    release = dict(RELEASE, module={"external": ["${ODD}"]}, cuda={"prefix": "${ODD}"})
    definition = expand(release, VARIABLES).definition
    assert definition["module"]["external"] == ["/a/$${b}"] and definition["cuda"]["prefix"] == "/a/${b}"


def test_the_release_file_itself_is_left_alone_and_comes_back():
    before = copy.deepcopy(RELEASE)
    definition, written, _problems = expand(RELEASE, VARIABLES)
    assert before == RELEASE
    assert restore(definition, written) == RELEASE


@pytest.mark.parametrize("release, sentence", [
    ({"toolchain": MODULES, "mpi": {"prefix": "${MPI_DIR}"}},
     "'mpi.prefix' in a.yml has ${MPI_DIR}, which none of the modules of toolchain sets (cray-mpich/8.1.27 "
     "cuda/12.2.1);"),
    ({"mpi": {"prefix": "${MPI_DIR}"}}, "'mpi.prefix' in a.yml has ${MPI_DIR}, and toolchain.modules names no module"),
    ({"toolchain": MODULES, "cuda": {"prefix": "${"}}, "'cuda.prefix' in a.yml is not understood"),
    ({"toolchain": MODULES, "module": {"external": ["${NOBODY}/x"]}}, "'module.external.0' in a.yml has ${NOBODY}"),
])
def test_a_name_that_nobody_sets_is_told_in_one_sentence(release, sentence):
    (found,) = expand(release, VARIABLES, "a.yml").problems
    assert found.startswith(sentence)


def test_without_modules_build_variables_are_literal():
    release = {"mpi4py": {"environment": {"CFLAGS": "${x} $${y}"}}, "mpi": {"prefix": ""}}
    assert expand(release, {}) == (release, {}, [])

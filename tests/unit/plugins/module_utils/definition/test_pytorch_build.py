# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How PyTorch is built from its source."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import pytorch_build
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.pytorch_build import (
    describe_build,
    wheel_name,
)

BASE = {
    "prefix": "/r/base", "tag": "cp312", "platform": "linux_x86_64", "environment": {"PYTHONPATH": "/r/base/site"}}
TOOLCHAIN = {"modules": ["gcc/12"], "environment": {"USE_MKLDNN": "0", "BLAS": "Eigen"}, "compilers": {"CXX": "CC"}}
CUDA = {"version": "12.2", "prefix": "/cuda", "architectures": ["8.0", "9.0"]}
NCCL = {"version": "2.18.3"}
PREFIX = "/r/nccl"


def build(source=None, given=None, **components):
    pytorch = {"version": "2.3.1", "source": {"commit": "c", **(source or {})}}
    components = {"cuda": CUDA, "nccl": NCCL, **components}
    return describe_build(
        pytorch, given or {}, BASE, TOOLCHAIN, {"CC": "gcc-12"}, components["cuda"], components["nccl"], PREFIX)


def test_variables_come_from_toolchain_release_file_base_and_the_build_itself_in_this_order():
    environment = build(given={"USE_MKLDNN": "1", "BLAS": "MKL", "PYTHONPATH": "/lost"})["environment"]
    assert environment == {
        "USE_MKLDNN": "1", "BLAS": "MKL", "PYTHONPATH": "/r/base/site", "USE_MPI": "1", "USE_CUDA": "1",
        "PYTORCH_BUILD_VERSION": "2.3.1", "PYTORCH_BUILD_NUMBER": "1", "CC": "gcc-12", "CXX": "CC",
        "CUDA_HOME": "/cuda", "CUDA_PATH": "/cuda", "CUDACXX": "/cuda/bin/nvcc", "TORCH_CUDA_ARCH_LIST": "8.0;9.0",
        "USE_NCCL": "1", "USE_SYSTEM_NCCL": "1", "NCCL_ROOT": PREFIX, "NCCL_INCLUDE_DIR": PREFIX + "/include",
        "NCCL_LIB_DIR": PREFIX + "/lib", "CMAKE_PREFIX_PATH": "/r/base",
    }


def test_the_base_is_found_before_what_a_site_adds():
    environment = build(given={"CMAKE_PREFIX_PATH": "/mkl:/x"})["environment"]
    assert environment["CMAKE_PREFIX_PATH"] == "/r/base;/mkl;/x"


def test_without_cuda_the_build_is_one_for_cpus():
    found = build(cuda={}, nccl={})
    assert found["environment"]["USE_CUDA"] == "0"
    assert not {"CUDA_HOME", "USE_NCCL", "NCCL_ROOT"} & set(found["environment"])
    assert found["expected_tree"]["below"] == {}
    assert found["expected_installed"] | {"version": "", "config": {}} == {
        "version": "", "config": {}, "mpi": True, "gloo": True, "numpy": True, "no_deps": False,
        "nccl": "", "cuda": "", "architectures": []}


def test_what_follows_from_the_rest_of_the_release_file_is_refused():
    given = {
        "CC": "icc", "BLAS": "MKL", "PYTHONPATH": "/x", "MAX_JOBS": "4", "CMAKE_INSTALL_PREFIX": "/y", "USE_NCCL": "0"}
    assert build(given=given)["refused"] == ["CC", "CMAKE_INSTALL_PREFIX", "MAX_JOBS", "PYTHONPATH", "USE_NCCL"]
    assert build(given={"BLAS": "MKL"}, cuda={}, nccl={})["refused"] == []
    assert build(given={"NCCL_ROOT": "/z"}, nccl={})["refused"] == []


@pytest.mark.parametrize(("source", "version", "wheel"), [
    ({}, "2.3.1", "2.3.1"), ({"local_version": "Cray-1_x"}, "2.3.1+Cray-1_x", "2.3.1+cray.1.x"),
    ({"local_version": "", "build_number": 3}, "2.3.1.post3", "2.3.1.post3"),
])
def test_version_and_number_of_the_build_are_in_what_torch_reports_and_in_the_wheels_name(source, version, wheel):
    found = build(source)
    assert found["expected_tree"]["version"] == found["expected_installed"]["version"] == version
    assert found["wheel"] == "torch-%s-cp312-cp312-linux_x86_64.whl" % wheel
    assert found["number"] == source.get("build_number", 1)
    assert wheel_name("1.0", "a", "b") == "torch-1.0-a-a-b.whl"


def test_each_switch_and_place_that_was_asked_for_has_to_arrive():
    expect = {"cache": {"USE_MKLDNN": "*"}, "config": {"USE_CUDNN": "ON"}}
    found = build({"expect": expect}, {"BLAS": "MKL", "BUILD_TEST": "0", "USE_CUDNN": "1"})
    assert found["expected_tree"] == {
        "version": "2.3.1",
        "cache": {"USE_MKLDNN": "*", "BUILD_TEST": "0", "USE_CUDNN": "1", "USE_MPI": "1", "USE_CUDA": "1",
                  "USE_NCCL": "1", "USE_SYSTEM_NCCL": "1"},
        "config": found["expected_installed"]["config"],
        "below": {"NCCL_INCLUDE_DIRS": PREFIX, "NCCL_LIBRARIES": PREFIX},
        "compilers": {"CC": "gcc-12", "CXX": "CC"},
    }
    assert found["expected_installed"] == {
        "version": "2.3.1",
        "config": {"USE_CUDNN": "ON", "USE_MPI": "1", "USE_CUDA": "1", "USE_NCCL": "1", "BLAS_INFO": "mkl"},
        "mpi": True, "gloo": True, "numpy": True, "no_deps": False,
        "nccl": "2.18.3", "cuda": "12.2", "architectures": ["8.0", "9.0"],
    }


@pytest.mark.parametrize(("given", "gloo", "numpy"), [
    ({}, True, True), ({"USE_GLOO": "0"}, False, True), ({"USE_DISTRIBUTED": "OFF"}, False, True),
    ({"USE_NUMPY": "0", "USE_GLOO": "1"}, True, False),
])
def test_gloo_and_numpy_have_to_be_there_unless_they_are_switched_off(given, gloo, numpy):
    found = build(given=given)["expected_installed"]
    assert (found["gloo"], found["numpy"]) == (gloo, numpy)


def test_a_step_says_which_modules_it_loads():
    assert build()["modules"] == ["gcc/12"]


@pytest.mark.parametrize(("source", "says"), [
    ({"environment": {"USE_MPI": "0", "MAX_JOBS": 4}},
     "'pytorch.source.environment' in a.yml has MAX_JOBS, USE_MPI, which follow from the rest of the release file: "),
    ({"environment": {"PYTHONPATH": "/x"}}, "has PYTHONPATH, which follow from"),
    ({"build_number": 0}, "'pytorch.source.build_number' in a.yml is 0. PyTorch counts builds from 1;"),
])
def test_what_no_release_file_sets_is_one_sentence(source, says):
    (found,) = pytorch_build.problems({"pytorch": {"version": "2.6.0", "source": source}}, "a.yml")
    assert says in found


@pytest.mark.parametrize("definition", [
    {"pytorch": {"version": "2.6.0", "source": {"environment": {"USE_CUDNN": "0", "NCCL_ROOT": "/x"}}}},
    {"pytorch": {"source": {"environment": [], "build_number": "x"}}}, {"pytorch": {"lock": "x"}}, {"pytorch": 1}, None,
])
def test_what_a_release_file_may_set_is_no_problem(definition):
    assert pytorch_build.problems(definition) == []

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is read of a build of PyTorch, and what is said of it; see test_pytorch_source.py for the builds."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest

FILES = pathlib.Path(__file__).parents[2] / "roles" / "pytorch" / "files"
CONFIG = """PyTorch built with:
  - GCC 12.2
  - C++ Version: 201703
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release, CXX_FLAGS= -DABI=1 -Wall, -O2, USE_MPI=ON, USE_NCCL=1, \
"""
ANSWERS = {
    "version": "2.3.1", "distribution": "2.3.1", "config": CONFIG, "mpi": True, "gloo": True, "numpy": True,
    "nccl": [2, 18, 3], "cuda": "11.8", "architectures": ["sm_80", "compute_90", "sm_90"],
}
EXPECTED = {
    "version": "2.3.1", "config": {"USE_MPI": "1", "BLAS_INFO": "mkl"}, "mpi": True, "gloo": True, "numpy": True,
    "nccl": "2.18.3", "cuda": "11.8.0", "architectures": ["8.0", "9.0+PTX"],
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, FILES / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.modules["judge_build"] = judge = load("judge_build")
sys.modules["judge_requirements"] = load("judge_requirements")
judge_installed = load("judge_installed")


def test_the_cache_is_read_as_cmake_writes_it():
    text = '# a comment\n//Use NCCL\nUSE_NCCL:BOOL=ON\nA_DIR:PATH=/a:b=c\n"B:C":STRING=x\nEMPTY:STRING=\n'
    assert judge.parse_cache(text) == {"USE_NCCL": "ON", "A_DIR": "/a:b=c", "EMPTY": ""}


def test_a_switch_that_another_one_excludes_is_off_whatever_was_given():
    found = judge.parse_cache("USE_NCCL:INTERNAL=1\nMPI_RESULT:INTERNAL=TRUE\n")
    assert found == {"USE_NCCL": "OFF", "MPI_RESULT": "TRUE"}


def test_what_torch_is_going_to_report_is_read_from_the_header_that_has_it():
    text = '#define CAFFE2_BUILD_STRINGS { \\\n  {"BLAS_INFO", "open"}, \\\n  {"CXX_FLAGS", " -DA=\\"b\\""}, \\\n}\n'
    assert judge.parse_settings(text) == {"BLAS_INFO": "open", "CXX_FLAGS": ' -DA=\\"b\\"'}
    assert judge.parse_settings("") == {}


def test_settings_are_read_from_the_line_that_lists_them():
    found = judge_installed.parse_config(CONFIG)
    assert found == {
        "BLAS_INFO": "mkl", "BUILD_TYPE": "Release", "CXX_FLAGS": " -DABI=1 -Wall, -O2", "USE_MPI": "ON",
        "USE_NCCL": "1",
    }
    assert judge_installed.parse_config("nothing of that kind") == {}


@pytest.mark.parametrize(
    ("found", "wanted", "alike"),
    [
        ("ON", "1", True), ("OFF", "0", True), ("OFF", "1", False), ("", "OFF", True), ("NCCL-NOTFOUND", "ON", False),
        ("MKL", "MKL", True), ("Eigen", "MKL", False), ("/a/lib/libmkl.so", "*/libmkl*", True), ("ON", "MKL", False),
    ],
)
def test_values_are_compared_as_cmake_takes_them(found, wanted, alike):
    assert judge.same(found, wanted) is alike


def test_a_star_waives_a_value():
    assert judge.value_findings({"USE_X": "OFF"}, {"USE_X": "*", "USE_Y": "*"}, "the cache") == []


def test_a_value_that_cmake_never_heard_of_did_not_arrive():
    (said,) = judge.value_findings({}, {"USE_CUSPARSELT": "1"}, "build/CMakeCache.txt")
    assert said.startswith("USE_CUSPARSELT=1 was asked for, and build/CMakeCache.txt has nothing of that name. Look ")


def test_a_value_that_is_empty_is_said_to_be():
    (said,) = judge.value_findings({"LAPACK_INFO": ""}, {"LAPACK_INFO": "open"}, "the header")
    assert said.startswith("LAPACK_INFO=open was asked for, and the header has LAPACK_INFO=(nothing). CMake could ")


def test_s05_a_compiler_whose_links_were_followed_is_another_program():
    used = {"CMAKE_C_COMPILER": "/opt/gcc/bin/redirect", "CMAKE_CXX_COMPILER": "/opt/cray/bin/CC"}
    (said,) = judge.compiler_findings(used, {"CC": "cc", "CXX": "CC -shared"}, "the cache")
    assert said.startswith("CC=cc was given, and the cache has CMAKE_C_COMPILER=/opt/gcc/bin/redirect. Give it as ")


def test_a_submodule_at_another_commit_or_a_new_one_is_a_download():
    before = " 11 third_party/a (v1)\n-22 third_party/b\n"
    assert judge.submodule_findings(before, before) == []
    (said,) = judge.submodule_findings(before, " 11 third_party/a (v1)\n 22 third_party/b (v2)\n 33 third_party/b/c\n")
    assert "the submodules third_party/b, third_party/b/c" in said


@pytest.mark.parametrize(
    ("found", "wanted", "alike"),
    [
        ("2.3.1", "2.3.1", True), ("2.3.1+mysite.gcc.12.2.0", "2.3.1+mysite-gcc-12.2.0", True),
        ("2.3.1.post2", "2.3.1", False), ("2.3.0a0+git63d5e92", "2.3.1", False), (None, "2.3.1", False),
    ],
)
def test_s06_versions_are_compared_as_the_names_of_wheels_have_them(found, wanted, alike):
    assert (judge.version_finding(found, wanted, "the wheel") == []) is alike


def test_s06_one_wheel_of_the_version_has_to_be_made():
    assert judge.wheel_findings("2.3.1", ["torch-2.3.1-cp312-cp312-linux_x86_64.whl"]) == []
    (said,) = judge.wheel_findings("2.3.1", ["torch-2.3.0a0+git63d5e92-cp312-cp312-linux_x86_64.whl"])
    assert said.startswith("PyTorch 2.3.1 was asked for, and the wheel torch-2.3.0a0+git63d5e92-")
    for wheels, made in (([], "no wheel"), (["torch-1-a.whl", "torch-2-a.whl"], "torch-1-a.whl, torch-2-a.whl")):
        assert judge.wheel_findings("1", wheels) == ["setup.py made %s. One wheel was expected." % made]


def test_a_build_without_fault_has_no_findings():
    assert judge_installed.installed_findings(EXPECTED, ANSWERS) == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"mpi": False}, "torch.distributed.is_mpi_available() is false. CMake found no MPI"),
        ({"gloo": False}, "torch.distributed.is_gloo_available() is false. See 'Gloo' in the step's log"),
        ({"numpy": False}, "torch takes no array of NumPy, since it was built without. Put numpy into locks.base"),
        ({"numpy": None}, "The release has no NumPy. Put numpy into locks.base"),
        ({"nccl": [2, 14, 3]}, "NCCL 2.18.3 was asked for, and torch.cuda.nccl.version() says 2.14.3."),
        ({"nccl": None}, "torch.cuda.nccl.version() says that there is none."),
        ({"architectures": ["sm_80"]}, "for compute_90, sm_80, sm_90 was asked for, and torch has that for sm_80."),
        ({"architectures": []}, "and torch has that for none."),
        ({"cuda": None}, "CUDA 11.8.0 was asked for, and torch.version.cuda says None."),
        ({"cuda": "12.2"}, "torch.version.cuda says 12.2."),
        ({"distribution": "2.3.0a0+git63d5e9"}, "and the installed distribution says 2.3.0a0+git63d5e9. Both PYTORCH_"),
        ({"config": CONFIG.replace("USE_MPI=ON", "USE_MPI=OFF")}, "torch.__config__.show() has USE_MPI=OFF."),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_one_sentence(answer, sentence):
    (said,) = judge_installed.installed_findings(EXPECTED, {**ANSWERS, **answer})
    assert sentence in said

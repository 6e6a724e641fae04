# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is judged of PyTorch's wheel; tests/modules/test_pytorch_preflight.py looks for one."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.requirements import Choice, Need
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.wheel_tags import Interpreter
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import pytorch_offer
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight.nccl_find import Place
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight.pytorch_offer import CPU, CUDA, UNKNOWN, Offer

PYTHON = Interpreter("3.14.8", "cpython", "cp314", "linux_aarch64", "2.42")
DEFINITION = {"pytorch": {"version": "2.13.0"}}
WHEEL = "torch-2.13.0-cp314-cp314-manylinux_2_28_aarch64.whl"


def offer(build, **changed):
    return Offer(build, WHEEL, "https://index.example/" + WHEEL, 20, 5 << 30, False, ())._replace(**changed)


def judged(found, definition=None, interpreter=PYTHON, pythons=(), unreachable=()):
    (finding,) = pytorch_offer.judge(found, definition or DEFINITION, interpreter, pythons, unreachable)
    return finding


@pytest.mark.parametrize(("build", "says"), [
    (CPU, "PyTorch 2.13.0 is a CPU build: %s with 19 wheels that it needs, 5 GiB, from index.example." % WHEEL),
    (CUDA, "is a CUDA build"),
    (UNKNOWN, "the kind: %s with 19 wheels that it needs if it is a CUDA build, at most 5 GiB, from" % WHEEL),
])
def test_the_build_its_size_and_its_place_are_told(build, says):
    finding = judged(offer(build))
    assert finding.ok and says in finding.message
    assert ("built without GPUs" in finding.message) is (build == CUDA)


def test_a_size_that_no_index_tells_is_not_made_up():
    assert judged(offer(CPU, bytes=-1, files=1)).message == (
        "PyTorch 2.13.0 is a CPU build: %s, from index.example." % WHEEL)


def test_a_release_for_gpus_is_not_said_to_be_without_them():
    assert "without GPUs" not in judged(offer(CUDA), {**DEFINITION, "cuda": {"version": "13.0"}}).message


def test_a_python_without_the_global_lock_is_refused():
    finding = judged(offer(CUDA), interpreter=PYTHON._replace(abi_tag="cp314t"))
    assert finding.severity == "error" and "cp314t" in finding.message


def test_an_interpreter_without_a_wheel_is_an_error_that_names_those_with_one():
    finding = judged(pytorch_offer.NOTHING, pythons=["3.11", "3.12"])
    assert finding.severity == "error" and "There are wheels for Python 3.11, 3.12." in finding.message
    assert finding.remedy.startswith("Install one of these")
    remedy = judged(pytorch_offer.NOTHING).remedy
    assert remedy.startswith("Name the place that has it as pytorch.index (for a CPU build: pytorch.cpu), or correct")


def test_pythons_older_than_the_release_admits_are_not_proposed():
    need = Need("file", "torch", "2.13.0", "pytorch.lock")
    tags = ("310-cp310", "312-cp312", "314-cp314t", "39-abi3")
    files = ["torch-2.13.0-cp%s-manylinux_2_28_x86_64.whl" % tag for tag in tags]
    files += ["torch-2.12.0-cp313-cp313-manylinux_2_28_x86_64.whl", "torch-2.13.0-cp311-none-macosx_11_0_arm64.whl"]
    choice = Choice(None, (need,), ())
    assert pytorch_offer.fitting_pythons(choice, files, "3.11") == ["3.12"]
    assert pytorch_offer.fitting_pythons(choice, files, "3.0") == ["3.10", "3.12"]


@pytest.mark.parametrize(("place", "complaint", "says"), [
    (Place("/usr/local/cuda", "", ""), "", "There is no CUDA toolkit in /usr/local/cuda"),
    (Place("/usr/local/cuda", "12.4", "/usr/local/cuda/lib64"), "", "is CUDA 12.4, and the release asks for 13.0"),
    (Place("/usr/local/cuda", "13.0", "/usr/local/cuda/lib64"), "fatal error: crt/host_config.h", "crt/host_config.h"),
])
def test_a_toolkit_that_does_not_fit_is_one_sentence_with_what_to_install(place, complaint, says):
    wanted = {"version": "13.0", "prefix": "/usr/local/cuda", "architectures": ["9.0"]}
    (finding,) = pytorch_offer.judge_toolkit(wanted, place, complaint)
    assert finding.severity == "error" and says in finding.message and "nstall" in finding.remedy

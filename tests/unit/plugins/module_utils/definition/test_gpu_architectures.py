# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute capabilities as options of NVIDIA's compiler."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import gpu_architectures


def test_an_architecture_becomes_code_for_it_and_ptx_where_that_is_asked_for():
    assert gpu_architectures.gencode(["8.0", "9.0a", "10.0+PTX"]) == (
        "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a "
        "-gencode=arch=compute_100,code=sm_100 -gencode=arch=compute_100,code=compute_100")
    with pytest.raises(StackError, match=r"'sm_80' under cuda\.architectures is no compute capability"):
        gpu_architectures.gencode(["sm_80"])


@pytest.mark.parametrize("model, capability", [
    ("*A100*", "8.0"), ("NVIDIA A100-SXM4-80GB", "8.0"), ("*l40s*", "8.9"), ("NVIDIA GH200 480GB", "9.0"),
    ("*A10*", "8.6"), ("*MI250X*", ""), ("", ""),
])
def test_the_capability_of_a_model_is_known_by_its_name(model, capability):
    assert gpu_architectures.capability_of(model) == capability


@pytest.mark.parametrize("architectures, capability, covered", [
    (["8.0"], "8.0", True), (["8.0"], "8.9", True), (["8.9"], "8.0", False), (["8.0"], "9.0", False),
    (["8.0+PTX"], "9.0", True), (["9.0+PTX"], "8.0", False), (["9.0a"], "9.0", True), (["10.0a"], "10.3", False),
    (["10.0f"], "10.3", True), (["10.0f+PTX"], "12.0", False), (["7.0", "9.0"], "9.0", True), (["native"], "9.0", True),
])
def test_code_runs_on_later_gpus_of_its_generation_and_ptx_on_all_later_ones(architectures, capability, covered):
    assert gpu_architectures.covers(architectures, capability) is covered

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

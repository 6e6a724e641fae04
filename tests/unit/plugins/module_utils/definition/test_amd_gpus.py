# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What asks for GPUs of AMD is refused, and never passed over."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import amd_gpus


@pytest.mark.parametrize(("variable", "value"), [
    ("USE_ROCM", "1"), ("USE_ROCM", "ON"), ("PYTORCH_ROCM_ARCH", "gfx90a"), ("HOROVOD_GPU", "ROCM"),
    ("HOROVOD_GPU_OPERATIONS", "RCCL"), ("HOROVOD_ROCM_HOME", "/opt/rocm"), ("HOROVOD_RCCL_HOME", "/opt/rocm"),
    ("ROCM_PATH", "/opt/rocm"), ("HIP_PATH", "/opt/rocm/hip"), ("USE_RCCL", "1"), ("HIPCC_COMPILE_FLAGS_APPEND", "-O2"),
])
@pytest.mark.parametrize("path", [
    "toolchain.environment", "toolchain.steps.pytorch.environment", "pytorch.source.environment", "horovod.environment",
    "mpi4py.environment", "nccl.plugin.environment",
])
def test_a_variable_for_rocm_is_refused_wherever_a_build_gets_it(path, variable, value):
    content = {variable: value}
    for key in reversed(path.split(".")):
        content = {key: content}
    assert amd_gpus.problems(content, "1.yml") == [
        "'%s' in 1.yml has %s: nothing is built for GPUs of AMD here, and releases for ROCm are containers (base.kind: "
        "container); remove it." % (path, variable)]


def test_a_package_s_variables_are_looked_at_as_well():
    content = {"packages": [{"name": "apex", "environment": {"PYTORCH_ROCM_ARCH": "gfx90a", "ROCM_HOME": "/opt/rocm"}}]}
    (sentence,) = amd_gpus.problems(content)
    assert sentence.startswith("'packages[0].environment' has PYTORCH_ROCM_ARCH, ROCM_HOME: ")


@pytest.mark.parametrize("variables", [
    {"USE_ROCM": "0"}, {"USE_ROCM": "OFF"}, {"HOROVOD_GPU": "CUDA"}, {"HOROVOD_GPU_OPERATIONS": "NCCL"},
    {"USE_NCCL": "1"}, {"CXXFLAGS": "-O2"}, {"SHIPPED_ROCM": "1"},
])
def test_other_variables_and_rocm_that_is_off_are_nobody_s_matter(variables):
    assert amd_gpus.problems({"pytorch": {"source": {"environment": variables}}}) == []


@pytest.mark.parametrize(("key", "value"), [
    ("version", "2.9.0+rocm6.4"), ("lock", "torch==2.9.0+rocm6.4 --hash=sha256:0"),
    ("index", "https://example.org/whl/rocm6.4"),
])
def test_a_wheel_for_rocm_is_refused(key, value):
    (sentence,) = amd_gpus.problems({"pytorch": {key: value}})
    assert sentence.startswith("'pytorch.%s' is of a build for ROCm: " % key)


def test_a_container_and_the_run_time_have_what_they_need_of_rocm():
    assert amd_gpus.problems({"base": {"kind": "container"}, "pytorch": {"version": "2.2.0+rocm5.6"}}) == []
    assert amd_gpus.problems({"runtime": {"environment": {"HIP_VISIBLE_DEVICES": "0"}}, "module": {"setenv": {}}}) == []


def test_cuda_is_refused_where_the_site_s_gpus_are_of_amd():
    amd = {"lscpu": "", "gpus": "GPU[0]\t\t: (Topology) Numa Node: 3\n"}
    nvidia = {"lscpu": "", "gpus": "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\n"}
    (sentence,) = amd_gpus.site_problems({"cuda": {}}, amd, "mysite")
    assert "of site mysite has GPUs of AMD" in sentence and "containers" in sentence
    assert not amd_gpus.site_problems({"cuda": {}}, nvidia, "s") + amd_gpus.site_problems({"cuda": {}}, {}, "s")
    assert not amd_gpus.site_problems({"pytorch": {}}, amd, "s")

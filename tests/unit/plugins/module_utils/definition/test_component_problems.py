# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What contradicts itself between the components of a release; also the tests of component_checks."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import component_problems

WHEEL = {"version": "2.6.0", "lock": "torch==2.6.0", "cpu": {}, "cuda_lock": ""}
INDEXED = {"version": "2.6.0", "lock": "torch==2.6.0+cu124", "index": "https://example.org/cu124", "cuda_lock": ""}
SOURCE = {"version": "2.6.0", "source": {"repository": "https://example.org/p"}}
COMPILED = {"version": "2.21.5", "repository": "https://example.org/n", "tag": "v2.21.5-1", "commit": "0" * 40}
TOOLKIT = {"version": "13.0", "prefix": "/soft/cuda", "architectures": ["8.0"]}
OF_THE_WHEEL = {"version": "2.21.5", "wheel": True, "plugin": {"version": "1.6.0"}}
CONTAINER = {"base": {"kind": "container"}, "pytorch": {"version": "2.2.0"}}
OF_THE_IMAGE = ("toolchain", "cuda", "mpi", "nccl", "mpi4py", "horovod", "packages", "locks")


@pytest.mark.parametrize("definition, sentence", [
    ({"pytorch": {"version": "1"}}, "'pytorch' in a.yml has neither lock nor source;"),
    ({"pytorch": dict(WHEEL, **SOURCE)}, "'pytorch' in a.yml has both lock and source;"),
    ({"pytorch": dict(SOURCE, cpu={})}, "'pytorch.cpu' in a.yml means nothing to a build from source; remove it."),
    ({"pytorch": {"lock": "x", "cpu": {}}}, "'pytorch' in a.yml has a lock and no cuda_lock; add it, the CUDA"),
    ({"pytorch": dict(INDEXED, cpu={})}, "'pytorch' in a.yml has both index and cpu;"),
    ({"pytorch": dict(SOURCE, index="https://example.org")}, "'pytorch.index' in a.yml means nothing to a build from"),
    ({"horovod": {"nccl": "wheel"}}, "'horovod.nccl' in a.yml means nothing without cuda;"),
    ({"horovod": {"driver_stub": True}}, "'horovod.driver_stub' in a.yml means nothing without cuda;"),
    ({"horovod": {"environment": {"HOROVOD_GPU_OPERATIONS": "NCCL"}}},
     "'horovod.environment' in a.yml has HOROVOD_GPU_OPERATIONS, which means nothing without cuda;"),
    ({"pytorch": WHEEL, "cuda": {}}, "'pytorch.cpu' in a.yml means nothing to a release for GPUs;"),
    ({"horovod": {"nccl": "release"}, "cuda": {}}, "'horovod.nccl' in a.yml asks for the release's own NCCL"),
    ({"horovod": {"nccl": "wheel"}, "cuda": {}, "nccl": {}}, "'horovod.nccl' in a.yml asks for the NCCL of PyTorch's"),
    ({"horovod": {"nccl": "wheel", "environment": {"HOROVOD_NCCL_HOME": "/nvhpc/nccl"}}, "cuda": {}},
     "'horovod.environment' in a.yml has HOROVOD_NCCL_HOME; that follows"),
    ({"mpi": {"allow_path": False}}, "'mpi' in a.yml names no MPI:"),
    ({"nccl": {}}, "'nccl' in a.yml is there without cuda;"),
    ({"nccl": dict(COMPILED, cuda=TOOLKIT), "cuda": {}}, "'nccl.cuda' in a.yml is there beside cuda, and a release"),
    ({"nccl": dict(OF_THE_WHEEL, cuda=TOOLKIT)},
     "'nccl.wheel' in a.yml takes NCCL as it is in its wheel, and cuda only means something to one that is compiled;"),
    ({"pytorch": SOURCE, "cuda": {}}, "'pytorch.source' in a.yml has cuda and no nccl, so that any NCCL"),
    ({"nccl": dict(COMPILED, tests={"mpi": True}), "cuda": {}, "mpi": {"lock": "mpich==4.3.2"}},
     "'nccl.tests.mpi' in a.yml"),
    ({"nccl": {"version": "2.21.5", "tag": "v2.21.5-1"}, "cuda": {}},
     "'nccl' in a.yml has no repository and no commit; add them, or say wheel: true for the NCCL that PyTorch's"),
    ({"nccl": dict(OF_THE_WHEEL, tag="v2.21.5-1", tests={"mpi": False}), "cuda": {}},
     "'nccl.wheel' in a.yml takes NCCL as it is in its wheel, and tag, tests only mean something to one that is "
     "compiled; remove them."),
    ({"nccl": {"version": "2.21.5", "wheel": True}, "cuda": {}},
     "'nccl' in a.yml takes the NCCL of PyTorch's wheel and names no plugin to compile; add plugin, or remove nccl."),
    ({"pytorch": SOURCE, "nccl": OF_THE_WHEEL, "cuda": {}},
     "'nccl.wheel' in a.yml asks for the NCCL of PyTorch's wheel, and pytorch is built from source;"),
    ({"nccl": OF_THE_WHEEL, "horovod": {"nccl": "release"}, "cuda": {}},
     "'horovod.nccl' in a.yml asks for the release's own NCCL, and nccl takes that of PyTorch's wheel; say wheel."),
])
def test_what_contradicts_itself_is_named_in_one_sentence(definition, sentence):
    (found,) = component_problems.problems(definition, "a.yml")
    assert found.startswith(sentence)


def test_a_release_with_pytorch_s_cpu_build_may_have_an_nccl_with_a_toolkit_of_its_own():
    assert not component_problems.problems({"pytorch": WHEEL, "nccl": dict(COMPILED, cuda=TOOLKIT)}, "a.yml")


@pytest.mark.parametrize(("name", "value"), [
    ("HOROVOD_WITH_TENSORFLOW", "0"), ("HOROVOD_WITH_PYTORCH", "ON"), ("HOROVOD_WITHOUT_MXNET", "true"),
    ("HOROVOD_WITHOUT_GLOO", ""), ("HOROVOD_WITH_MPI", 1),
])
def test_s26_what_horovod_would_ignore_is_refused_with_the_form_that_works(name, value):
    given = {name: value, "HOROVOD_GPU": "CUDA"}
    (found,) = component_problems.problems({"horovod": {"environment": given}, "cuda": {}}, "")
    assert "has %s, and Horovod ignores every value but \"1\" there" % name in found
    assert 'set HOROVOD_WITHOUT_<PART> to "1"' in found
    assert component_problems.problems({"horovod": {"environment": {name: "1"}}}, "") == []


@pytest.mark.parametrize("definition", [
    {"pytorch": WHEEL, "mpi": {"allow_path": False, "lock": "mpich==4.3.2"}},
    {"pytorch": SOURCE, "mpi": {"prefix": "/opt/mpich", "allow_path": False}, "nccl": {}, "cuda": {}},
    {"pytorch": SOURCE, "mpi": {"cc": "cc", "allow_path": False}}, {"pytorch": SOURCE, "mpi": {}},
    {"pytorch": {key: value for key, value in WHEEL.items() if key != "cpu"}, "cuda": {}},
    {"pytorch": {key: value for key, value in WHEEL.items() if key != "cpu"}},
    {"pytorch": INDEXED, "mpi": {}, "cuda": {}, "horovod": {"nccl": "wheel", "driver_stub": True}},
    {"pytorch": INDEXED, "mpi": {}, "cuda": {}, "nccl": OF_THE_WHEEL},
    {"pytorch": INDEXED, "mpi": {}, "cuda": {}, "nccl": OF_THE_WHEEL, "horovod": {"nccl": "wheel"}},
    {"pytorch": "2.6.0"}, None,
])
def test_what_is_whole_has_no_problems(definition):
    assert component_problems.problems(definition) == []


@pytest.mark.parametrize("key", OF_THE_IMAGE)
def test_what_an_image_has_is_no_part_of_a_release_that_is_a_container(key):
    (found,) = component_problems.problems(dict(CONTAINER, **{key: {}}), "a.yml")
    assert found.startswith("'%s' in a.yml means nothing to a container" % key)


@pytest.mark.parametrize("key", ["lock", "source", "cpu", "cuda_lock", "mpi_backend"])
def test_the_pytorch_of_a_container_only_has_a_version(key):
    (found,) = component_problems.problems({**CONTAINER, "pytorch": {"version": "2.2.0", key: {}}}, "a.yml")
    assert found.startswith("'pytorch.%s' in a.yml means nothing to a container" % key)


@pytest.mark.parametrize("kind", ["conda", "python_overlay"])
def test_a_release_that_is_no_container_needs_an_mpi_and_locks(kind):
    found = component_problems.problems({"base": {"kind": kind}, "pytorch": WHEEL}, "a.yml")
    assert [sentence.partition(";")[0] for sentence in found] == [
        "'mpi' is missing in a.yml", "'locks' is missing in a.yml",
    ]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What contradicts itself between the components of a release, and what follows from which of them are there."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils import components

WHEEL = {"version": "2.6.0", "lock": "torch==2.6.0", "cpu": {}, "cuda_lock": ""}
INDEXED = {"version": "2.6.0", "lock": "torch==2.6.0+cu124", "index": "https://example.org/cu124", "cuda_lock": ""}
SOURCE = {"version": "2.6.0", "source": {"repository": "https://example.org/p"}}


@pytest.mark.parametrize("definition, sentence", [
    ({"pytorch": {"version": "1"}}, "'pytorch' in a.yml has neither lock nor source;"),
    ({"pytorch": dict(WHEEL, **SOURCE)}, "'pytorch' in a.yml has both lock and source;"),
    ({"pytorch": dict(SOURCE, cpu={})}, "'pytorch.cpu' in a.yml means nothing to a build from source; remove it."),
    ({"pytorch": {"lock": "x", "cpu": {}}}, "'pytorch' in a.yml has a lock and no cuda_lock; add it."),
    ({"pytorch": dict(INDEXED, cpu={})}, "'pytorch' in a.yml has both index and cpu;"),
    ({"pytorch": dict(SOURCE, index="https://example.org")}, "'pytorch.index' in a.yml means nothing to a build from"),
    ({"horovod": {"nccl": "wheel"}}, "'horovod.nccl' in a.yml means nothing without cuda;"),
    ({"horovod": {"driver_stub": True}}, "'horovod.driver_stub' in a.yml means nothing without cuda;"),
    ({"horovod": {"nccl": "release"}, "cuda": {}}, "'horovod.nccl' in a.yml asks for the release's own NCCL"),
    ({"horovod": {"nccl": "wheel"}, "cuda": {}, "nccl": {}}, "'horovod.nccl' in a.yml asks for the NCCL of PyTorch's"),
    ({"horovod": {"nccl": "wheel", "environment": {"HOROVOD_NCCL_HOME": "/nvhpc/nccl"}}, "cuda": {}},
     "'horovod.environment' in a.yml has HOROVOD_NCCL_HOME; that follows"),
    ({"mpi": {"allow_path": False}}, "'mpi' in a.yml names no MPI:"),
    ({"nccl": {}}, "'nccl' in a.yml is there without cuda;"),
    ({"pytorch": SOURCE, "cuda": {}}, "'pytorch.source' in a.yml has cuda and no nccl, so that any NCCL"),
    ({"nccl": {"tests": {"mpi": True}}, "cuda": {}, "mpi": {"lock": "mpich==4.3.2"}}, "'nccl.tests.mpi' in a.yml"),
])
def test_what_contradicts_itself_is_named_in_one_sentence(definition, sentence):
    (found,) = components.problems(definition, "a.yml")
    assert found.startswith(sentence)


@pytest.mark.parametrize("definition", [
    {"pytorch": WHEEL, "mpi": {"allow_path": False, "lock": "mpich==4.3.2"}},
    {"pytorch": SOURCE, "mpi": {"prefix": "/opt/mpich", "allow_path": False}, "nccl": {}, "cuda": {}},
    {"pytorch": SOURCE, "mpi": {"cc": "cc", "allow_path": False}}, {"pytorch": SOURCE, "mpi": {}},
    {"pytorch": INDEXED, "mpi": {}, "cuda": {}, "horovod": {"nccl": "wheel", "driver_stub": True}},
    {"pytorch": "2.6.0"}, None,
])
def test_what_is_whole_has_no_problems(definition):
    assert components.problems(definition) == []


CONTAINER = {"base": {"kind": "container"}, "pytorch": {"version": "2.2.0"}}


@pytest.mark.parametrize("key", components.OF_THE_IMAGE)
def test_what_an_image_has_is_no_part_of_a_release_that_is_a_container(key):
    (found,) = components.problems(dict(CONTAINER, **{key: {}}), "a.yml")
    assert found.startswith("'%s' in a.yml means nothing to a container" % key)


@pytest.mark.parametrize("key", ["lock", "source", "cpu", "cuda_lock", "mpi_backend"])
def test_the_pytorch_of_a_container_only_has_a_version(key):
    (found,) = components.problems({**CONTAINER, "pytorch": {"version": "2.2.0", key: {}}}, "a.yml")
    assert found.startswith("'pytorch.%s' in a.yml means nothing to a container" % key)


@pytest.mark.parametrize("kind", ["conda", "python_overlay"])
def test_a_release_that_is_no_container_needs_an_mpi_and_locks(kind):
    found = components.problems({"base": {"kind": kind}, "pytorch": WHEEL}, "a.yml")
    assert [sentence.partition(";")[0] for sentence in found] == [
        "'mpi' is missing in a.yml", "'locks' is missing in a.yml",
    ]


def test_nothing_is_said_of_what_an_image_is_without():
    assert components.problems(CONTAINER) == components.left_out(CONTAINER) == components.commands(CONTAINER) == []
    assert components.accepted(CONTAINER)["imports"] == ["torch"]


def test_what_a_release_does_without_is_known_by_name():
    assert components.left_out({"mpi4py": {}}) == ["Horovod"]
    assert components.left_out({"mpi4py": {}, "cuda": {}}) == ["NCCL", "Horovod"]
    assert components.left_out({"mpi4py": {}, "cuda": {}, "horovod": {"nccl": "wheel"}}) == []


def test_what_is_built_on_torch_waits_for_its_installation():
    assert components.package_needs({"pytorch": SOURCE, "mpi4py": {}}) == ["base", "pytorch-install", "mpi4py-install"]
    assert components.package_needs({"pytorch": WHEEL}) == ["base", "pytorch"]
    assert components.package_needs({"pytorch": WHEEL, "nccl": {}}) == ["base", "pytorch", "nccl"]
    assert components.package_needs({}) == ["base", "pytorch", "mpi4py-install"]


@pytest.mark.parametrize("definition, expected", [
    ({"pytorch": WHEEL, "packages": [{"name": "a", "lock": "a==1"}]}, []),
    ({"pytorch": SOURCE}, ["git"]),
    ({"packages": [{"name": "a", "repository": "https://example.org/a"}]}, ["git"]),
    ({"nccl": {"repository": "https://example.org/n", "plugin": {}}}, ["git", "make"]),
    ({"nccl": {"repository": "https://example.org/n", "plugin": {"version": "1"}}},
     ["git", "make", "autoreconf", "automake", "libtoolize"]),
])
def test_preflight_looks_for_the_commands_of_the_parts_that_are_there(definition, expected):
    assert components.commands(definition) == expected


def test_the_acceptance_checks_what_the_release_has():
    with_horovod = components.accepted({"horovod": {}, "mpi4py": {}})
    assert with_horovod == components.accepted({})
    assert with_horovod["imports"] == ["torch", "horovod.torch"] and "horovod_allreduce" in with_horovod["checks"]
    without = components.accepted({"mpi4py": {}})
    assert without["imports"] == ["torch"]
    assert without["checks"] == ["imports", "devices", "mpi4py_allreduce", "torch_gloo_allreduce"]


def test_an_mpi_backend_has_to_pass():
    found = components.accepted({"mpi4py": {}, "pytorch": {"mpi_backend": {"name": "mpi"}}})
    assert "torch_mpi_allreduce" in found["checks"] and "torch_mpi_allreduce" not in found["where_possible"]


def test_a_release_file_may_say_what_is_accepted():
    own = {"checks": ["imports", "torch_nccl_allreduce"], "imports": ["torch", "deepspeed"]}
    found = components.accepted({"horovod": {}, "acceptance": own})
    assert found["checks"] == own["checks"] and found["imports"] == own["imports"]
    assert found["where_possible"] == ["torch_mpi_allreduce", "cuda_graph_replay"]

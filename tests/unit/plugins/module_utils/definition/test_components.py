# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What contradicts itself between the components of a release, and what follows from which of them are there."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import components

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
    ({"horovod": {"environment": {"HOROVOD_GPU_OPERATIONS": "NCCL"}}},
     "'horovod.environment' in a.yml has HOROVOD_GPU_OPERATIONS, which means nothing without cuda;"),
    ({"pytorch": WHEEL, "cuda": {}}, "'pytorch.cpu' in a.yml means nothing to a release for GPUs;"),
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
    {"pytorch": {key: value for key, value in WHEEL.items() if key != "cpu"}, "cuda": {}},
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
    assert with_horovod == {**components.accepted({}), "where_possible": ["torch_mpi"]}
    assert with_horovod["imports"] == ["torch", "horovod.torch"]
    assert with_horovod["checks"] == ["imports", "devices", "horovod", "mpi4py", "torch_gloo"]
    without = components.accepted({"mpi4py": {}})
    assert without["imports"] == ["torch"]
    assert without["checks"] == ["imports", "devices", "mpi4py", "torch_gloo"]


def test_an_mpi_backend_has_to_pass():
    found = components.accepted({"mpi4py": {}, "pytorch": {"mpi_backend": {"name": "mpi"}}})
    assert "torch_mpi" in found["checks"] and "torch_mpi" not in found["where_possible"]


def test_s17_a_release_for_gpus_is_not_accepted_where_none_is_seen_unless_its_file_says_so():
    found = components.accepted({"cuda": {"version": "12.4"}})
    assert "torch_nccl" in found["checks"] and "torch_nccl" not in found["where_possible"]
    found = components.accepted({"cuda": {"version": "12.4"}, "acceptance": {"checks": ["imports"]}})
    assert found["checks"] == ["imports"] and "torch_nccl" in found["where_possible"]


def test_a_release_file_may_say_what_is_accepted():
    own = {"checks": ["imports", "torch_nccl"], "imports": ["torch", "deepspeed"]}
    found = components.accepted({"horovod": {}, "cuda": {}, "acceptance": own})
    assert found["checks"] == own["checks"] and found["imports"] == own["imports"]
    assert found["where_possible"] == ["torch_mpi", "cuda_graph_replay"]


def test_an_acceptance_measures_something_unless_somebody_says_otherwise():
    assert components.accepted({})["measure"] == components.MEASURED
    nothing = {"measure": {"operations": [], "latency": {}}}
    assert components.accepted({}, nothing)["measure"] == {}
    assert components.accepted({"acceptance": nothing})["measure"] == {}


def test_the_release_file_wins_over_the_site_key_by_key():
    floor = {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 32.5, "source": "a log"}
    slow = {"backend": "gloo", "bytes": 8, "microseconds": 50.0, "source": "a log"}
    site = {
        "measure": {"largest": "4 GiB", "trials": 50, "floors": {"bandwidth": [floor], "latency": [slow]}},
        "transport": {"networks": ["*libfabric*"], "forbidden": ["Socket"]}, "import_ceiling": 60,
    }
    own = {"measure": {"trials": 5, "floors": {"bandwidth": []}}, "transport": {"networks": ["IB"]}}
    found = components.accepted({"acceptance": own}, site)
    assert found["measure"] == {
        **components.MEASURED, "largest": "4 GiB", "trials": 5, "floors": {"bandwidth": [], "latency": [slow]}}
    assert found["transport"] == {"networks": ["IB"], "forbidden": ["Socket"]}
    assert found["import_ceiling"] == 60
    assert components.accepted({"acceptance": {"import_ceiling": 0}}, site)["import_ceiling"] == 0
    assert components.accepted({}, site)["measure"]["floors"] == site["measure"]["floors"]


def test_what_site_and_release_file_say_together_is_judged_before_anything_is_built():
    floor = {"backend": "nccl", "operation": "all_gather", "bytes": "1 GiB", "busbw": 32.2, "source": "a log"}
    site = {"measure": {"operations": ["all_gather"], "floors": {"bandwidth": [floor]}}}
    assert components.accepted({}, site)["problem"] == ""
    own = {"acceptance": {"measure": {"operations": ["all_reduce"]}}}
    assert "all_gather" in components.accepted(own, site)["problem"]


def test_without_a_word_no_transport_and_no_ceiling_are_asked_for():
    found = components.accepted({}, {})
    assert (found["transport"], found["import_ceiling"]) == ({}, 0)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the acceptance of a release runs."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.acceptance_plan import (
    MEASURED,
    plan_acceptance,
)


def test_the_acceptance_checks_what_the_release_has():
    with_horovod = plan_acceptance({"horovod": {}, "mpi4py": {}})
    assert with_horovod == {**plan_acceptance({}), "where_possible": ["torch_mpi"]}
    assert with_horovod["imports"] == ["torch", "horovod.torch"]
    assert with_horovod["checks"] == ["imports", "devices", "horovod", "mpi4py", "torch_gloo"]
    without = plan_acceptance({"mpi4py": {}})
    assert without["imports"] == ["torch"]
    assert without["checks"] == ["imports", "devices", "mpi4py", "torch_gloo"]


def test_an_mpi_backend_has_to_pass():
    found = plan_acceptance({"mpi4py": {}, "pytorch": {"mpi_backend": {"name": "mpi"}}})
    assert "torch_mpi" in found["checks"] and "torch_mpi" not in found["where_possible"]


def test_s17_a_release_for_gpus_is_not_accepted_where_none_is_seen_unless_its_file_says_so():
    found = plan_acceptance({"cuda": {"version": "12.4"}})
    assert "torch_nccl" in found["checks"] and "torch_nccl" not in found["where_possible"]
    found = plan_acceptance({"cuda": {"version": "12.4"}, "acceptance": {"checks": ["imports"]}})
    assert found["checks"] == ["imports"] and "torch_nccl" in found["where_possible"]


def test_a_release_file_may_say_what_is_accepted():
    own = {"checks": ["imports", "torch_nccl"], "imports": ["torch", "deepspeed"]}
    found = plan_acceptance({"horovod": {}, "cuda": {}, "acceptance": own})
    assert found["checks"] == own["checks"] and found["imports"] == own["imports"]
    assert found["where_possible"] == ["torch_mpi", "cuda_graph_replay"]


def test_an_acceptance_measures_something_unless_somebody_says_otherwise():
    assert plan_acceptance({})["measure"] == MEASURED
    nothing = {"measure": {"operations": [], "latency": {}}}
    assert plan_acceptance({}, nothing)["measure"] == {}
    assert plan_acceptance({"acceptance": nothing})["measure"] == {}


def test_the_release_file_wins_over_the_site_key_by_key():
    floor = {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 32.5, "source": "a log"}
    slow = {"backend": "gloo", "bytes": 8, "microseconds": 50.0, "source": "a log"}
    site = {
        "measure": {"largest": "4 GiB", "trials": 50, "floors": {"bandwidth": [floor], "latency": [slow]}},
        "transport": {"networks": ["*libfabric*", "OFI"], "forbidden": ["Socket"]}, "import_ceiling": 60,
    }
    own = {"measure": {"trials": 5, "floors": {"bandwidth": []}}, "transport": {"networks": ["IB"]}}
    found = plan_acceptance({"acceptance": own}, site)
    assert found["measure"] == {
        **MEASURED, "largest": "4 GiB", "trials": 5, "floors": {"bandwidth": [], "latency": [slow]}}
    assert found["transport"] == {"networks": ["IB"], "forbidden": ["Socket"]}
    assert found["import_ceiling"] == 60
    assert plan_acceptance({"acceptance": {"import_ceiling": 0}}, site)["import_ceiling"] == 0
    assert plan_acceptance({}, site)["measure"]["floors"] == site["measure"]["floors"]


def test_what_site_and_release_file_say_together_is_judged_before_anything_is_built():
    floor = {"backend": "nccl", "operation": "all_gather", "bytes": "1 GiB", "busbw": 32.2, "source": "a log"}
    site = {"measure": {"operations": ["all_gather"], "floors": {"bandwidth": [floor]}}}
    assert plan_acceptance({}, site)["problem"] == ""
    own = {"acceptance": {"measure": {"operations": ["all_reduce"]}}}
    assert "all_gather" in plan_acceptance(own, site)["problem"]


def test_without_a_word_no_transport_and_no_ceiling_are_asked_for():
    found = plan_acceptance({}, {})
    assert (found["transport"], found["import_ceiling"]) == ({}, 0)

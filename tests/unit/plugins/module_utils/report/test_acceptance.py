# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a report says of acceptances, sweeps and nodes, and how its page groups it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import (
    acceptance,
)

GIB = 1 << 30


def measured(busbw=84.5, size=GIB, **more):
    row = {"bytes": size, "busbw": busbw, "verified": True, "microseconds": {"min": 1, "mean": 2, "max": 3}}
    return dict({"backend": "nccl", "operation": "all_reduce", "ranks": 8, "nodes": 2, "rows": [row]}, **more)


def floor(measurements, **more):
    asked = dict({"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 72.0, "source": "s"}, **more)
    record = {"measurements": measurements, "question": {"measure": {"floors": {"bandwidth": [asked]}}}}
    return acceptance.describe_acceptance(record)["floors"][0]


def test_all_that_was_measured_beside_other_work_is_noisy():
    record = {"measurements": [measured()], "ranks": [{"host": "n1", "device_facts": {"load": 9.0, "processors": 8}}]}
    described = acceptance.describe_acceptance(record)
    assert described["busy"] == [{"host": "n1", "load": 9.0, "processors": 8}]
    assert described["measurements"][0]["rows"][0]["noisy"] and acceptance.summarise(record)["bandwidth"][0]["noisy"]
    assert not acceptance.summarise({"measurements": [measured()]})["bandwidth"][0]["noisy"]


def test_a_floor_is_held_missed_or_not_measured():
    assert floor([measured(84.5)])["held"] is True
    assert floor([measured(71.9)])["held"] is False
    assert floor([measured(84.5, size=GIB // 2)])["held"] is None
    assert floor([])["held"] is None


def test_a_floor_of_another_shape_is_not_held_against_a_run():
    assert floor([measured(1.0)], ranks=16)["held"] is None
    assert floor([measured(1.0)], ranks=8, nodes=2)["held"] is False


def test_a_floor_is_held_against_the_slowest_of_several_measurements():
    assert floor([measured(84.5), measured(60.0, provider="mpi4py")])["measured"] == 60.0


def test_a_ceiling_of_latency_is_held_when_the_median_is_below_it():
    times = {"min": 1.0, "median": 2.0, "p99": 3.0, "max": 9.0}
    record = {
        "latency": [{"backend": "mpi", "bytes": 8, "microseconds": times}],
        "question": {"measure": {"floors": {"latency": [{"backend": "mpi", "bytes": 8, "microseconds": 2.5}]}}},
    }
    assert acceptance.describe_acceptance(record)["floors"][0]["held"] is True


@pytest.mark.parametrize(("numa", "near", "far"), [
    ("3", 3, False), ("2", 0, True), ("0-1", 1, False), ("0,2-3", 1, True), ("", 1, False), ("1", None, False),
    ("1", -1, False), ("?", 1, False),
])
def test_a_rank_is_far_from_its_gpu_when_its_cores_are_on_other_numa_nodes(numa, near, far):
    facts = {"kind": "gpu", "numa": numa, "gpu_numa": near}
    record = acceptance.describe_acceptance({"ranks": [{"rank": 0, "host": "n", "device_facts": facts}]})
    assert record["ranks"][0]["far"] is far


def test_ranks_whose_nccl_says_the_same_are_one_line():
    networks = ["AWS Libfabric"] * 3 + ["Socket"] + ["AWS Libfabric"] * 2
    rows = [{"rank": rank, "network": network, "channels": {"NET/x": 2}} for rank, network in enumerate(networks)]
    found = acceptance.describe_acceptance({"transports": rows})["transports"]
    assert [(entry["network"], entry["ranks"], entry["channels"]) for entry in found] == [
        ("AWS Libfabric", [0, 1, 2, 4, 5], {"NET/x": 10}), ("Socket", [3], {"NET/x": 2})]

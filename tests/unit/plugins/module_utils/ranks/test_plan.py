# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plans of a benchmark, as a site writes them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.plan import plan_sizes, problem, resolve_plan


def test_s30_sizes_double_from_32_kib_to_16_gib():
    found = plan_sizes(resolve_plan({}))
    assert found == [(32 << 10) << step for step in range(20)]
    assert found[-1] == 16 << 30


def test_s30_the_size_of_a_floor_is_measured_wherever_it_lies():
    floors = {"bandwidth": [
        {"backend": "nccl", "operation": "all_reduce", "bytes": "3 MiB", "busbw": 1},
        {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 1},
    ], "latency": [{"backend": "mpi", "bytes": 64, "microseconds": 3}]}
    plan = resolve_plan({"smallest": "1 MiB", "largest": "4 MiB", "floors": floors})
    assert plan_sizes(plan) == [1 << 20, 2 << 20, 3 << 20, 4 << 20, 1 << 30]
    assert plan["latency"] == {"bytes": [64], "iterations": 1000}


def test_s30_a_plan_is_its_own_plan():
    measure = {"largest": "1 GiB", "also": ["3 MiB"], "latency": {"bytes": ["8", "1 MiB"]}, "trials": "7"}
    plan = resolve_plan(measure)
    assert resolve_plan(plan) == plan
    assert plan["trials"] == 7 and plan["latency"]["bytes"] == [8, 1 << 20]


@pytest.mark.parametrize(("measure", "words"), [
    ([], "measure is [], not a dictionary."),
    ({"sizes": 1}, "measure has the key sizes; known are"),
    ({"operations": "all_reduce"}, "measure.operations is 'all_reduce', not a list."),
    ({"operations": ["reduce"]}, "measure.operations has reduce; known are all_reduce"),
    ({"backends": ["rccl"]}, "measure.backends has rccl; known are gloo, mpi, nccl."),
    ({"largest": "1 GB"}, "measure.largest is '1 GB', which is not a size"),
    ({"smallest": 6}, "measure.smallest is 6, which is not a multiple of 4 bytes."),
    ({"smallest": "2 GiB", "largest": "1 GiB"}, "measure.smallest, 2 GiB, is more than measure.largest, 1 GiB."),
    ({"trials": 0}, "measure.trials is 0, not a whole number from 1 on."),
    ({"trials": 2.5}, "measure.trials is 2.5, not a whole number"),
    ({"trials": float("inf")}, "measure.trials is inf, not a whole number"),
    ({"blocking": "no"}, "measure.blocking is 'no', neither true nor false."),
    ({"also": "1 GiB"}, "measure.also is '1 GiB', not a list."),
    ({"latency": {"bytes": 8}}, "measure.latency.bytes is 8, not a list."),
    ({"floors": {"latency": "none"}}, "measure.floors.latency is 'none', not a list."),
    ({"floors": {"latency": [{"backend": "mpi", "bytes": 8, "microseconds": float("nan")}]}},
     "measure.floors.latency[0].microseconds is nan, not a number"),
    ({"floors": {"latency": [{"backend": "mpi", "bytes": 8, "microseconds": 2, "nodes": "two"}]}},
     "measure.floors.latency[0].nodes is 'two', not a whole number"),
    ({"seconds": "soon"}, "measure.seconds is 'soon', not a number from 0 on."),
    ({"latency": {"size": 8}}, "measure.latency is {'size': 8}; it is a dictionary with bytes and iterations."),
    ({"latency": {"bytes": ["x"]}}, "measure.latency.bytes is 'x', which is not a size"),
    ({"latency": {"bytes": [8], "iterations": 0}}, "measure.latency.iterations is 0"),
    ({"floors": {"busbw": 3}}, "measure.floors is"),
    ({"floors": {"bandwidth": [{"backend": "nccl"}]}}, "measure.floors.bandwidth[0] lacks bytes, busbw, operation."),
    ({"floors": {"latency": [{"backend": "tcp", "bytes": 8, "microseconds": 2}]}},
     "measure.floors.latency[0].backend is tcp"),
    ({"floors": {"bandwidth": [{"backend": "nccl", "operation": "broadcast", "bytes": 8, "busbw": 1}]}},
     "measure.floors.bandwidth[0] is of broadcast, which is not among measure.operations."),
    ({"floors": {"bandwidth": [{"backend": "nccl", "operation": "all_reduce", "bytes": 8, "busbw": 1, "unit": 1}]}},
     "measure.floors.bandwidth[0] has the key unit"),
])
def test_s30_what_cannot_be_measured_is_said_in_one_sentence(measure, words):
    said = problem(measure)
    assert words in said and said.endswith(".")
    with pytest.raises(ValueError, match="measure"):
        resolve_plan(measure)

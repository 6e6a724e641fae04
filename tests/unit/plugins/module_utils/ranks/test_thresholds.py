# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Floors and ceilings, and wrong values, as findings."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import thresholds


def group(busbw=30.0, size=1 << 30, **more):
    line = {"bytes": size, "busbw": busbw, "verified": True}
    line.update({key: more.pop(key) for key in ("verified", "wrong") if key in more})
    found = {
        "backend": "nccl", "provider": "torch", "operation": "all_reduce", "ranks": 8, "nodes": 2, "device": "cuda",
        "dtype": "float32", "rows": [line], "left_out": "",
    }
    return dict(found, **more)


def message(median=2.0, size=8, **more):
    times = {"min": 1.0, "median": median, "p99": 9.0, "max": 10.0}
    return dict({
        "backend": "mpi", "provider": "mpi4py", "bytes": size, "hosts": ["nid001", "nid002"], "ranks": [0, 4],
        "microseconds": times, "iterations": 1000, "verified": True,
    }, **more)


FLOOR = {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 36, "source": "the site's notes"}


CEILING = {"backend": "mpi", "bytes": 8, "microseconds": 3, "source": "measured in 2026"}


def test_s30_a_bandwidth_below_its_floor_is_a_finding_with_figures_and_source():
    assert thresholds.find_violations([group(36.0)], [], {"bandwidth": [FLOOR]}) == []
    assert thresholds.find_violations([group(30.1)], [], {"bandwidth": [FLOOR]}) == [
        "all_reduce over nccl (torch) reached 30.1 GB/s of bus bandwidth at 1 GiB over 8 ranks on 2 nodes; the floor "
        "is 36 GB/s (the site's notes)."
    ]


def test_s30_a_floor_of_what_was_not_measured_is_a_finding_with_the_reason():
    said = "all_reduce over nccl at 1 GiB was not measured, and there is a floor of 36 GB/s for it (the site's notes)"
    assert thresholds.find_violations([], [], {"bandwidth": [FLOOR]}) == [said + "."]
    lacking = group(size=1 << 20, left_out="1 GiB left out: rank 3 on nid002 has 0.9 GiB of memory for its buffers.")
    assert thresholds.find_violations([lacking], [], {"bandwidth": [FLOOR]}) == [said + "; " + lacking["left_out"]]


def test_s30_wrong_values_are_a_finding_without_any_floor():
    wrong = group(99.0, verified=False, wrong="rank 1 on nid002: index 7: got 3, expected 4")
    assert thresholds.find_violations([wrong], [], {}) == [
        "all_reduce over nccl (torch) of 1 GiB gave wrong values: rank 1 on nid002: index 7: got 3, expected 4."
    ]


def test_s30_a_floor_of_other_numbers_of_nodes_does_not_judge_but_is_said():
    floors = {"bandwidth": [dict(FLOOR, ranks=16, nodes=4)], "latency": [dict(CEILING, nodes=2)]}
    assert thresholds.find_violations([group(1.0)], [message()], floors) == []
    assert thresholds.find_unchecked([group(1.0)], floors) == [
        "The floor of all_reduce over nccl at 1 GiB is of 16 ranks and 4 nodes, which this run was not."
    ]
    floors = {"bandwidth": [dict(FLOOR, ranks=8, nodes=2)]}
    assert len(thresholds.find_violations([group(1.0)], [], floors)) == 1
    assert thresholds.find_unchecked([group(1.0)], floors) == []


def test_s44_a_message_that_takes_too_long_is_a_finding_with_both_hosts():
    assert thresholds.find_violations([], [message(2.9)], {"latency": [CEILING]}) == []
    assert thresholds.find_violations([], [message(4.0)], {"latency": [CEILING]}) == [
        "A message of 8 bytes over mpi (mpi4py) from nid001 to nid002 took 4 microseconds; at most 3 are allowed "
        "(measured in 2026)."
    ]


def test_s44_a_latency_that_was_not_measured_and_one_with_wrong_values_are_findings():
    wrong = message(size=64, verified=False, wrong="index 0: got 1, expected 2")
    found = thresholds.find_violations([], [wrong], {"latency": [CEILING]})
    assert found == [
        "The messages of 64 bytes over mpi carried wrong values: index 0: got 1, expected 2.",
        "The latency over mpi at 8 bytes was not measured, and at most 3 microseconds are allowed (measured in 2026).",
    ]

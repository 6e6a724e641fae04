# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark measures, what its figures mean, and when they do not suffice."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import bandwidth_values
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import plan as bandwidth_plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import thresholds as bandwidth_floors
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import units as bandwidth

RANKS = (2, 3, 4, 7, 8)


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


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "count"), [
    ("1 GiB", 1 << 30), ("1GiB", 1 << 30), ("1G", 1 << 30), ("1073741824", 1 << 30), (1 << 30, 1 << 30),
    ("32 KiB", 32768), ("32kib", 32768), ("0.5 MiB", 512 << 10), ("8", 8), ("8 bytes", 8), (" 16 GiB ", 16 << 30),
])
def test_s30_a_size_is_written_as_people_write_it(text, count):
    assert bandwidth.parse_size(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1", "1 GB", "1 MB", "0", "1.3", "0.1 KiB", None, True, 1.5, [8]])
def test_s30_what_is_not_a_size_is_refused_with_the_reason(text):
    with pytest.raises(ValueError, match=r"is not a (size|whole number)"):
        bandwidth.parse_size(text)


def test_s30_gigabytes_are_refused_because_nobody_knows_how_many_bytes_they_are():
    with pytest.raises(ValueError, match="mean different things"):
        bandwidth.parse_size("1 GB")


@pytest.mark.parametrize(("count", "text"), [
    (8, "8 bytes"), (32768, "32 KiB"), (1 << 30, "1 GiB"), (16 << 30, "16 GiB"), (1000, "1000 bytes"),
])
def test_s30_a_size_is_shown_exactly_and_read_again(count, text):
    assert bandwidth.show_size(count) == text
    assert bandwidth.parse_size(text) == count


def test_s30_sizes_double_from_32_kib_to_16_gib():
    found = bandwidth_plan.sizes(bandwidth_plan.plan({}))
    assert found == [(32 << 10) << step for step in range(20)]
    assert found[-1] == 16 << 30


def test_s30_the_size_of_a_floor_is_measured_wherever_it_lies():
    floors = {"bandwidth": [
        {"backend": "nccl", "operation": "all_reduce", "bytes": "3 MiB", "busbw": 1},
        {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 1},
    ], "latency": [{"backend": "mpi", "bytes": 64, "microseconds": 3}]}
    plan = bandwidth_plan.plan({"smallest": "1 MiB", "largest": "4 MiB", "floors": floors})
    assert bandwidth_plan.sizes(plan) == [1 << 20, 2 << 20, 3 << 20, 4 << 20, 1 << 30]
    assert plan["latency"] == {"bytes": [64], "iterations": 1000}


def test_s30_a_plan_is_its_own_plan():
    measure = {"largest": "1 GiB", "also": ["3 MiB"], "latency": {"bytes": ["8", "1 MiB"]}, "trials": "7"}
    plan = bandwidth_plan.plan(measure)
    assert bandwidth_plan.plan(plan) == plan
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
    said = bandwidth_plan.problem(measure)
    assert words in said and said.endswith(".")
    with pytest.raises(ValueError, match="measure"):
        bandwidth_plan.plan(measure)


def test_s30_a_size_that_does_not_divide_by_the_ranks_loses_less_than_16_bytes_for_each():
    for ranks in RANKS:
        for operation in bandwidth.FACTORS:
            count = bandwidth.elements(operation, 1 << 20, ranks)
            assert 0 <= (1 << 20) - 4 * count < 16 * ranks
            if operation in bandwidth.IN_PARTS:
                assert count % ranks == 0 and count // ranks * 4 % 16 == 0
    assert bandwidth.elements("all_gather", 32 << 10, 4096) == 0


# --- the definitions -------------------------------------------------------------------------------------------------


def ring_transfers(operation, ranks):
    """What one rank sends, as a part of the whole, when the ranks pass pieces on to the next one."""
    sent = [0] * ranks
    if operation in ("reduce_scatter", "all_reduce"):
        for _step in range(ranks - 1):
            sent = [count + 1 for count in sent]
    if operation in ("all_gather", "all_reduce"):
        for _step in range(ranks - 1):
            sent = [count + 1 for count in sent]
    if operation == "all_to_all":
        sent = [sum(other != rank for other in range(ranks)) for rank in range(ranks)]
    if operation in ("broadcast", "send_recv"):
        sent = [ranks] * ranks
    return max(sent) / ranks


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("operation", sorted(bandwidth.FACTORS))
def test_s30_the_bus_bandwidth_counts_what_a_rank_has_to_send(operation, ranks):
    assert bandwidth.FACTORS[operation](ranks) == pytest.approx(ring_transfers(operation, ranks))


def test_s30_bandwidths_are_those_of_nccl_tests():
    # all_reduce_perf on two H200 took 3262 microseconds for 1 GiB and said 329 GB/s; on 8 ranks the factor is 7/4.
    line = bandwidth.row("all_reduce", 1 << 30, 1 << 28, [0.03262] * 2, [[0.003262] * 10] * 2)
    assert line["busbw"] == line["algbw"] == pytest.approx(329.2, rel=1e-3)
    line = bandwidth.row("all_reduce", 1 << 30, 1 << 28, [0.03262] * 8, [[0.003262] * 10] * 8)
    assert line["busbw"] == pytest.approx(1.75 * 329.2, rel=1e-3)


def test_s30_a_row_has_the_mean_over_the_ranks_and_the_spread_of_the_slowest():
    line = bandwidth.row("broadcast", 4000, 1000, [10e-6, 30e-6], [[4e-6, 6e-6], [5e-6, 25e-6]])
    assert line["algbw"] == pytest.approx(4000 / 10e-6 / 1e9)
    assert line["microseconds"] == {"min": 5.0, "median": 15.0, "mean": 15.0, "max": 25.0}
    assert line["spread"] == pytest.approx(20 / 15, rel=1e-4)
    assert line["trials"] == 2


def test_s44_the_latency_is_half_of_a_round_trip():
    line = bandwidth.trip(8, [time * 1e-6 for time in range(2, 202)])
    assert line["microseconds"] == {"min": 1.0, "median": 50.75, "p99": 99.5, "max": 100.5}
    assert line["iterations"] == 200
    assert bandwidth.trip(1 << 20, [1e-3])["bandwidth"] == pytest.approx(2.0972)


# --- values ----------------------------------------------------------------------------------------------------------


def naive(operation, given):
    """What each rank has afterwards, from what each gave, by the definition of the operation."""
    ranks = len(given)
    part = len(given[0]) // ranks
    total = [sum(column) for column in zip(*given)]
    return {
        "all_reduce": lambda rank: total,
        "broadcast": lambda rank: given[0],
        "all_gather": lambda rank: [number for one in given for number in one],
        "reduce_scatter": lambda rank: total[rank * part:(rank + 1) * part],
        "all_to_all": lambda rank: [number for one in given for number in one[rank * part:(rank + 1) * part]],
        "send_recv": lambda rank: given[(rank - 1) % ranks],
    }[operation]


def contribution(who, size, offset, length):
    once = bandwidth_values.period(who, size)
    return [once[(offset + place) % bandwidth_values.PERIOD] for place in range(length)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("operation", sorted(bandwidth.FACTORS))
def test_s30_what_is_expected_is_what_the_operation_gives(operation, ranks):
    count = 60 * ranks
    plans = [bandwidth_values.layout(operation, rank, ranks, count) for rank in range(ranks)]
    given = [contribution(rank, ranks, 7, plan.source) for rank, plan in enumerate(plans)]
    result = naive(operation, given)
    for rank, plan in enumerate(plans):
        expected = [None] * (plan.target or plan.source)
        for part in plan.result:
            expected[part.start:part.start + part.length] = contribution(
                part.who, ranks, part.offset + 7, part.length)
        assert expected == result(rank)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_s30_one_contribution_that_is_missing_doubled_or_shifted_shows(ranks):
    total = bandwidth_values.period(bandwidth_values.TOTAL, ranks)
    given = [list(bandwidth_values.period(rank, ranks)) for rank in range(ranks)]
    right = [sum(column) for column in zip(*given)]
    assert right == list(total)
    for wrong in (given[1:], [*given, given[0]], [given[0][1:] + given[0][:1], *given[1:]], [*given[1:], given[1]]):
        assert [sum(column) for column in zip(*wrong)] != right


def test_s30_sums_of_very_many_ranks_are_exact():
    assert max(bandwidth_values.period(bandwidth_values.TOTAL, 100000)) < 1 << 24


def test_s30_no_shift_by_a_power_of_two_looks_right():
    once = list(bandwidth_values.period(1, 4))
    for power in range(34):
        shift = (1 << power) % bandwidth_values.PERIOD
        assert once[shift:] + once[:shift] != once


# --- floors ----------------------------------------------------------------------------------------------------------

FLOOR = {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 36, "source": "the site's notes"}
CEILING = {"backend": "mpi", "bytes": 8, "microseconds": 3, "source": "measured in 2026"}


def test_s30_a_bandwidth_below_its_floor_is_a_finding_with_figures_and_source():
    assert bandwidth_floors.judge([group(36.0)], [], {"bandwidth": [FLOOR]}) == []
    assert bandwidth_floors.judge([group(30.1)], [], {"bandwidth": [FLOOR]}) == [
        "all_reduce over nccl (torch) reached 30.1 GB/s of bus bandwidth at 1 GiB over 8 ranks on 2 nodes; the floor "
        "is 36 GB/s (the site's notes)."
    ]


def test_s30_a_floor_of_what_was_not_measured_is_a_finding_with_the_reason():
    said = "all_reduce over nccl at 1 GiB was not measured, and there is a floor of 36 GB/s for it (the site's notes)"
    assert bandwidth_floors.judge([], [], {"bandwidth": [FLOOR]}) == [said + "."]
    lacking = group(size=1 << 20, left_out="1 GiB left out: rank 3 on nid002 has 0.9 GiB of memory for its buffers.")
    assert bandwidth_floors.judge([lacking], [], {"bandwidth": [FLOOR]}) == [said + "; " + lacking["left_out"]]


def test_s30_wrong_values_are_a_finding_without_any_floor():
    wrong = group(99.0, verified=False, wrong="rank 1 on nid002: index 7: got 3, expected 4")
    assert bandwidth_floors.judge([wrong], [], {}) == [
        "all_reduce over nccl (torch) of 1 GiB gave wrong values: rank 1 on nid002: index 7: got 3, expected 4."
    ]


def test_s30_a_floor_of_other_numbers_of_nodes_does_not_judge_but_is_said():
    floors = {"bandwidth": [dict(FLOOR, ranks=16, nodes=4)], "latency": [dict(CEILING, nodes=2)]}
    assert bandwidth_floors.judge([group(1.0)], [message()], floors) == []
    assert bandwidth_floors.not_judged([group(1.0)], floors) == [
        "The floor of all_reduce over nccl at 1 GiB is of 16 ranks and 4 nodes, which this run was not."
    ]
    floors = {"bandwidth": [dict(FLOOR, ranks=8, nodes=2)]}
    assert len(bandwidth_floors.judge([group(1.0)], [], floors)) == 1
    assert bandwidth_floors.not_judged([group(1.0)], floors) == []


def test_s44_a_message_that_takes_too_long_is_a_finding_with_both_hosts():
    assert bandwidth_floors.judge([], [message(2.9)], {"latency": [CEILING]}) == []
    assert bandwidth_floors.judge([], [message(4.0)], {"latency": [CEILING]}) == [
        "A message of 8 bytes over mpi (mpi4py) from nid001 to nid002 took 4 microseconds; at most 3 are allowed "
        "(measured in 2026)."
    ]


def test_s44_a_latency_that_was_not_measured_and_one_with_wrong_values_are_findings():
    wrong = message(size=64, verified=False, wrong="index 0: got 1, expected 2")
    found = bandwidth_floors.judge([], [wrong], {"latency": [CEILING]})
    assert found == [
        "The messages of 64 bytes over mpi carried wrong values: index 0: got 1, expected 2.",
        "The latency over mpi at 8 bytes was not measured, and at most 3 microseconds are allowed (measured in 2026).",
    ]

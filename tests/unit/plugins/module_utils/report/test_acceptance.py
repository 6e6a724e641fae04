# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a report says of acceptances, sweeps and nodes, and how its page groups it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import acceptance as report_acceptance
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import format as words
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import nodes as report_fleet
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import report_tables, report_timeline

GIB = 1 << 30


def measured(busbw=84.5, size=GIB, **more):
    row = {"bytes": size, "busbw": busbw, "verified": True, "microseconds": {"min": 1, "mean": 2, "max": 3}}
    return dict({"backend": "nccl", "operation": "all_reduce", "ranks": 8, "nodes": 2, "rows": [row]}, **more)


def floor(measurements, **more):
    asked = dict({"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 72.0, "source": "s"}, **more)
    record = {"measurements": measurements, "question": {"measure": {"floors": {"bandwidth": [asked]}}}}
    return report_acceptance.acceptance(record)["floors"][0]


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
    assert report_acceptance.acceptance(record)["floors"][0]["held"] is True


@pytest.mark.parametrize(("numa", "near", "far"), [
    ("3", 3, False), ("2", 0, True), ("0-1", 1, False), ("0,2-3", 1, True), ("", 1, False), ("1", None, False),
    ("1", -1, False), ("?", 1, False),
])
def test_a_rank_is_far_from_its_gpu_when_its_cores_are_on_other_numa_nodes(numa, near, far):
    facts = {"kind": "gpu", "numa": numa, "gpu_numa": near}
    record = report_acceptance.acceptance({"ranks": [{"rank": 0, "host": "n", "device_facts": facts}]})
    assert record["ranks"][0]["far"] is far


def test_ranks_whose_nccl_says_the_same_are_one_line():
    networks = ["AWS Libfabric"] * 3 + ["Socket"] + ["AWS Libfabric"] * 2
    rows = [{"rank": rank, "network": network, "channels": {"NET/x": 2}} for rank, network in enumerate(networks)]
    found = report_acceptance.acceptance({"transports": rows})["transports"]
    assert [(entry["network"], entry["ranks"], entry["channels"]) for entry in found] == [
        ("AWS Libfabric", [0, 1, 2, 4, 5], {"NET/x": 10}), ("Socket", [3], {"NET/x": 2})]


def test_a_sweep_has_each_pair_at_one_place_and_the_median_of_each_node():
    measured_pairs = [[0, 1, 20.0], [2, 0, 10.0], [1, 2, 30.0], [1, 3, 40.0]]
    record = {"hosts": ["a", "b", "c", "d"], "measured": measured_pairs, "rounds": [[], [], []], "rounds_done": 2}
    found = report_fleet.sweep(record)
    assert found["pairs"] == [[20.0], [10.0, 30.0], [None, 40.0, None]]
    assert [(node["host"], node["median"], node["pairs"]) for node in found["nodes"]] == [
        ("a", 15.0, 2), ("b", 30.0, 3), ("c", 20.0, 2), ("d", 40.0, 1)]
    assert (found["rounds"], found["rounds_done"]) == (3, 2)
    tables = report_tables.slowest(found)
    assert tables["pairs"][0] == {"hosts": ["a", "c"], "speed": 10.0}
    assert (tables["measured"], tables["all"]) == (4, 6)


def test_a_finding_of_many_nodes_is_one_finding_and_failures_come_first():
    warning = {"severity": "warning", "check": "ecc", "message": "m", "value": 12, "threshold": [10, 20]}
    nodes = [{"host": host, "findings": [warning]} for host in ("a", "b")]
    nodes[1]["findings"] = [{"severity": "failure", "check": "xid", "message": "x", "remedy": "r"}, warning]
    found = report_fleet.health({"nodes": nodes})
    assert [(row["severity"], row["hosts"], row["threshold"]) for row in found["findings"]] == [
        ("failure", ["b"], ""), ("warning", ["a", "b"], "10, 20")]
    assert found["problems"] == [{"message": "b: x", "remedy": "r"}]
    assert found["nodes"][1]["counts"] == {"failure": 1, "warning": 1, "remark": 0}


def test_a_node_is_said_with_its_gpus_and_a_file_system_with_its_slowest_node():
    gpus = [{"name": "A100", "nvlinks": {"links": 12, "up": up}} for up in (12, 11)]

    def node(host, median):
        storage = [{"directory": "/lus", "kind": "lustre", "operations": {"stat": {"median": median}, "read": None}}]
        finding = {"severity": "failure", "subject": "gpu 1", "message": "A link is down."}
        facts = {"gpus": gpus, "nvidia": {"driver": "580"}, "storage": storage}
        return {"host": host, "findings": [finding], "facts": facts}

    found = report_fleet.health({"nodes": [node("a", 1.0), node("b", 5.0), node("c", 2.0)]})
    assert (found["nodes"][0]["gpus"], found["nodes"][0]["nvlinks"]) == ("2 A100", {"links": 24, "up": 23})
    assert found["storage"] == [{"directory": "/lus", "kind": "lustre", "operation": "stat", "median": 2.0,
                                 "slowest": {"host": "b", "median": 5.0}}]
    assert found["problems"][0]["message"] == "a, b, c: gpu 1: A link is down."


def test_what_kept_a_sweep_from_its_end_is_a_problem_beside_what_is_slow():
    early = {"check": "rounds", "message": "12 of 63 rounds", "remedy": "again"}
    failures = [early, {"check": "slow_nodes", "message": "x"}]
    found = report_fleet.sweep({"failures": failures, "slow_nodes": [{"host": "a", "evidence": "e."}]})
    assert found["problems"] == [
        {"message": "12 of 63 rounds", "remedy": "again"}, {"message": "a is a slow node.", "remedy": "e."}]


def step(begun, ended, name="s"):
    return {"name": name, "started": begun and "2026-11-20T%sZ" % begun, "finished": ended and "2026-11-20T%sZ" % ended,
            "seconds": None, "host": "h"}


def test_a_pause_is_cut_and_the_steps_keep_their_order_and_their_lengths():
    times = (("08:00:00", "08:01:00"), ("08:01:00", "08:03:00"), ("20:00:00", "20:01:00"))
    found = report_timeline.timeline([step(*both) for both in times])
    places = [(row["left"], row["width"]) for row in found["rows"]]
    cut = 240 * report_timeline.PAUSE
    whole = 240 + cut
    assert places == [
        (round(100 * left / whole, 2), round(100 * width / whole, 2))
        for left, width in ((0, 60), (60, 120), (180 + cut, 60))
    ]
    assert found["busy"] == 240
    assert [pause["seconds"] for pause in found["pauses"]] == [11 * 3600 + 57 * 60]


def test_steps_side_by_side_are_counted_once_and_one_without_a_time_has_no_place():
    found = report_timeline.timeline([step("08:00:00", "08:02:00"), step("08:01:00", "08:03:00"), step(None, None)])
    assert found["busy"] == 180 and found["pauses"] == []
    assert found["rows"][2]["left"] is None
    assert report_timeline.timeline([])["rows"] == []


def test_the_libraries_that_matter_come_first_with_whose_they_are():
    paths = {"libmpi_gnu_123.so.12": "/opt/cray/lib/libmpi_gnu_123.so.12", "libnccl.so.2": "nccl/lib/libnccl.so.2",
             "libstdc++.so.6": "/usr/lib64/libstdc++.so.6", "libz.so.1": "/lib64/libz.so.1", "libncclient.so": "x"}
    providers = [{"name": name, "path": path, "rules": [], "needed_by": 1} for name, path in paths.items()]
    found = report_tables.libraries({"objects": 1, "providers": providers, "allowed": []})
    assert [(row["name"], row["place"]) for row in found["key"]] == [
        ("libmpi_gnu_123.so.12", "the site"), ("libnccl.so.2", "this release"), ("libstdc++.so.6", "the system")]
    assert [row["name"] for row in found["others"]] == ["libz.so.1", "libncclient.so"]


@pytest.mark.parametrize(("said", "meant"), [
    (words.size(1 << 15), "32 KiB"), (words.size(3 << 29), "1.5 GiB"), (words.size(8), "8 bytes"),
    (words.size(None), words.DASH), (words.duration(0.04), "0.0 s"), (words.duration(59.6), "1 min 0 s"),
    (words.duration(151.2), "2 min 31 s"), (words.duration(7214), "2 h 0 min"), (words.speed(346.2), "346"),
    (words.speed(23), "23.0"), (words.speed(2.306), "2.31"), (words.speed(0.0564), "0.0564"),
    (words.speed(99.96), "100"), (words.short(72.0), "72"), (words.short(100), "100"),
    (words.count(1, "rank"), "1 rank"), (words.count(0, "rank"), "0 ranks"),
    (words.numbers([5, 1, 2, 3]), "1\u20133, 5"),
    (words.sentence("x"), "x."), (words.sentence("x."), "x."), (words.sentence(""), ""),
    (words.moment("2026-11-20T12:00:05Z"), "2026-11-20 12:00:05 UTC"), (words.day(None), words.DASH),
])
def test_numbers_are_said_as_people_say_them(said, meant):
    assert said == meant

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a report says of sweeps and nodes."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.report import (
    nodes,
    page,
)


def test_a_sweep_has_each_pair_at_one_place_and_the_median_of_each_node():
    measured_pairs = [[0, 1, 20.0], [2, 0, 10.0], [1, 2, 30.0], [1, 3, 40.0]]
    record = {"hosts": ["a", "b", "c", "d"], "measured": measured_pairs, "rounds": [[], [], []], "rounds_done": 2}
    found = nodes.describe_sweep(record)
    assert found["pairs"] == [[20.0], [10.0, 30.0], [None, 40.0, None]]
    assert [(node["host"], node["median"], node["pairs"]) for node in found["nodes"]] == [
        ("a", 15.0, 2), ("b", 30.0, 3), ("c", 20.0, 2), ("d", 40.0, 1)]
    assert (found["rounds"], found["rounds_done"]) == (3, 2)
    tables = page.sweep_table(found)
    assert tables["pairs"][0] == {"hosts": ["a", "c"], "speed": 10.0}
    assert (tables["measured"], tables["all"]) == (4, 6)


def test_a_finding_of_many_nodes_is_one_finding_and_failures_come_first():
    warning = {"severity": "warning", "check": "ecc", "message": "m", "value": 12, "threshold": [10, 20]}
    rows = [{"host": host, "findings": [warning]} for host in ("a", "b")]
    rows[1]["findings"] = [{"severity": "failure", "check": "xid", "message": "x", "remedy": "r"}, warning]
    found = nodes.describe_health({"nodes": rows})
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

    found = nodes.describe_health({"nodes": [node("a", 1.0), node("b", 5.0), node("c", 2.0)]})
    assert (found["nodes"][0]["gpus"], found["nodes"][0]["nvlinks"]) == ("2 A100", {"links": 24, "up": 23})
    assert found["storage"] == [{"directory": "/lus", "kind": "lustre", "operation": "stat", "median": 2.0,
                                 "slowest": {"host": "b", "median": 5.0}}]
    assert found["problems"][0]["message"] == "a, b, c: gpu 1: A link is down."


def test_what_kept_a_sweep_from_its_end_is_a_problem_beside_what_is_slow():
    early = {"check": "rounds", "message": "12 of 63 rounds", "remedy": "again"}
    failures = [early, {"check": "slow_nodes", "message": "x"}]
    found = nodes.describe_sweep({"failures": failures, "slow_nodes": [{"host": "a", "evidence": "e."}]})
    assert found["problems"] == [
        {"message": "12 of 63 rounds", "remedy": "again"}, {"message": "a is a slow node.", "remedy": "e."}]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an acceptance finds out beside right values: networks, times, floors, places."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import checks as acceptance_checks
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import evidence
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import output as acceptance_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import nccl_log
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import output as rank_output

LOGS = pathlib.Path(__file__).resolve().parents[4] / "fixtures" / "acceptance" / "nccl"
SLINGSHOT = {"networks": ["*libfabric*", "OFI"], "providers": ["cxi"], "forbidden": ["Socket"]}
MEASURED = {
    "measurements": [{
        "backend": "gloo", "provider": "torch", "operation": "all_reduce", "ranks": 2, "nodes": 1, "device": "cpu",
        "dtype": "float32", "left_out": "", "rows": [{
            "bytes": 1048576, "trials": 5, "algbw": 1.0, "busbw": 1.0, "spread": 0.1, "verified": True,
            "microseconds": {"min": 1000, "median": 1048, "mean": 1050, "max": 1100},
        }],
    }],
    "latency": [{
        "backend": "gloo", "provider": "torch", "bytes": 8, "hosts": ["n1", "n1"], "ranks": [0, 1], "iterations": 10,
        "microseconds": {"min": 20, "median": 25, "p99": 40, "max": 50},
    }],
}


def ranks(*names, host="n1"):
    """Reports of ranks whose NCCL wrote these logs."""
    logs = [nccl_log.parse((LOGS / (name + ".log")).read_text(encoding="utf-8")) for name in names]
    return [{"rank": rank, "host": host, "pid": 7, "transport": log} for rank, log in enumerate(logs)]


def problems(rule, *names):
    return evidence.transport_problems(rule, evidence.list_transports(ranks(*names)))


# --- the network -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["slingshot-1.6.0", "slingshot-1.14.2", "slingshot-1.19.0", "rccl-1.4.0"])
def test_s17_every_name_of_the_plugin_is_the_network_that_was_asked_for(name):
    assert problems(SLINGSHOT, name, name) == []


@pytest.mark.parametrize(("rule", "name", "said"), [
    (SLINGSHOT, "h200-sockets", "NCCL goes by the network Socket, which is forbidden here"),
    (SLINGSHOT, "h200-nvlink", "NCCL goes by the network Socket, which is forbidden here"),
    ({"networks": ["IB", "*libfabric*"]}, "h200-nvlink", "goes by the network Socket, and not by IB or *libfabric*"),
    (SLINGSHOT, "tcp-1.14.2", "NCCL's plugin takes libfabric's provider tcp;ofi_rxm, and not cxi"),
    ({"forbidden": ["sock*"]}, "h200-sockets", "forbidden"),
])
def test_s17_a_release_on_another_network_is_refused_though_it_works(rule, name, said):
    found = problems(rule, name)
    assert len(found) == 1 and found[0].startswith("rank 0 on n1: NCCL") and said in found[0]


def test_s17_one_rank_of_many_on_sockets_is_named():
    found = problems(SLINGSHOT, "slingshot-1.6.0", "h200-sockets", "slingshot-1.6.0", "h200-sockets")
    assert found == ["rank 1 on n1 and 1 more: NCCL goes by the network Socket, which is forbidden here"]


def test_s17_a_log_without_a_network_is_no_proof():
    silent = [{"rank": 0, "host": "n1", "transport": nccl_log.parse("")}]
    rows = evidence.list_transports(silent)
    assert evidence.transport_problems(SLINGSHOT, rows)[0].endswith("not said by which network it goes")
    unnamed = [dict(silent[0], transport=dict(silent[0]["transport"], networks=["Libfabric"]))]
    rows = evidence.list_transports(unnamed)
    assert "has not said which provider" in evidence.transport_problems(SLINGSHOT, rows)[0]


def test_where_nobody_has_said_which_network_it_has_to_be_the_record_says_so():
    rows = evidence.list_transports(ranks("h200-sockets"))
    assert evidence.transport_problems({}, rows) == []
    assert "recorded and not judged" in evidence.transport_gaps({}, rows, 1)[0]
    assert evidence.transport_gaps({}, [], 2) == []
    assert evidence.transport_gaps(SLINGSHOT, rows, 1) == []
    assert "not judged on 2 of 2 ranks" in evidence.transport_gaps(SLINGSHOT, [], 2)[0]


# --- the import ------------------------------------------------------------------------------------------------------


def test_the_slowest_rank_of_an_import_storm_is_named():
    reports = [
        {"rank": rank, "host": "n%d" % (rank // 2), "pid": 1, "import_seconds": {"torch": seconds}}
        for rank, seconds in enumerate((4.0, 5.0, 31.5, 6.0))
    ]
    seconds = evidence.import_seconds(reports)
    assert seconds == {"torch": {"median": 5.5, "slowest": {"rank": 2, "host": "n1", "seconds": 31.5}}}
    assert evidence.import_problems(30, seconds, 4) == [
        "rank 2 on n1 took 31.5 s to import torch, 4 ranks at once; at most 30 s are allowed"
    ]
    for ceiling in (0, 32):
        assert evidence.import_problems(ceiling, seconds, 4) == []
    assert evidence.import_problems(30, {}, 4) == []


# --- the speed -------------------------------------------------------------------------------------------------------


def floors(backend="gloo", busbw=2.0, microseconds=100.0):
    line = {"backend": backend, "operation": "all_reduce", "bytes": "1 MiB", "busbw": busbw, "source": "own runs"}
    return {"bandwidth": [line], "latency": [{"backend": backend, "bytes": 8, "microseconds": microseconds}]}


def judged(asked, checks=("torch_gloo",)):
    found = evidence.read_measurements([{"rank": 0, "measured": MEASURED}])
    return evidence.bandwidth_problems({"measure": {"floors": asked}, "checks": list(checks)}, found)


def test_s44_what_is_slower_than_its_floor_is_refused():
    wrong, gaps = judged(floors(busbw=2.0, microseconds=10.0))
    assert len(wrong) == 2 and "1 GB/s" in wrong[0] and "own runs" in wrong[0] and "25 microseconds" in wrong[1]
    assert gaps == [] and judged(floors(busbw=0.5)) == ([], [])


def test_floors_of_a_backend_that_could_not_run_are_said_and_those_of_one_that_had_to_are_missed():
    assert judged(floors("nccl")) == ([], ["The floors of nccl were not judged: it was not measured here."])
    wrong, gaps = judged(floors("nccl"), checks=("torch_nccl",))
    assert len(wrong) == 2 and "was not measured" in wrong[0] and gaps == []


def test_without_figures_and_floors_nothing_is_said():
    assert evidence.read_measurements([]) == {"measurements": [], "latency": [], "left_out": []}
    found = evidence.read_measurements([{"rank": 1, "measured": MEASURED}])
    assert evidence.bandwidth_problems({"checks": []}, found) == ([], [])


def test_figures_without_a_floor_are_said_to_be_recorded_only():
    assert judged({}) == ([], ["The speed is recorded and not judged: there is no floor for it."])
    assert judged({"bandwidth": [], "latency": []}) == judged({})


def test_the_variables_of_a_rank_are_kept_where_they_are_not_those_of_the_first():
    reports = ranks("slingshot-1.6.0", "slingshot-1.6.0", "h200-sockets")
    for report, network in zip(reports, ("AWS Libfabric", "AWS Libfabric", "Socket")):
        report["transport"]["variables"] = {"NCCL_NET": network}
    rows = evidence.list_transports(reports)
    assert [row.get("variables") for row in rows] == [{"NCCL_NET": "AWS Libfabric"}, None, {"NCCL_NET": "Socket"}]


# --- the place -------------------------------------------------------------------------------------------------------


def test_a_rank_on_cores_far_from_its_gpu_is_remarked():
    gpu = {"kind": "gpu", "index": 3, "bus": "0000:c7:00", "cpus": "0-7", "numa": "0", "gpu_numa": 1}
    rows = [
        {"rank": 0, "host": "Node1", "pid": 1, "device_facts": gpu},
        {"rank": 1, "host": "Node1", "pid": 2, "device_facts": dict(gpu, numa="0-1")},
        {"rank": 2, "host": "Node1", "pid": 3, "device_facts": dict(gpu, gpu_numa=None)},
        {"rank": 3, "host": "Node1", "pid": 4, "device_facts": {"kind": "cpu", "cpus": "0", "numa": "0"}},
    ]
    assert evidence.numa_remarks(rows) == [
        "Rank 0 on Node1 runs on cores of NUMA node 0, and its GPU 0000:c7:00 is at NUMA node 1."
    ]


def test_hosts_with_other_work_are_remarked_and_of_many_three_are_named():
    rows = [{"host": "n%d" % number, "device_facts": {"load": 7.94, "processors": 2}} for number in range(5)]
    sentence = "n0 had other work as the ranks began, a load of 7.9 on 2 processors: what was measured says little."
    assert evidence.load_remarks(rows[:1]) == [sentence]
    assert evidence.load_remarks(rows)[::3] == [sentence, "So had 2 more hosts."]


# --- all of it -------------------------------------------------------------------------------------------------------


def test_a_release_is_refused_for_its_network_its_import_and_its_speed_and_the_record_has_the_figures():
    reports = []
    for report in ranks("h200-nvlink", "h200-nvlink"):
        entry = {"name": "torch_nccl", "status": "passed", "problems": [], "note": "", "seconds": 1.0, "lacks": {}}
        place = {"kind": "gpu", "index": 0, "uuid": "u%d" % report["rank"], "cpus": "0", "numa": "0", "gpu_numa": 1}
        reports.append(dict(
            report, local_rank=0, size=2, stage="end", prefix="/r", files={}, libraries={}, device=place,
            checks=[entry], import_seconds={"torch": 9.0}, measured=MEASURED if report["rank"] == 0 else {},
        ))
    frames = [
        frame for report in reports for frame in rank_output.encode_frames("report", "%012x" % report["rank"], report)
    ]
    output = b"".join(frames).decode("ascii") + "%s exit\t0\n" % acceptance_output.EVENT
    question = {
        "ranks": 2, "checks": ["torch_nccl", "torch_gloo"], "where_possible": [], "imports": [],
        "module_system": "auto", "transport": SLINGSHOT, "import_ceiling": 5, "measure": {"floors": floors()},
    }
    verdict = acceptance_checks.check_reports(question, acceptance_output.parse_output(output))
    assert [failure.check for failure in verdict.failures] == ["transport", "import_time", "bandwidth"]
    assert "NCCL_NET" in verdict.failures[0].remedy and "acceptance_import_ceiling" in verdict.failures[1].remedy
    assert [(one["name"], one["status"]) for one in verdict.checks] == [
        ("torch_nccl", "passed"), ("transport", "failed"), ("import_time", "failed"), ("bandwidth", "failed"),
    ]
    assert verdict.evidence["measurements"] == MEASURED["measurements"]
    assert verdict.evidence["latency"] == MEASURED["latency"]
    assert [row["network"] for row in verdict.evidence["transports"]] == ["Socket", "Socket"]
    assert verdict.evidence["import_seconds"]["torch"]["median"] == 9.0
    assert len(verdict.evidence["remarks"]) == 2
    del question["transport"], question["import_ceiling"], question["measure"]
    verdict = acceptance_checks.check_reports(question, acceptance_output.parse_output(output))
    assert verdict.failures == []
    assert [one["name"] for one in verdict.checks] == ["torch_nccl"]
    assert [text.split(" is ")[0] for text in verdict.not_checked[-2:]] == ["NCCL's network", "The speed"]

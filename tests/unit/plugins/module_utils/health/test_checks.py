# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What facts about nodes mean, by the thresholds of the role."""

from __future__ import annotations

import copy
import json
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import checks as health_judgement
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import facts as health_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import nodes as health_fleet
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import records as health_records
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import sysfs as health_sysfs
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import thresholds as health_thresholds

yaml = pytest.importorskip("yaml")

CHECKOUT = pathlib.Path(__file__).resolve().parents[5]
FIXTURES = CHECKOUT / "tests" / "fixtures" / "health"
THRESHOLDS = yaml.safe_load((CHECKOUT / "roles/node_health/vars/main.yml").read_text())["__node_health_thresholds"]
QUERY = "nvidia-smi --query-remapped-rows=gpu_bus_id --format=csv,noheader"


def answer(command, output, status="ok", error=""):
    return {"command": command, "status": status, "code": 0, "output": output, "error": error, "seconds": 0.1}


def collected(generation="h200-580", replace=(), links=(), errors=(), log=(), host="n1"):
    """What the collector brings from a node whose GPUs are those of a fixture, with words replaced.

    The log is [seconds since the boot, text] of a node that was booted 100 hours ago.
    """
    def text(name, changes=()):
        found = (FIXTURES / generation / name).read_text()
        for old, new in changes:
            assert old in found
            found = found.replace(old, new, 1)
        return found

    xml = text("q.xml", replace)
    nvidia = [answer("nvidia-smi -q -x", xml), answer("nvidia-smi nvlink -s", text("nvlink-s.txt", links)),
              answer("nvidia-smi nvlink -e", text("nvlink-e.txt", errors)), answer(QUERY, text("remapped-rows.csv"))]
    pci = [
        {"address": gpu["address"], "class": "0x030200", "vendor": "0x10de", "driver": "nvidia",
         "current_link_width": "16", "max_link_width": "16", "current_link_speed": "2.5 GT/s PCIe",
         "max_link_speed": "32.0 GT/s PCIe"}
        for gpu in health_facts.health_nvidia.parse(xml)["gpus"]
    ]
    parts = {
        "machine": {"kernel": "5.14.0", "uptime": 360000.0}, "nvidia": nvidia, "pci": pci,
        "driver": {"version": text("version.txt"), "gpus": {device["address"]: "" for device in pci}},
        "fabric": {"infiniband": [], "cxi": [], "net": []},
        "log": {"source": "/dev/kmsg", "tried": {}, "lines": [list(line) for line in log], "total": 900, "left_out": 0,
                "since": 0.1},
    }
    return {"schema": 1, "host": host, "collected": "2026-11-22T03:00:00Z", "seconds": 1.0,
            "parts": {name: {"result": result, "problem": "", "seconds": 0.1} for name, result in parts.items()}}


def judge(node, expected=None, thresholds=None):
    return health_judgement.judge(health_facts.of(node), expected or {}, thresholds or THRESHOLDS)


def found(node, expected=None):
    """Findings as (severity, check, subject) with their messages."""
    return [(entry.severity, entry.check, entry.message) for entry in judge(node, expected).findings]


EXPECTED = {
    "v100-450": {"gpus": 4, "gpu_model": "*v100*", "nvlinks": 6, "nvlink_speed": 25, "pcie_width": 16},
    "a100-470": {"gpus": 4, "gpu_model": "*A100*", "nvlinks": 12, "nvlink_speed": 25, "pcie_generation": 4},
    "a100-525": {"gpus": 4, "driver": "525.*", "nvlinks": 12}, "h100-535": {"gpus": 4, "nvlinks": 18, "mig": False},
    "h100-550": {"gpus": 4, "nvlinks": 18, "vbios": ["96.00.99.00.01"]},
    "h200-580": {"gpus": 2, "gpu_model": "*H200*", "nvlinks": 18, "nvlink_speed": 26.5, "pcie_generation": 5},
}


@pytest.mark.parametrize("generation", EXPECTED)
def test_s29_a_healthy_node_of_any_driver_has_no_finding(generation):
    judged = judge(collected(generation), EXPECTED[generation])
    assert judged.findings == [] and judged.not_seen == []


def test_s29_the_log_of_a_healthy_h200_has_no_finding():
    lines = health_sysfs.parse_log((FIXTURES / "h200-580" / "kernel.txt").read_text())
    assert len(lines) == 10 and found(collected(log=lines)) == []


def test_the_usual_thresholds_are_well_formed_and_all_there():
    health_thresholds.check(THRESHOLDS, {})
    known = {*health_thresholds.NUMBERS, *health_thresholds.LISTS, *health_thresholds.OTHERS}
    assert set(THRESHOLDS) == known


@pytest.mark.parametrize("generation, old, new, severity, check, said", [
    ("a100-470", "<remapped_row_pending>No", "<remapped_row_pending>Yes", "failure", "remapped_rows", "wait for"),
    ("a100-525", "<remapped_row_failure>No", "<remapped_row_failure>Yes", "failure", "remapped_rows", "could not"),
    ("h100-535", "<remapped_row_unc>0", "<remapped_row_unc>513", "failure", "remapped_rows", "513 rows were remapped"),
    ("h100-535", "<remapped_row_unc>0", "<remapped_row_unc>512", "remark", "remapped_rows", "512 rows were remapped"),
    ("h200-580", "<dram_uncorrectable>0", "<dram_uncorrectable>1", "failure", "ecc", "1 errors in DRAM were unc"),
    ("h200-580", "<sram_correctable>0", "<sram_correctable>10001", "warning", "ecc", "10001 errors in SRAM"),
    ("h200-580", "<sram_threshold_exceeded>No", "<sram_threshold_exceeded>Yes", "failure", "ecc", "too many errors"),
    ("h200-580", "<unrepairable_memory>No", "<unrepairable_memory>Yes", "failure", "ecc", "cannot be repaired"),
    ("h200-580", "<gpu_recovery_action>None", "<gpu_recovery_action>Reset", "failure", "recovery", "asks for: Reset"),
    ("h100-535", "<reset_required>No", "<reset_required>Yes", "failure", "recovery", "asks for: Reset"),
    ("v100-450", "<retired_count>0", "<retired_count>62", "failure", "retired_pages", "62 pages"),
    ("v100-450", "<retired_count>0", "<retired_count>3", "remark", "retired_pages", "3 pages"),
    ("v100-450", "<pending_retirement>No", "<pending_retirement>Yes", "failure", "retired_pages", "wait to be retired"),
    ("h200-580", "<current_link_width>16x", "<current_link_width>8x", "warning", "pcie", "8 lanes of PCIe of 16"),
    ("h200-580", "hw_slowdown>Not Active", "hw_slowdown>Active", "failure", "throttling", "lowered: hw slowdown"),
    ("a100-470", "sw_thermal_slowdown>Not Active", "sw_thermal_slowdown>Active", "warning", "throttling", "sw thermal"),
    ("h200-580", "sw_power_cap>Not Active", "sw_power_cap>Active", "remark", "throttling", "sw power cap"),
    ("h200-580", "<persistence_mode>Enabled", "<persistence_mode>Disabled", "remark", "persistence", "is off"),
    ("h200-580", "<compute_mode>Default", "<compute_mode>Prohibited", "failure", "compute_mode", "No program may"),
    ("h100-535", "<state>Completed", "<state>In Progress", "failure", "nvlink_fabric", "In Progress"),
    ("h200-580", "<vbios_version>96.00.A5.00.1A", "<vbios_version>ERR!", "failure", "gpu", "says of it: ERR!"),
])
def test_s29_each_trouble_of_a_gpu_is_a_finding_with_source_and_remedy(generation, old, new, severity, check, said):
    (entry,) = judge(collected(generation, [(old, new)])).findings
    assert (entry.severity, entry.check) == (severity, check) and said in entry.message
    assert entry.subject.startswith("gpu 0 (0000:")
    if check in THRESHOLDS or check in ("ecc", "remapped_rows", "retired_pages", "throttling"):
        assert entry.source or check == "ecc"
    assert entry.remedy or severity == "remark"


def test_s29_a_lower_generation_of_an_idle_link_is_no_finding_and_a_lower_possible_one_is():
    idle = collected("a100-525", [("<current_link_gen>4", "<current_link_gen>1")])
    assert found(idle, {"pcie_generation": 4}) == []
    lower = collected("a100-525", [("<max_link_gen>4", "<max_link_gen>3")])
    assert found(lower, {"pcie_generation": 4}) == [
        ("failure", "pcie", "Its link cannot do more than generation 3 of PCIe.")]


def test_s29_errors_and_inactive_links_of_nvlink():
    node = collected(links=[("Link 3: 26.562 GB/s", "Link 3: <inactive>")],
                     errors=[("Link 2: Recovery Errors: 0", "Link 2: Recovery Errors: 4"),
                             ("Link 5: CRC Errors: 0", "Link 5: CRC Errors: 10")])
    entries = found(node, {"nvlinks": 18})
    assert ("failure", "nvlink", "17 links of NVLink are up, and these are not: 3.") in entries
    assert ("failure", "nvlink", "17 links of NVLink are up, and 18 on another NVIDIA H200 of this node.") in entries
    assert ("failure", "nvlink_errors", "Link 2 of NVLink has counted 4 (Recovery), all of its links 4.") in entries
    assert ("warning", "nvlink_errors", "Link 5 of NVLink has counted 10 (CRC), all of its links 10.") in entries
    assert len(entries) == 4
    slow = found(collected(links=[("Link 0: 26.562 GB/s", "Link 0: 13.281 GB/s")]), {"nvlink_speed": 26.5})
    assert slow == [("failure", "nvlink", "1 links of NVLink are slow, the first of them, 0, has 13.281 GB/s.")]


# --- how many GPUs ---------------------------------------------------------------------------------------------------


def without(node, count):
    """Take GPUs from what nvidia-smi shows, not from the bus."""
    asked = node["parts"]["nvidia"]["result"][0]
    first, *gpus = asked["output"].split("\t<gpu id=")
    asked["output"] = first + "".join("\t<gpu id=" + gpu for gpu in gpus[:len(gpus) - count]) + "</nvidia_smi_log>"
    return node


def test_s29_a_gpu_that_is_on_the_bus_and_not_seen_is_told_from_one_that_is_gone():
    hidden = without(collected("a100-470"), 1)
    (entry,) = judge(hidden, {"gpus": 4}).findings
    assert entry.severity == "failure" and "Have the job ask for all GPUs" in entry.remedy
    assert entry.message == "3 GPUs are seen by nvidia-smi of the 4 that are expected; on the bus are 4."
    (entry,) = judge(hidden).findings
    assert entry.severity == "remark" and "3 of the 4 GPUs" in entry.message
    hidden["parts"]["pci"]["result"].pop()
    hidden["parts"]["driver"]["result"]["gpus"].popitem()
    (entry,) = judge(hidden, {"gpus": 4}).findings
    assert entry.severity == "failure" and "fallen off the bus" in entry.remedy
    (entry,) = judge(collected("a100-470"), {"gpus": 2}).findings
    assert entry.severity == "warning" and "4 GPUs are seen by nvidia-smi where 2 are expected." in entry.message


def node_without_gpus():
    node = collected()
    parts = node["parts"]
    parts["nvidia"]["result"] = [answer("nvidia-smi -q -x", "", "missing")]
    parts["pci"]["result"], parts["driver"]["result"] = [], {"version": None, "gpus": {}}
    return node


def test_a_node_without_gpus_where_none_is_expected_is_well():
    assert judge(node_without_gpus()) == ([], [])
    assert judge(node_without_gpus(), {"gpus": 0}) == ([], [])
    entries = judge(node_without_gpus(), {"gpus": 4}).findings
    assert [entry.check for entry in entries] == ["nvidia_smi", "gpu_count"]
    assert entries[1].message == "No GPU can be seen where 4 are expected, and none is on the PCI bus."


@pytest.mark.parametrize("status, output, error, said", [
    ("missing", "", "", "nvidia-smi -q -x is not there."),
    ("denied", "", "Permission denied", "nvidia-smi -q -x may not be run by this account: Permission denied."),
    ("hung", "", "", "nvidia-smi -q -x did not end within its time."),
    ("endless", "x" * 100, "", "nvidia-smi -q -x printed without end"),
    ("failed", "Failed to initialize NVML: Driver/library version mismatch\n", "",
     "nvidia-smi -q -x failed: Failed to initialize NVML: Driver/library version mismatch."),
    ("ok", "\x00garbage\x01", "", "nvidia-smi -q -x printed what cannot be read: it is not the XML"),
    ("ok", "", "", "it is not the XML that nvidia-smi prints: it is empty"),
])
def test_s29_nvidia_smi_missing_hung_garbage_or_forbidden_is_a_finding(status, output, error, said):
    node = collected()
    node["parts"]["nvidia"]["result"] = [answer("nvidia-smi -q -x", output, status, error)]
    entries = judge(node, {"gpus": 2}).findings
    assert {(entry.severity, entry.check) for entry in entries} == {("failure", "nvidia_smi"), ("failure", "gpu_count")}
    assert said in entries[0].message and entries[0].remedy


def test_s29_gpus_that_nobody_expects_may_be_hidden_or_without_their_driver():
    hidden = collected()
    hidden["parts"]["nvidia"]["result"] = [answer("nvidia-smi -q -x", "No devices were found\n", "failed")]
    assert [entry.severity for entry in judge(hidden).findings] == ["remark"]
    assert [entry.severity for entry in judge(hidden, {"gpus": 2}).findings] == ["failure", "failure"]
    card = collected()
    card["parts"]["nvidia"]["result"] = [answer("nvidia-smi -q -x", "", "missing")]
    card["parts"]["driver"]["result"] = {"version": None, "gpus": {}}
    assert [entry.severity for entry in judge(card).findings] == ["remark"]
    sick = collected()
    sick["parts"]["nvidia"]["result"] = [answer("nvidia-smi -q -x", "", "hung")]
    assert [entry.severity for entry in judge(sick).findings] == ["failure"]
    assert [entry.severity for entry in judge(sick, {"gpus": 0}).findings if entry.check == "nvidia_smi"] == ["remark"]


def test_s29_cards_without_a_bridge_and_drivers_that_do_not_know_a_query_are_sound():
    node = collected()
    node["parts"]["nvidia"]["result"][1:] = [
        answer("nvidia-smi nvlink -s", "all links are inActive\n", "failed"),
        answer(QUERY, "not a valid field", "failed")]
    assert found(node) == [] and "no NVLink" in judge(node).not_seen[0]
    assert [entry[1] for entry in found(node, {"nvlinks": 18})] == ["nvidia_smi", "nvlink", "nvlink"]
    pair = collected()
    speeds = pair["parts"]["nvidia"]["result"][1]["output"]
    pair["parts"]["nvidia"]["result"][1]["output"] = speeds[:speeds.index("GPU 1")]
    pair["parts"]["nvidia"]["result"][2]["output"] = ""
    assert [entry[:2] for entry in found(pair)] == [("warning", "nvlink")]


@pytest.mark.parametrize("said, severities", [
    ("Requested functionality has been deprecated", []), ("Unknown", []), ("Some Word To Come", ["remark"]),
    ("Reboot", ["failure"]),
])
def test_only_known_requests_of_the_driver_are_failures(said, severities):
    node = collected(replace=[("<gpu_recovery_action>None", "<gpu_recovery_action>" + said)])
    assert [entry.severity for entry in judge(node).findings] == severities


def test_a_width_that_the_kernel_does_not_know_is_none():
    node = collected()
    node["parts"]["pci"]["result"].append({
        "address": "0000:21:00.0", "class": "0x020000", "vendor": "0x17db", "current_link_width": "16",
        "max_link_width": "255"})
    assert found(node) == []


def test_a_look_that_brought_nothing_is_a_finding():
    node = collected()
    node["parts"]["fabric"] = {"result": None, "problem": "it did not end within 150 seconds", "seconds": 150.0}
    assert found(node) == [
        ("failure", "collector", "Looking at fabric brought nothing: it did not end within 150 seconds.")]


def test_a_driver_that_was_replaced_under_a_running_system_is_a_failure():
    node = collected("a100-470")
    node["parts"]["driver"]["result"]["version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  450.51.06  Thu"
    assert found(node) == [
        ("failure", "driver", "The driver in the kernel is 450.51.06, and nvidia-smi speaks of 470.103.01.")]
    assert found(collected("a100-470"), {"driver": "535.*"}) == [("failure", "driver", "The driver is 470.103.01.")]


def test_gpus_of_amd_are_counted_and_what_is_missing_is_said():
    node = node_without_gpus()
    node["parts"]["pci"]["result"] = [
        {"address": "0000:%02x:00.0" % number, "class": "0x038000", "vendor": "0x1002", "current_link_width": "16",
         "max_link_width": "16", "current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe"}
        for number in range(8)
    ]
    judged = judge(node, {"gpus": 8})
    assert judged.findings == [] and "rocm-smi was not asked" in judged.not_seen[0]
    assert [entry.check for entry in judge(node, {"gpus": 9}).findings] == ["gpu_count"]


# --- the kernel's log ------------------------------------------------------------------------------------------------

XID = "NVRM: Xid (PCI:0000:07:00): %d, pid=4711, name=python, something"


@pytest.mark.parametrize("seconds, number, severity", [
    (359000.0, 79, "failure"), (100000.0, 79, "warning"), (359000.0, 13, "remark"), (359000.0, 94, "failure"),
])
def test_s29_an_xid_is_as_bad_as_the_list_says_and_as_it_is_old(seconds, number, severity):
    (entry,) = judge(collected("a100-470", log=[(seconds, XID % number)])).findings
    assert (entry.severity, entry.check, entry.subject) == (severity, "xid", "gpu (0000:07:00.0)")
    assert "Xid %d" % number in entry.message and "NHC" in entry.source


def test_s29_an_xid_of_a_part_of_a_gpu_is_one_of_that_gpu():
    said = "NVRM: Xid (PCI:0000:07:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1)."
    (entry,) = judge(collected("a100-470", log=[(359000.0, said)])).findings
    assert (entry.severity, entry.subject) == ("failure", "gpu (0000:07:00.0)")


def test_s29_an_xid_that_comes_often_is_one_finding():
    entries = found(collected("a100-470", log=[(359000.0 + place, XID % 31) for place in range(50)]))
    assert len(entries) == 1 and ", 50 times: " in entries[0][2]


def test_s29_pcie_that_is_limited_by_its_slot():
    said = "pci 0000:%s: 31.506 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:01.0"
    entries = judge(collected("a100-470", log=[(1.0, said % "07:00.0"), (1.0, said % "99:00.0")])).findings
    assert [(entry.severity, entry.subject) for entry in entries] == [
        ("warning", "0000:07:00.0"), ("remark", "0000:99:00.0")]


@pytest.mark.parametrize("said, severity", [
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0", "failure"),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0", "remark"),
    ("mce: [Hardware Error]: Machine check events logged", "warning"),
    ("INFO: task python:4711 blocked for more than 120 seconds.", "warning"),
    ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 32 LTSSM Fault Up", "failure"),
    ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 11012, Non-fatal, Link 7 errors", "warning"),
    ("cxi_core 0000:21:00.0: cxi0[hsn0]: link down", "warning"),
])
def test_other_messages_of_the_kernel(said, severity):
    node = collected("a100-470", log=[(359900.0, said)])
    node["parts"]["pci"]["result"].append({"address": "0000:21:00.0", "class": "0x020000", "vendor": "0x17db"})
    (entry,) = judge(node).findings
    assert entry.severity == severity and said in entry.message


def test_what_cannot_be_seen_without_root_is_said():
    node = collected()
    node["parts"]["log"]["result"] = {
        "source": "", "tried": {"dmesg": "Operation not permitted"}, "lines": [], "total": 0, "left_out": 0,
        "since": None,
    }
    judged = judge(node)
    assert judged.findings == [] and len(judged.not_seen) == 1
    assert "no Xid" in judged.not_seen[0] and "(dmesg: Operation not permitted)" in judged.not_seen[0]
    node["parts"]["log"]["result"] = dict(collected()["parts"]["log"]["result"], since=7200.0)
    assert judge(node).not_seen == [
        "The kernel's log begins 2.0 hours after the boot: what came before has been overwritten."]


# --- adapters and file systems ---------------------------------------------------------------------------------------


def with_fabric(**kinds):
    node = collected()
    node["parts"]["fabric"]["result"].update(kinds)
    return node


def port(name="mlx5_0", **more):
    own = {"device": name, "port": "1", "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)"}
    return dict(dict(own, link_layer="InfiniBand", fw_ver="20.31.1014", board_id="MT_0", counters={}), **more)


def cxi(name="cxi0", **more):
    return dict({"device": name, "link": "up", "speed": "BS_200G", "firmware": "1.5", "counters": {}}, **more)


def test_s29_adapters_that_are_expected_have_to_be_up_and_fast():
    wanted = {"fabric": [{"kind": "infiniband", "devices": 2, "rate": 200}]}
    assert found(with_fabric(infiniband=[port(), port("mlx5_1")]), wanted) == []
    down = with_fabric(infiniband=[port(), port("mlx5_1", state="1: DOWN")])
    assert found(down, wanted) == [("failure", "fabric", "1 ports of infiniband are up; mlx5_1/1 is DOWN.")]
    assert found(down) == [("remark", "fabric", "Its port is DOWN.")]
    slow = with_fabric(infiniband=[port(), port("mlx5_1", rate="100 Gb/sec (2X HDR)")])
    assert found(slow, wanted) == [("failure", "fabric", "Its rate is 100 Gb/s.")]
    errors = with_fabric(infiniband=[port(counters={"symbol_error": "11", "link_downed": "10"})])
    assert found(errors) == [("warning", "fabric_counters", "symbol_error has counted 11 since it was cleared.")]


def test_s29_slingshot_and_interfaces():
    wanted = {"fabric": [{"kind": "cxi", "devices": 2, "rate": 200}, {"kind": "net", "name": "hsn*", "mtu": 9000}]}
    interface = {"name": "hsn0", "operstate": "up", "speed": "200000", "mtu": "9000", "counters": {}}
    assert found(with_fabric(cxi=[cxi(), cxi("cxi1")], net=[interface]), wanted) == []
    sick = with_fabric(cxi=[cxi(), cxi("cxi1", link="down")], net=[dict(interface, mtu="1500")])
    assert found(sick, wanted) == [
        ("failure", "fabric", "1 ports of cxi are up; cxi1 is down."), ("warning", "fabric", "Its MTU is 1500.")]


def test_s29_a_port_whose_state_nobody_can_read_refuses_no_node():
    wanted = {"fabric": [{"kind": "cxi", "devices": 2}]}
    unread = with_fabric(cxi=[cxi(), cxi("cxi1", link=None)])
    assert found(unread, wanted) == [("warning", "fabric", "The kernel does not say whether its port is up.")]
    assert found(with_fabric(cxi=[cxi(link="Up"), cxi("cxi1")]), wanted) == []
    assert [entry[0] for entry in found(with_fabric(cxi=[cxi(link=None)]), wanted)] == ["warning", "failure"]
    counted = with_fabric(cxi=[cxi(counters={"hni_pcs_uncorrected_cw": "7@1700000000.1"})])
    assert found(counted) == [
        ("remark", "fabric_counters", "7 codewords could not be corrected since it was started.")]


def test_s31_a_file_system_that_is_slow_with_small_files_is_a_warning():
    times = {name: {"median": 0.1, "p99": 0.2, "max": 0.3} for name in ("create", "stat", "rename", "read", "unlink")}
    node = collected()
    place = {"directory": "/scratch", "kind": "lustre", "files": 100, "operations": times, "problem": ""}
    node["parts"]["storage /scratch"] = {"result": place, "problem": "", "seconds": 1.0}
    assert found(node) == []
    times["stat"] = {"median": 12.0, "p99": 40.0, "max": 41.0}
    (entry,) = judge(node).findings
    assert entry.severity == "warning" and entry.subject == "/scratch (lustre)"
    assert entry.message == "To stat a small file takes 12 ms (median of 100; p99 40)."
    node["parts"]["storage /scratch"] = {"result": None, "problem": "it did not end within 150 seconds", "seconds": 150}
    assert found(node) == [
        ("failure", "storage", "Small files could not be tried out there: it did not end within 150 seconds.")]
    place = dict(place, operations={}, problem="Read-only file system")
    node["parts"]["storage /scratch"] = {"result": place, "problem": "", "seconds": 1.0}
    assert found(node) == [("remark", "storage", "Small files could not be tried out there: Read-only file system.")]


# --- several nodes ---------------------------------------------------------------------------------------------------


def fleet(*nodes, asked=0):
    return [(entry.severity, entry.check, entry.message)
            for entry in health_fleet.judge_fleet([health_facts.of(node) for node in nodes], asked, THRESHOLDS)]


def test_s29_nodes_that_are_alike_have_no_finding():
    assert fleet(*(collected(host="n%d" % number) for number in range(3)), asked=3) == []


def test_s29_another_vbios_or_driver_is_named_with_who_has_it():
    odd = collected(host="n3", replace=[("<vbios_version>96.00.A5.00.1A", "<vbios_version>96.00.88.00.11")])
    assert fleet(collected(host="n1"), collected(host="n2"), odd) == [(
        "failure", "vbios", "There are 2 versions of the VBIOS of NVIDIA H200: 96.00.A5.00.1A on n1 gpu 0, n1 gpu 1, "
        "n2 gpu 0, n2 gpu 1, n3 gpu 1; 96.00.88.00.11 on n3 gpu 0.")]
    older = collected(host="n3", replace=[("580.159.04", "580.105.08")])
    assert fleet(collected(host="n1"), collected(host="n2"), older) == [(
        "failure", "driver", "There are 2 versions of the driver of the GPUs: 580.159.04 on n1, n2; 580.105.08 on n3.")]


def test_nodes_that_did_not_answer_or_answered_twice():
    said = fleet(collected(host="n1"), collected(host="n1"), asked=2)
    assert [entry[:2] for entry in said] == [("failure", "nodes"), ("failure", "nodes")]
    assert said[0][2].startswith("n1 answered more than once") and said[1][2] == "1 of 2 nodes have answered: n1."
    assert fleet(asked=4) == [("failure", "nodes", "0 of 4 nodes have answered.")]


# --- data that nobody could judge by ---------------------------------------------------------------------------------


@pytest.mark.parametrize("thresholds, expected, said", [
    ({"ecc": {"failure": 0, "source": "x"}}, {}, "There is no threshold 'ecc'"),
    ({"retired_pages": {"failure": 0}}, {}, "The threshold retired_pages has no source."),
    ({"retired_pages": {"failure": "many", "source": "x"}}, {}, "says 'many' for failure, which is no number."),
    ({"xid": {"failure": 79, "source": "x"}}, {}, "The threshold xid says 79 for failure, which is no list."),
    ({"kernel_messages": [{"match": "(", "severity": "failure", "source": "x"}]}, {}, "which is no regular expression"),
    ({"kernel_messages": [{"match": "a", "severity": "bad", "source": "x"}]}, {}, "has the severity 'bad'"),
    ({"infiniband_counters": {"warning": [1], "source": "x"}}, {}, "no mapping of counters to numbers"),
    ({}, {"gpu": 4}, "node_health_expected has the key 'gpu'; known are gpus,"),
    ({}, {"gpus": "four"}, "node_health_expected.gpus is 'four', which is not of the right type."),
    ({}, {"fabric": [{"kind": "ethernet"}]}, "whose kind is none of infiniband, cxi, net."),
])
def test_bad_data_is_refused_with_one_sentence(thresholds, expected, said):
    with pytest.raises(StackError) as caught:
        health_thresholds.check(thresholds, expected)
    assert said in caught.value.message


def test_what_has_no_threshold_is_not_judged():
    sick = collected(replace=[("<remapped_row_pending>No", "<remapped_row_pending>Yes")],
                     log=[(359000.0, XID % 79)])
    assert health_judgement.judge(health_facts.of(sick), {}, {}).findings == []


# --- the record ------------------------------------------------------------------------------------------------------

QUESTION = {"expected": {"gpus": 2}, "thresholds": THRESHOLDS, "subject": "s1", "nodes": 2}


def record(*raw):
    nodes, troubles = health_records.read(raw, QUESTION)
    return health_records.compose(nodes, troubles, QUESTION, "builder", "2026-11-22T03:00:00Z", 2.0)


def test_the_record_names_nodes_findings_and_gaps():
    sick = collected(host="n2", replace=[("<remapped_row_failure>No", "<remapped_row_failure>Yes")])
    kept = json.loads(json.dumps(record(sick, collected(host="n1"))))
    assert not kept["passed"] and [node["host"] for node in kept["nodes"]] == ["n1", "n2"]
    described = health_records.described(kept)
    assert described["summary"] == "Not healthy: 2 nodes looked at in 2.0 s; 1 failures, 0 warnings, 0 remarks."
    assert health_records.sentence(described["findings"][0]) == (
        "n2 gpu 0 (0000:00:06.0): A row could not be remapped (threshold 0: NHC, azure_gpu_ecc; debug chapter: 0).")
    assert described["table"].splitlines()[2].split() == [
        "n2", "2", "NVIDIA", "H200", "580.159.04", "18", "seen", "1", "0", "0"]
    assert described["not_checked"] == ["Another job, that of the acceptance too, may get other nodes than n1, n2."]
    hidden = json.loads(json.dumps(kept))
    hidden["nodes"][0]["not_seen"] = hidden["nodes"][1]["not_seen"] = ["The log was not seen."]
    assert health_records.gaps(hidden)[0] == "On n1, n2: The log was not seen."
    # No line of the log and no single link: the record of many nodes stays small.
    assert len(json.dumps(kept["nodes"][0])) < 6000 and "lines" not in kept["nodes"][0]["facts"]["log"]


def test_an_answer_that_cannot_be_read_is_a_finding_of_that_node():
    kept = record(collected(host="n1"), {"host": "n2", "schema": 7, "parts": {}}, "garbage")
    assert [finding["subject"] for finding in kept["findings"]] == ["n2", "a node", "nodes"]
    assert "its schema is 7" in kept["findings"][0]["message"]


@pytest.mark.parametrize("change, again, accepted, reason", [
    ({}, False, True, ""), ({}, True, True, "it was asked for again"),
    ({}, False, False, "the release is not accepted yet, and nodes change"),
    ({"subject": "s2"}, False, True, "the last look was for another state of this release"),
    ({"nodes": 3}, False, True, "the site now asks for something else: nodes"),
])
def test_a_look_holds_for_a_release_that_is_accepted_since(change, again, accepted, reason):
    last = json.loads(json.dumps(record(collected(host="n1"), collected(host="n2"))))
    assert last["passed"]
    asked = dict(copy.deepcopy(QUESTION), **change)
    assert health_records.reason_to_look(last, asked, again, accepted) == reason
    assert health_records.reason_to_look(None, asked, again, accepted) == "the nodes were not looked at yet"
    failed = dict(last, passed=False)
    assert health_records.reason_to_look(failed, asked, False, accepted) == "the last look found failures"

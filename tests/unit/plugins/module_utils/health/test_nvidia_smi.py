# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What nvidia-smi prints, of several generations of the driver."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import nvidia_smi as health_nvidia

FIXTURES = pathlib.Path(__file__).resolve().parents[4] / "fixtures" / "health"
GENERATIONS = {
    # directory -> GPUs, model, links of NVLink, their speed, whether rows are remapped
    "v100-450": (4, "Tesla V100-SXM2-16GB", 6, 25.781, False),
    "a100-470": (4, "NVIDIA A100-SXM4-40GB", 12, 25.0, True),
    "a100-525": (4, "NVIDIA A100-SXM4-40GB", 12, 25.0, True),
    "h100-535": (4, "NVIDIA H100 80GB HBM3", 18, 26.562, True),
    "h100-550": (4, "NVIDIA H100 80GB HBM3", 18, 26.562, True),
    "h200-580": (2, "NVIDIA H200", 18, 26.562, True),
}


def text(generation, name):
    return (FIXTURES / generation / name).read_text()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_s29_healthy_gpus_of_every_generation_say_the_same_of_themselves(generation):
    count, model, links, speed, remaps = GENERATIONS[generation]
    found = health_nvidia.parse(text(generation, "q.xml"))
    assert found["driver"].startswith(generation[-3:]) and found["attached"] == len(found["gpus"]) == count
    health_nvidia.join_nvlinks(
        found["gpus"], health_nvidia.nvlink_speeds(text(generation, "nvlink-s.txt")),
        health_nvidia.nvlink_errors(text(generation, "nvlink-e.txt")),
    )
    for gpu in found["gpus"]:
        assert gpu["name"] == model and gpu["vbios"] and gpu["persistence"] is True and gpu["ecc"] is True
        assert gpu["errors"]["volatile"] == gpu["errors"]["aggregate"] == {
            "sram_corrected": 0, "sram_uncorrected": 0, "dram_corrected": 0, "dram_uncorrected": 0}
        assert gpu["remapped"] == (
            {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False} if remaps else None)
        assert gpu["retired"] == (None if remaps else {"single_bit": 0, "double_bit": 0, "pending": False})
        assert gpu["pcie"]["width"] == gpu["pcie"]["width_max"] == 16 and gpu["pcie"]["replays"] == 0
        assert gpu["throttled"] == [] and gpu["recovery_action"] == "" and gpu["broken"] == ""
        assert [link["speed"] for link in gpu["nvlinks"]] == [speed] * links
        assert all(link["errors"] == {"Replay": 0, "Recovery": 0, "CRC": 0} for link in gpu["nvlinks"])
    rows = health_nvidia.remapped_rows(text(generation, "remapped-rows.csv"))
    assert set(rows) == {gpu["address"] for gpu in found["gpus"]}
    assert all(row["pending"] is (False if remaps else None) for row in rows.values())


@pytest.mark.parametrize("generation, old, new, memory, count", [
    ("a100-470", "<sram_uncorrectable>0", "<sram_uncorrectable>3", "sram_uncorrected", 3),
    ("h100-550", "<sram_uncorrectable_parity>0", "<sram_uncorrectable_parity>2", "sram_uncorrected", 2),
    ("h200-580", "<sram_uncorrectable_secded>0", "<sram_uncorrectable_secded>5", "sram_uncorrected", 5),
    ("h200-580", "<dram_correctable>0", "<dram_correctable>10", "dram_corrected", 10),
])
def test_s29_errors_of_memory_are_found_under_all_their_names(generation, old, new, memory, count):
    found = health_nvidia.parse(text(generation, "q.xml").replace(old, new, 1))
    assert found["gpus"][0]["errors"]["volatile"][memory] == count
    assert found["gpus"][1]["errors"]["volatile"][memory] == 0


def test_s29_errors_that_are_counted_by_bits_are_divided_by_memory():
    broken = text("v100-450", "q.xml")
    double = broken.index("<double_bit>")
    broken = broken[:double] + broken[double:].replace("<device_memory>0", "<device_memory>2", 1).replace(
        "<l2_cache>0", "<l2_cache>1", 1).replace("<total>0", "<total>3", 1)
    errors = health_nvidia.parse(broken)["gpus"][0]["errors"]["volatile"]
    assert errors == {"sram_corrected": 0, "sram_uncorrected": 1, "dram_corrected": 0, "dram_uncorrected": 2}


@pytest.mark.parametrize("generation, word", [("a100-470", "throttle"), ("h100-535", "event"), ("h200-580", "event")])
def test_reasons_for_low_clocks_have_one_name_and_idleness_is_none(generation, word):
    tag = "clocks_%s_reason_hw_thermal_slowdown" % word
    found = health_nvidia.parse(text(generation, "q.xml").replace("<%s>Not Active" % tag, "<%s>Active" % tag, 1))
    assert [gpu["throttled"] for gpu in found["gpus"]][:2] == [["hw_thermal_slowdown"], []]


def test_a_gpu_at_work_tells_of_its_limits_and_of_who_uses_it():
    (gpu,) = health_nvidia.parse(text("h200-580", "q-busy.xml"))["gpus"]
    assert gpu["throttled"] == ["sw_power_cap"] and gpu["processes"] == 1 and gpu["temperature"] == 56
    assert gpu["fabric_state"] == "" and health_nvidia.nvlink_speeds("") == {}


@pytest.mark.parametrize("output", [
    "", "No devices were found\n", "\x00\x17" * 50, "<?xml version='1.0'?><nvidia_smi_log>",
])
def test_what_is_no_such_output_is_said_to_be_none(output):
    with pytest.raises(ValueError, match="not the XML that nvidia-smi prints"):
        health_nvidia.parse(output)


def test_half_of_an_output_is_garbage_and_not_fewer_gpus():
    whole = text("a100-470", "q.xml")
    with pytest.raises(ValueError, match="cannot be read"):
        health_nvidia.parse(whole[:2000] + whole[-200:])


def test_warnings_around_the_xml_do_not_hide_it():
    said = text("h200-580", "q.xml") + "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n"
    assert len(health_nvidia.parse("warning\n" + said)["gpus"]) == 2


def test_a_lost_gpu_is_broken_and_its_counts_are_unknown():
    lost = text("h200-580", "q.xml").replace("<vbios_version>96.00.A5.00.1A", "<vbios_version>GPU is lost", 1)
    lost = lost.replace("<dram_correctable>0", "<dram_correctable>Unknown Error", 1)
    gpu = health_nvidia.parse(lost)["gpus"][0]
    assert gpu["broken"] in ("GPU is lost", "Unknown Error")
    assert gpu["errors"]["volatile"]["dram_corrected"] is None


def test_only_a_speed_is_a_link_that_is_up():
    said = "GPU 0: A (UUID: GPU-a)\n\t Link 0: <inactive>\n\t Link 1: 25 GB/s\n\t Link 2: a word to come\n"
    said += "GPU 1: B\n\t Link 0: 50 GB/s\n"
    assert health_nvidia.nvlink_speeds(said) == {"GPU-a": {0: None, 1: 25.0, 2: None}, "1": {0: 50.0}}
    assert health_nvidia.nvlink_speeds("NVML: Unable to retrieve NVLink information as all links are inActive\n") == {}


def test_counters_of_other_generations_keep_their_names():
    said = "GPU 0: A (UUID: GPU-a)\n\t Link 0: Symbol Errors: 7\n\t Link 0: Tx discards: 1\n"
    said += "\t Link 0: CRC Errors: N/A\n"
    assert health_nvidia.nvlink_errors(said) == {"GPU-a": {0: {"Symbol": 7, "Tx discards": 1}}}


@pytest.mark.parametrize("said, place", [
    ("00000000:C1:00.0", "0000:c1:00.0"), ("0000:c1:00", "0000:c1:00.0"), ("10000000:01:00.0", "10000000:01:00.0"),
    ("c1:00.0", "0000:c1:00.0"), ("somewhere", "somewhere"),
])
def test_a_place_on_the_bus_is_written_in_one_way(said, place):
    assert health_nvidia.address(said) == place

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a rank is: its number, its cores and memory nodes, its GPU."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import placement


def test_s43_the_program_asks_the_one_place_that_knows_launchers():
    hydra = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
    assert placement.read_placement(hydra) == {
        "source": "pmi", "rank": 5, "size": 8, "local_rank": 1, "local_size": 4, "node": None, "nodes": None,
    }
    with pytest.raises(ValueError, match="its number on its node"):
        placement.read_placement({"PMI_RANK": "1", "PMI_SIZE": "2"})


def test_cores_are_written_as_ranges_and_read_back():
    assert placement.format_ranges({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert placement.parse_ranges("0-2,5,7-8\n") == {0, 1, 2, 5, 7, 8}
    assert placement.format_ranges([]) == ""
    assert placement.parse_ranges("\n") == set()


def test_a_rank_on_cores_names_them_and_their_memory_nodes(tmp_path):
    for number, cores in ((0, "%d" % min(os.sched_getaffinity(0))), (1, "1000-1001")):
        (tmp_path / ("node%d" % number)).mkdir()
        (tmp_path / ("node%d" % number) / "cpulist").write_text(cores + "\n")
    device = placement.describe_cpus(str(tmp_path))
    assert (device.pop("load") >= 0, device.pop("processors")) == (True, os.cpu_count())
    assert device == {"kind": "cpu", "cpus": placement.format_ranges(os.sched_getaffinity(0)), "numa": "0"}


def test_a_host_with_a_load_of_one_for_each_processor_has_other_work():
    facts = [{"load": 1.9, "processors": 2}, {"load": 2.0, "processors": 2}, {"load": 9.0, "processors": 2},
             {"load": "x", "processors": 2}, {"load": 9.0}, {}, None, "x"]
    rows = [{"host": "n%d" % number, "device_facts": one} for number, one in enumerate(facts)]
    assert placement.busy_hosts([*rows, {}, {"host": "n1", "device_facts": facts[2]}]) == [
        ("n1", 2.0, 2), ("n2", 9.0, 2)]


@pytest.mark.parametrize("environment, number", [
    ({}, 0), ({"ROCR_VISIBLE_DEVICES": "3"}, 3), ({"CUDA_VISIBLE_DEVICES": "2,1"}, 2),
    ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, 5), ({"CUDA_VISIBLE_DEVICES": "GPU-1f"}, 0),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}, 1),
])
def test_a_gpu_that_a_rank_sees_alone_goes_by_the_number_that_the_machine_has_for_it(environment, number):
    assert placement.physical_index(0, environment) == number


def test_the_memory_node_of_a_gpu_is_what_the_kernel_says(tmp_path):
    for bus, text in (("0000:c7:00", "3\n"), ("0000:07:00", "-1\n"), ("0000:08:00", "?")):
        (tmp_path / (bus + ".0")).mkdir()
        (tmp_path / (bus + ".0") / "numa_node").write_text(text)
    assert placement.numa_node("0000:c7:00", str(tmp_path)) == 3
    for bus in ("0000:07:00", "0000:08:00", "0000:09:00", ""):
        assert placement.numa_node(bus, str(tmp_path)) is None


def test_s07_a_gpu_is_known_by_its_uuid_else_by_host_and_address():
    def place(rank, host, **device):
        return {"rank": rank, "host": host, "device": dict({"kind": "gpu", "index": 0}, **device)}

    shared = [place(0, "a", uuid="u", bus="1"), place(1, "a", uuid="v", bus="1"), place(2, "b", uuid="u", bus="2")]
    assert placement.find_shared_gpus(shared) == [("u", [0, 2])]
    assert placement.find_shared_gpus([place(0, "a", bus="1"), place(1, "b", bus="1"), place(2, "a", bus="1")]) == [
        ("a 1", [0, 2])
    ]
    cores = {"rank": 0, "host": "a", "device": {"kind": "cpu", "cpus": "0"}}
    assert placement.find_shared_gpus([cores, dict(cores, rank=1)]) == []

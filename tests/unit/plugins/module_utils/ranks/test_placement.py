# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a rank is: its number, its cores and memory nodes, its GPU."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import placement as rank_place


def test_s43_the_program_asks_the_one_place_that_knows_launchers():
    hydra = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
    assert rank_place.placement(hydra) == {
        "source": "pmi", "rank": 5, "size": 8, "local_rank": 1, "local_size": 4, "node": None, "nodes": None,
    }
    with pytest.raises(ValueError, match="its number on its node"):
        rank_place.placement({"PMI_RANK": "1", "PMI_SIZE": "2"})


def test_cores_are_written_as_ranges_and_read_back():
    assert rank_place.ranges({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert rank_place.expand("0-2,5,7-8\n") == {0, 1, 2, 5, 7, 8}
    assert rank_place.ranges([]) == ""
    assert rank_place.expand("\n") == set()


def test_a_rank_on_cores_names_them_and_their_memory_nodes(tmp_path):
    for number, cores in ((0, "%d" % min(os.sched_getaffinity(0))), (1, "1000-1001")):
        (tmp_path / ("node%d" % number)).mkdir()
        (tmp_path / ("node%d" % number) / "cpulist").write_text(cores + "\n")
    device = rank_place.cpu_device(str(tmp_path))
    assert device == {"kind": "cpu", "cpus": rank_place.ranges(os.sched_getaffinity(0)), "numa": "0"}


@pytest.mark.parametrize("environment, number", [
    ({}, 0), ({"ROCR_VISIBLE_DEVICES": "3"}, 3), ({"CUDA_VISIBLE_DEVICES": "2,1"}, 2),
    ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, 5), ({"CUDA_VISIBLE_DEVICES": "GPU-1f"}, 0),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}, 1),
])
def test_a_gpu_that_a_rank_sees_alone_goes_by_the_number_that_the_machine_has_for_it(environment, number):
    assert rank_place.card(0, environment) == number


def test_the_memory_node_of_a_gpu_is_what_the_kernel_says(tmp_path):
    for bus, text in (("0000:c7:00", "3\n"), ("0000:07:00", "-1\n"), ("0000:08:00", "?")):
        (tmp_path / (bus + ".0")).mkdir()
        (tmp_path / (bus + ".0") / "numa_node").write_text(text)
    assert rank_place.memory_node("0000:c7:00", str(tmp_path)) == 3
    for bus in ("0000:07:00", "0000:08:00", "0000:09:00", ""):
        assert rank_place.memory_node(bus, str(tmp_path)) is None


def test_s07_a_gpu_is_known_by_its_uuid_else_by_host_and_address():
    def place(rank, host, **device):
        return {"rank": rank, "host": host, "device": dict({"kind": "gpu", "index": 0}, **device)}

    shared = [place(0, "a", uuid="u", bus="1"), place(1, "a", uuid="v", bus="1"), place(2, "b", uuid="u", bus="2")]
    assert rank_place.shared_gpus(shared) == [("u", [0, 2])]
    assert rank_place.shared_gpus([place(0, "a", bus="1"), place(1, "b", bus="1"), place(2, "a", bus="1")]) == [
        ("a 1", [0, 2])
    ]
    cores = {"rank": 0, "host": "a", "device": {"kind": "cpu", "cpus": "0"}}
    assert rank_place.shared_gpus([cores, dict(cores, rank=1)]) == []

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which CPUs go with which GPU."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import topology

CHECKOUT = pathlib.Path(__file__).parents[5]
TEXTS = CHECKOUT / "tests" / "fixtures" / "topology"
LUMI = CHECKOUT / "inventories" / "lumi" / "topology"
LUMI_MASKS = [
    "0xfe000000000000", "0xfe00000000000000", "0xfe0000", "0xfe000000", "0xfe", "0xfe00", "0xfe00000000",
    "0xfe0000000000",
]


def text(name):
    return (TEXTS / name).read_text()


def bound(node, lscpu="lscpu-p.txt", **how):
    cores, gpus = topology.cores(text("%s/%s" % (node, lscpu))), topology.gpus(text("%s/nvidia-smi.txt" % node))
    return topology.binding(cores, gpus, **how)


def on_lumi(**how):
    cores, gpus = topology.cores((LUMI / "lscpu.txt").read_text()), topology.gpus((LUMI / "gpus.txt").read_text())
    return topology.binding(cores, gpus, **how)


def table(cores, threads=1, per_node=4, per_cache=4):
    """What lscpu -p prints of a small machine."""
    rows = [(cpu, cpu % cores, cpu % cores // per_node, cpu % cores // per_cache) for cpu in range(cores * threads)]
    return "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n" + "".join(
        "%d,%d,0,%d,,%d,%d,%d,%d\n" % (cpu, core, node, core, core, core, cache) for cpu, core, node, cache in rows)


def rocm(*nodes):
    """What rocm-smi prints of GPUs at NUMA nodes."""
    return "".join("GPU[%d]\t\t: (Topology) Numa Affinity: %s\n" % place for place in enumerate(nodes))


def divided(lscpu, nodes, **how):
    """The CPUs of each GPU, as lists."""
    shares = topology.binding(topology.cores(lscpu), topology.gpus(rocm(*nodes)), **how).shares
    return [topology.listed(share.cpus) for share in shares]


# --- the masks that sites publish ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserved", ["first-of-cache", "0,8,16,24,32,40,48,56"])
def test_s37_lumis_eight_masks_follow_from_its_topology(reserved):
    found = on_lumi(reserved=reserved)
    assert found.masks == LUMI_MASKS
    assert found.first_cpus == [49, 57, 17, 25, 1, 9, 33, 41]
    assert found.gpus_by_cpu == [4, 5, 2, 3, 6, 7, 0, 1]
    assert found.cpus_per_task == 7
    assert found.notes == ()


def test_s37_both_hardware_threads_are_the_same_mask_and_itself_shifted_by_64():
    assert on_lumi(reserved="first-of-cache", threads="all").masks == [
        hex(int(mask, 16) | int(mask, 16) << 64) for mask in LUMI_MASKS]


def test_s37_what_the_batch_system_takes_away_needs_no_reservation():
    allowed = {cpu for cpu in range(128) if cpu % 8}
    assert on_lumi(allowed=allowed).masks == LUMI_MASKS


def test_s37_four_gpus_on_64_cores_with_two_threads():
    found = bound("a100")
    assert found.masks == ["0xffff000000000000", "0xffff00000000", "0xffff0000", "0xffff"]
    assert found.gpus_by_cpu == [3, 2, 1, 0]
    both = bound("a100", threads="all")
    assert [topology.listed(share.cpus) for share in both.shares] == [
        "48-63,112-127", "32-47,96-111", "16-31,80-95", "0-15,64-79"]
    assert both.cpus_per_task == 32


@pytest.mark.parametrize("lscpu", ["lscpu-p.txt", "lscpu-p-columns.txt", "lscpu-e.txt", "lscpu.txt"])
def test_s37_two_gpus_that_share_one_cache_as_recorded(lscpu):
    found = bound("h200", lscpu)
    assert found.masks == ["0xffff", "0xffff0000"]
    assert [note for note in found.notes if "not known" in note] == list(found.notes)
    assert bool(found.notes) == (lscpu == "lscpu.txt")


# --- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lscpu, nodes, expected", [
    pytest.param(table(8, per_cache=2), [1, 1, 0, 0], ["4-5", "6-7", "0-1", "2-3"], id="a cache for each"),
    pytest.param(table(8, per_cache=1, per_node=8), [0, 0], ["0-3", "4-7"], id="several caches for each"),
    pytest.param(table(8, per_cache=4), [0, 0, 1, 1], ["0-1", "2-3", "4-5", "6-7"], id="a cache for several"),
    pytest.param(table(12, per_cache=4, per_node=12), [0, 0], ["0-5", "6-11"], id="caches that cannot be dealt out"),
    pytest.param(table(8, per_node=8), [0, 0, 0], ["0-1", "2-3", "4-5"], id="cores that are left over"),
    pytest.param(table(16, per_cache=4, per_node=16), [0] * 6, ["0-1", "2-3", "4-5", "8-9", "10-11", "12-13"],
                 id="two caches for three"),
])
def test_s37_caches_are_dealt_out_whole_and_else_whole_cores_in_equal_numbers(lscpu, nodes, expected):
    assert divided(lscpu, nodes) == expected


def test_where_a_cache_has_fewer_cores_than_gpus_all_cores_are_divided():
    lscpu = table(12, per_cache=4, per_node=12)
    assert divided(lscpu, [0] * 6, reserved="1-3,5-7") == ["0", "4", "8", "9", "10", "11"]


def test_a_cache_that_is_reserved_as_a_whole_is_not_dealt_out():
    assert divided(table(12, per_cache=4, per_node=12), [0, 0], reserved="0-3") == ["4-7", "8-11"]


def test_with_a_reserved_thread_goes_its_core():
    assert divided(table(4, threads=2), [0], reserved="5", threads="all") == ["0,2-4,6-7"]


def test_threads_of_a_core_may_be_numbered_side_by_side():
    lscpu = "# CPU,Core\n" + "".join("%d,%d\n" % (cpu, cpu // 2) for cpu in range(8))
    assert divided(lscpu, [0, 0]) == ["0,2", "4,6"]
    assert divided(lscpu, [0, 0], threads="all") == ["0-3", "4-7"]


def test_cpus_that_are_offline_are_left_out():
    rows = table(4, threads=2).splitlines()
    assert divided("\n".join(row if row[0] not in "26" else row[0] + ",,,,,,,," for row in rows), [0]) == ["0-1,3"]
    extended = "CPU NODE SOCKET CORE L2:L3 ONLINE\n0 0 0 0 0:0 yes\n1 - - - -:- no\n2 0 0 2 2:0 yes\n"
    assert divided(extended, [0]) == ["0,2"]
    # Of a core with one thread offline, the other one serves.
    assert divided("\n".join(row if row[0] != "2" else "2,,,,,,,," for row in rows), [0]) == ["0-1,3,6"]


def test_what_is_left_over_and_what_no_gpu_is_next_to_is_told():
    found = topology.binding(topology.cores(table(12, per_node=6, per_cache=6)), topology.gpus(rocm(1, 1, 1, 1)))
    assert found.notes == (
        "CPUs 10-11 are left over, as all GPUs of a NUMA node get as many.",
        "NUMA nodes 0 have no GPU, and their 6 cores are not used.",
    )


# --- what is printed -------------------------------------------------------------------------------------------------


def test_the_gpus_of_a_machine_with_one_numa_node_are_next_to_it_whatever_is_said():
    assert divided(table(4), ["-1"]) == ["0-3"]


def test_the_cpus_tell_the_numa_node_where_that_is_not_said():
    said = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t4-7\tN/A\nGPU1\tSYS\t X \t0-3\t\n"
    found = topology.binding(topology.cores(table(8)), topology.gpus(said))
    assert found.masks == ["0xf0", "0xf"]


def test_tabs_may_have_become_spaces():
    said = text("a100/nvidia-smi.txt").expandtabs()
    assert topology.gpus(said) == topology.gpus(text("a100/nvidia-smi.txt"))


def test_gpus_may_be_next_to_several_numa_nodes_together():
    said = "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-7 0-1\nGPU1 SYS X 0-7 0-1\n"
    assert topology.binding(topology.cores(table(8)), topology.gpus(said)).masks == ["0xf", "0xf0"]


def test_a_node_of_memory_next_to_a_gpu_does_not_count_beside_one_with_cpus():
    said = "GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X 4-7 1,8 8\n"
    assert topology.binding(topology.cores(table(8)), topology.gpus(said)).masks == ["0xf0"]


def test_what_rocm_smi_says_beside_the_numa_nodes_is_passed_over():
    said = (LUMI / "gpus.txt").read_text()
    assert topology.gpus("GPU0   0   XGMI\n" + said.replace("GPU[", "GPU ").replace("]", "")) == topology.gpus(said)


@pytest.mark.parametrize("values, written", [([], ""), ([3], "3"), ([8, 0, 1, 2], "0-2,8"), ([1, 0], "0-1")])
def test_lists_are_written_as_the_kernel_writes_them(values, written):
    assert topology.listed(values) == written
    assert not written or topology.numbers(written) == frozenset(values)


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lscpu, said", [
    ("", "the header line is missing"),
    ("0,0,0,0,,0,0,0,0\n", "the header line is missing"),
    ("# CPU,Core\n", "no CPU that is online"),
    ("# CPU,Core\n0,0\n1\n", "'1' of lscpu's text has 1 columns, and its header has 2"),
    ("# CPU,Core\n0,0\nx,0\n", "'x' in its column CPU, which is not a number"),
    ("# CPU,Core\n0,0\n0,1\n", "has CPU 0 twice"),
    ("# CPU,Node\n0,0\n", "no column CORE"),
    ("# CPU,Core,Node\n0,0,0\n1,0,1\n", "CPUs 0-1 are of one core, but not of one NUMA node"),
    ("Thread(s) per core: 2\nNUMA node0 CPU(s): 0-3\n", "does not tell which CPUs are of one core"),
    ("Thread(s) per core: 1\nNUMA node0 CPU(s):\n", "no CPU that is online"),
])
def test_text_that_lscpu_has_not_printed_is_refused(lscpu, said):
    with pytest.raises(topology.TopologyError) as caught:
        topology.cores(lscpu)
    assert said in str(caught.value)


@pytest.mark.parametrize("gpus, said", [
    ("", "No GPU is named"),
    ("GPU0 X 0-3\n", "No GPU is named"),
    (rocm(0, 0).replace("GPU[0]", "GPU[2]"), "names GPU 1-2, but not GPU 0"),
])
def test_text_that_no_program_of_the_gpus_has_printed_is_refused(gpus, said):
    with pytest.raises(topology.TopologyError) as caught:
        topology.gpus(gpus)
    assert said in str(caught.value)


@pytest.mark.parametrize("nodes, how, said", [
    ([0, "N/A"], {}, "GPU 1 is next to no known NUMA node, and the machine has the nodes 0-1"),
    ([0, 4], {}, "GPU 1 is next to NUMA node 4, which has no CPU that is online"),
    (["0-1", 1], {}, "cannot be divided"),
    ([1] * 5, {}, "NUMA node 1 has 5 GPUs (0-4) and 4 cores for them"),
    ([0], {"reserved": "0-3"}, "NUMA node 0 has 1 GPUs (0) and 0 cores"),
    ([0], {"reserved": "8"}, "CPU 8 is reserved, and the machine's last one is CPU 7"),
    ([0], {"reserved": "first"}, "'first', which is neither a list such as 0,8-9 nor first-of-cache"),
    ([0], {"reserved": "3-1"}, "neither a list"),
    ([0], {"threads": "2"}, "have to be one or all"),
])
def test_what_cannot_be_divided_is_said_in_one_sentence(nodes, how, said):
    with pytest.raises(topology.TopologyError) as caught:
        divided(table(8), nodes, **how)
    message = str(caught.value)
    assert said in message
    assert message.endswith(".") and "\n" not in message


def test_the_first_core_of_a_cache_is_not_known_without_the_caches():
    with pytest.raises(topology.TopologyError, match="cannot be told without the caches"):
        bound("h200", "lscpu.txt", reserved="first-of-cache")

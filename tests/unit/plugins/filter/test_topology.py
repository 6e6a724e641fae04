# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filters over a site's nodes with GPUs, as group_vars and templates call them."""

from __future__ import annotations

import pathlib

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.topology import FilterModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import gpu_nodes

FILTERS = FilterModule().filters()
TEXTS = pathlib.Path(__file__).parents[3] / "fixtures" / "topology" / "a100"
DATA = {
    "lscpu": (TEXTS / "lscpu-p.txt").read_text(), "gpus": (TEXTS / "nvidia-smi.txt").read_text(), "reserved": "0,48",
}
JOBS = {"launcher": "slurm", "options": {"gpus": 4, "partition": "gpu", "cores": 32, "requeue": 2, "tmpdir": "/tmp"}}


def example(jobs=None, ranks=None, topology=None):
    return FILTERS["example_jobs"]({"jobs": dict(JOBS, **(jobs or {})), "ranks": ranks or {}}, topology)


def test_s44_the_binding_of_any_site_follows_from_its_topology():
    found = FILTERS["gpu_binding"](DATA)
    assert found == {
        "gpus": 4, "mask_cpu": "0xfffe000000000000,0xffff00000000,0xffff0000,0xfffe", "map_cpu": "49,32,16,1",
        "gpu_bind": "3,2,1,0", "cpus": ["49-63", "32-47", "16-31", "1-15"], "cpus_per_task": 15, "notes": [],
    }
    assert FILTERS["gpu_binding"](DATA, "all")["cpus"][0] == "49-63,113-127"


@pytest.mark.parametrize("data, gpus, said", [
    ("0xfe", 0, "'torchstack_topology' must be a mapping with lscpu and gpus."),
    ({"lscpu": "x"}, 0, "'torchstack_topology' has no gpus."),
    (dict(DATA, reserved="700"), 0,
     "'torchstack_topology': CPU 700 is reserved, and the machine's last one is CPU 127."),
    (DATA, 8, "'torchstack_topology' is of a node with 4 GPUs, and jobs ask for 8."),
])
def test_what_is_wrong_with_the_data_is_one_sentence(data, gpus, said):
    assert gpu_nodes.problems(data, gpus) == [said]


@pytest.mark.parametrize("data, gpus", [(None, 4), ({}, 0), (DATA, 4), (DATA, 0)])
def test_data_that_serve_and_no_data_are_no_problem(data, gpus):
    assert gpu_nodes.problems(data, gpus) == []


def test_examples_of_other_batch_systems_are_not_made():
    assert FILTERS["example_jobs"]({"jobs": {"launcher": "pbs", "options": {"queue": "q"}}}) == {}
    assert FILTERS["example_jobs"]({}, {}) == {}


def test_the_topology_counts_before_what_builds_ask_for():
    found = example(topology=DATA)
    assert (found["gpus"], found["cpus_per_task"], found["masks"][:6]) == (4, 15, "0xfffe")
    assert "--cpus-per-task=15" in found["distributed"] and "--cpus-per-task=60" in found["single"]
    found = example()
    assert (found["gpus"], found["cpus_per_task"], found["masks"]) == (4, 8, "")


def test_what_holds_for_builds_only_is_left_out():
    assert example(ranks={"nodes": 3})["distributed"] == [
        "--exclusive", "--account=your_project", "--partition=gpu", "--time=00:10:00", "--nodes=3", "--gpus-per-node=4",
        "--ntasks-per-node=4", "--cpus-per-task=8"]


def test_without_any_number_of_cores_slurm_decides():
    options = {"directives": ["--account x", "-A y", "--exclusive=user"]}
    found = example(jobs={"options": options}, ranks={"per_node": 2})
    assert found["distributed"] == [
        "--exclusive", "--account=your_project", "--time=00:10:00", "--nodes=2", "--ntasks-per-node=2"]
    assert found["srun"].endswith("--ntasks-per-node=2")


@pytest.mark.parametrize("words", [
    ["srun", "--cpu-bind=mask_cpu:0x1", "--label"], ["srun", "--cpu-bind", "none", "--label"],
    ["srun", "-c", "4", "--gpu-bind=closest", "--label"], ["srun", "--cpus-per-task", "4", "-c4", "--label"],
])
def test_the_site_s_own_binding_gives_way(words):
    assert example(ranks={"launcher": words})["srun"] == "srun --label --cpus-per-task=8"


def test_words_of_the_site_are_quoted_for_the_shell():
    words = ["srun", "--comment=a b", "-n{ranks}", "-N", "{nodes}"]
    assert example(ranks={"launcher": words})["srun"] == (
        "srun '--comment=a b' -n\"$((SLURM_JOB_NUM_NODES * 4))\" -N \"$SLURM_JOB_NUM_NODES\" --cpus-per-task=8")


@pytest.mark.parametrize("name, arguments, said", [
    ("gpu_binding", ({},), "gpu_binding: there is no topology"),
    ("gpu_binding", (DATA, "two"), "gpu_binding: threads is 'two'"),
    ("gpu_binding", ({"gpus": "x"},), "gpu_binding: 'torchstack_topology' has no lscpu."),
    ("example_jobs", ("slurm",), "example_jobs: this is not release_context"),
    ("example_jobs", ({"jobs": {"launcher": "slurm", "options": {"gpus": 8}}}, DATA), "and jobs ask for 8"),
    ("example_jobs", ({"jobs": {"launcher": "slurm", "options": {"gpu": 8}}},), "there is no option gpu"),
])
def test_a_wrong_use_is_an_error_of_the_filter(name, arguments, said):
    with pytest.raises(AnsibleFilterError, match=said):
        FILTERS[name](*arguments)

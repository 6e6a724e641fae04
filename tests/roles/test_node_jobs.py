# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How many compilations a step may run at a time."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "python_tools" / "files" / "node_jobs.py"
SPEC = importlib.util.spec_from_file_location("node_jobs", PROGRAM)
node = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(node)

OF_PROCESS = "5:cpu,cpuacct:/x\n4:memory,hugetlb:/slurm/job_1\n0::/system.slice/job_1\n"


@pytest.mark.parametrize(
    ("cores", "memory", "most", "jobs"),
    [(64, 512000, 0, 64), (128, 256000, 0, 100), (128, 256000, 96, 96), (4, 1000, 0, 1), (2, 512000, 8, 2)],
)
def test_as_many_compilations_run_as_the_node_has_cores_and_memory_for(cores, memory, most, jobs):
    assert node.jobs(cores, memory, 2560, most) == jobs


def test_a_control_group_bounds_the_memory_from_any_level():
    files = node.limit_files(OF_PROCESS, "memory", ["memory.max"], ["memory.limit_in_bytes"], "/cg")
    assert [path for (path,) in files] == [
        "/cg/memory/slurm/job_1/memory.limit_in_bytes", "/cg/memory/slurm/memory.limit_in_bytes",
        "/cg/memory/memory.limit_in_bytes",
        "/cg/system.slice/job_1/memory.max", "/cg/system.slice/memory.max", "/cg/memory.max",
    ]
    meminfo = "MemTotal: 9 kB\nMemAvailable:   8388608 kB\n"
    assert node.available(meminfo, ["max", "", "9223372036854771712", str(4 << 30)]) == 4096
    assert node.available(meminfo, []) == 8192


def test_a_share_of_processor_time_is_found_in_both_versions_of_control_groups():
    names = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    assert node.limit_files("5:cpu,cpuacct:/x\n", "cpu", ["cpu.max"], names, "/cg")[0] == [
        "/cg/cpu/x/cpu.cfs_quota_us", "/cg/cpu/x/cpu.cfs_period_us",
    ]
    assert node.limit_files("0::/y\n", "cpu", ["cpu.max"], names, "/cg")[0] == ["/cg/y/cpu.max"]


@pytest.mark.parametrize(
    ("quotas", "environment", "cores"),
    [
        (["max 100000", ""], {}, 64), (["400000 100000\n"], {}, 4), (["-1\n 100000\n"], {}, 64),
        (["50000 100000"], {}, 1), ([], {"SLURM_CPUS_ON_NODE": "16"}, 16), ([], {"NCPUS": "8"}, 8),
        (["3200000 100000"], {"NCPUS": "8", "SLURM_CPUS_ON_NODE": "16"}, 8), ([], {"NCPUS": ""}, 64),
    ],
)
def test_a_step_has_no_more_cores_than_its_job_or_container(quotas, environment, cores):
    assert node.usable(64, quotas, environment) == cores


def test_the_program_never_says_more_than_the_cores_that_it_is_bound_to():
    core = min(os.sched_getaffinity(0))
    words = ["taskset", "-c", str(core), sys.executable, str(PROGRAM), "64", "1"]
    said = subprocess.run(words, text=True, stdout=subprocess.PIPE, check=True)
    assert said.stdout == "1\n"

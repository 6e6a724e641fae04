# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How much memory a rank may take."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import memory as rank_memory


@pytest.fixture()
def machine(tmp_path):
    """Write a machine's files; returns where they are, as the arguments."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "groups").mkdir()

    def write(free, groups, files):
        (tmp_path / "proc" / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable: %d kB\n" % (free // 1024))
        (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return str(tmp_path / "proc"), str(tmp_path / "groups")

    return write


def test_s30_without_control_groups_it_is_what_the_kernel_calls_available(machine):
    assert rank_memory.available(*machine(1 << 30, "", {})) == 1 << 30


def test_s30_the_tightest_control_group_above_the_rank_counts(machine):
    files = {
        "job/memory.max": str(500 << 20), "job/memory.current": str(300 << 20),
        "job/step/memory.max": "max", "job/step/memory.current": str(100 << 20),
    }
    assert rank_memory.available(*machine(1 << 30, "0::/job/step\n", files)) == 200 << 20


def test_s30_files_in_the_cache_of_a_control_group_do_not_count_as_taken(machine):
    files = {
        "job/memory.max": str(500 << 20), "job/memory.current": str(490 << 20),
        "job/memory.stat": "anon 5\ninactive_file %d" % (400 << 20),
    }
    assert rank_memory.available(*machine(1 << 30, "0::/job\n", files)) == 410 << 20


def test_s30_the_older_control_groups_are_read_too_and_their_way_to_say_no_limit(machine):
    files = {
        "memory/slurm/job/memory.limit_in_bytes": str(64 << 20),
        "memory/slurm/job/memory.usage_in_bytes": str(60 << 20),
        "memory/slurm/job/memory.stat": "inactive_file 0\ntotal_inactive_file %d" % (60 << 20),
        "memory/slurm/memory.limit_in_bytes": str((1 << 63) - 4096), "memory/slurm/memory.usage_in_bytes": "0",
    }
    assert rank_memory.available(*machine(1 << 30, "9:cpu:/\n4:memory,hugetlb:/slurm/job\n", files)) == 64 << 20


def test_s30_this_machine_has_some():
    assert 0 < rank_memory.available() < rank_memory.UNLIMITED

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What control groups leave of a machine."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_capacity


def test_control_groups_of_either_version_bind_with_all_that_are_above(tmp_path):
    job = tmp_path / "slurm" / "job_1" / "step_0"
    job.mkdir(parents=True)
    (tmp_path / "slurm" / "memory.max").write_text("max\n")
    (job.parent / "memory.max").write_text("4294967296\n")
    (job / "memory.max").write_text("8589934592\n")
    (job.parent / "cpu.max").write_text("150000 100000\n")
    (job / "cpu.max").write_text("max 100000\n")
    found = node_capacity.group_limits("0::/slurm/job_1/step_0\n", str(tmp_path))
    assert found == {"cores": 1.5, "memory": 4294967296.0}
    old = tmp_path / "memory" / "pbs" / "7.server"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("1073741824\n")
    (old.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    quota = tmp_path / "cpu" / "pbs"
    quota.mkdir(parents=True)
    (quota / "cpu.cfs_quota_us").write_text("-1\n")
    (quota / "cpu.cfs_period_us").write_text("100000\n")
    groups = "5:memory:/pbs/7.server\n4:cpu,cpuacct:/pbs\n1:name=systemd:/x:y\n0::/none\n"
    assert node_capacity.group_limits(groups, str(tmp_path)) == {"cores": None, "memory": 1073741824.0}
    assert node_capacity.group_limits("", str(tmp_path)) == {"cores": None, "memory": None}

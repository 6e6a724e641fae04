# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The role acceptance with a real Slurm: its ranks start in a job of their own, by srun, on two nodes."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs
from support import slurm_cluster
from support.role_plays import play_tasks

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
JOBS = {
    "launcher": "slurm", "options": {"partition": "main", "cores": 2, "python": sys.executable},
}
RANKS = {
    "launcher": ["srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}", "--cpus-per-task=1"],
    "nodes": 2, "per_node": 1,
}


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as world:
        yield world


@pytest.fixture()
def release(tmp_path):
    """A frozen release with a stand-in for mpi4py, on a site with a batch system."""
    prefix = tmp_path / "root" / "r1"
    packages = prefix / "lib" / "mpi4py"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text("")
    shutil.copy(CHECKOUT / "tests" / "fixtures" / "acceptance" / "MPI.py", packages)
    (tmp_path / "exchange").mkdir()
    return {
        "release": "r1", "root": str(prefix.parent), "prefix": str(prefix), "digest": "sha256:1",
        "base": {"python": sys.executable},
        **site_jobs.describe({"torchstack_jobs": JOBS, "torchstack_ranks": RANKS}),
    }


@pytest.fixture()
def accept(cluster, release, ansible_environment, tmp_path):
    """Run the role; the exit code and what was shown."""

    def run(*options, **environment):
        variables = {
            "release_context": release, "acceptance_module_system": "none", "acceptance_imports": ["mpi4py.MPI"],
            "acceptance_checks": ["mpi4py"], "acceptance_where_possible": [], "acceptance_timeout": 600,
            "acceptance_measure": {},
            "acceptance_environment": {
                "PATH": slurm_cluster.SYSTEM_PATH, "PYTHONPATH": release["prefix"] + "/lib",
                "FAKE_MPI_DIRECTORY": str(tmp_path / "exchange"), **environment,
            },
        }
        path = os.path.dirname(sys.executable) + ":" + slurm_cluster.SYSTEM_PATH
        whole = {**ansible_environment, **cluster.environment, "PATH": path}
        done = play_tasks("acceptance", "main", variables, [{}], whole, tmp_path, *options)
        return done.returncode, " ".join(done.stdout.split())

    return run


def submitted(cluster):
    return len(cluster.jobs("ts-acceptance-"))


def test_the_ranks_run_in_one_job_on_two_nodes_and_the_second_run_submits_none(accept, cluster, release):
    state = pathlib.Path(release["root"], ".torchstack", "r1")
    code, shown = accept("--check")
    assert code == 0 and "changed=0" not in shown, shown
    assert submitted(cluster) == 0 and not state.exists()

    code, shown = accept(FAKE_MPI_OFF_BY_ONE="1")
    assert code != 0 and "sum of 4099 float64: index 17: got 13.0, expected 12" in shown, shown
    assert "Do not publish this release" in shown and submitted(cluster) == 1

    code, shown = accept()
    assert code == 0 and submitted(cluster) == 2, shown
    record = json.loads((state / "acceptance.json").read_text())
    assert record["passed"] and record["started"] and record["seconds"]
    assert [row["source"] for row in record["ranks"]] == ["slurm", "slurm"]
    assert record["launcher"][1:4] == ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert not list((state / "acceptance").glob("asked.*"))

    code, shown = accept()
    assert code == 0 and "changed=0" in shown and submitted(cluster) == 2, shown

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The sweep of the role acceptance with a real Slurm: a job on three nodes is killed, and the next one goes on."""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs
from support import slurm_cluster
from support.role_plays import play_tasks

JOBS = {"launcher": "slurm", "options": {"partition": "main", "cores": 2, "python": sys.executable}}
LAUNCHER = """#!/bin/bash
# srun; where the file beside this is there, the job is killed after its first round.
srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=1 "$@" > >(
    while IFS= read -r line; do
        printf '%s\\n' "$line"
        if [[ $line == '[1/3]'* ]] && rm "$0.cancel" 2> /dev/null; then
            scancel --signal=KILL --batch --full "$SLURM_JOB_ID"
            # On a busy machine the ranks may get further before it takes effect.
            exec cat > /dev/null
        fi
    done
) &
wait $!
"""


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    if not slurm_cluster.namespaces_allowed():
        pytest.skip("the nodes of this cluster all have the machine's name")
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), nodes=3) as world:
        yield world


@pytest.fixture()
def sweep(cluster, ansible_environment, tmp_path):
    """Run the role's sweep; the exit code and what was shown."""
    prefix = tmp_path / "root" / "r1"
    prefix.mkdir(parents=True)
    launcher = tmp_path / "launch"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    ranks = {"launcher": [str(launcher)], "nodes": 3, "per_node": 1}
    release = {
        "release": "r1", "root": str(prefix.parent), "prefix": str(prefix), "digest": "sha256:1",
        "base": {"python": sys.executable},
        **site_jobs.describe({"torchstack_jobs": JOBS, "torchstack_ranks": ranks}),
    }
    # All nodes are this machine: their names lead nowhere, and how fast they are says nothing.
    variables = {
        "release_context": release, "acceptance_module_system": "none", "acceptance_sweep_backend": "tcp",
        "acceptance_sweep_size": "1 MiB", "acceptance_sweep_trials": 2, "acceptance_sweep_timeout": 600,
        "acceptance_sweep_thresholds": {"suspect": 0.02, "slow": 0.02},
        "acceptance_environment": {
            "PATH": slurm_cluster.SYSTEM_PATH, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(slurm_cluster.free_ports(1)[0]),
        },
    }

    def run(*options):
        path = os.path.dirname(sys.executable) + ":" + slurm_cluster.SYSTEM_PATH
        whole = {**ansible_environment, **cluster.environment, "PATH": path}
        done = play_tasks("acceptance", "sweep", variables, [{}], whole, tmp_path, *options)
        return done.returncode, " ".join(done.stdout.split())

    return run


def test_s28_a_killed_job_leaves_its_rounds_and_the_next_one_goes_on(sweep, cluster, tmp_path):
    state = pathlib.Path(tmp_path, "root", ".torchstack", "r1")
    (tmp_path / "launch.cancel").touch()
    code, shown = sweep()
    assert code != 0 and "1 of 3 rounds are done" in shown, shown
    assert "goes on where this one has ended" in shown
    first = json.loads((state / "sweep.json").read_text())
    assert first["rounds_done"] == 1 and first["hosts"] == ["n1", "n2", "n3"] and not first["passed"]

    code, shown = sweep()
    assert code == 0, shown
    second = json.loads((state / "sweep.json").read_text())
    assert second["passed"] and second["resumed"] and second["rounds_done"] == 3
    assert first["measured"][0] in second["measured"] and len(cluster.jobs("ts-sweep-")) == 2

    code, shown = sweep()
    assert code == 0 and "changed=0" in shown and len(cluster.jobs("ts-sweep-")) == 2, shown

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a real Slurm leaves in the environment of ranks, of batch scripts, and of other launchers that it starts."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from support import slurm_cluster
from support.rank_programs import PLACE, program, told, wheel


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as world:
        yield world


@pytest.fixture()
def submit(cluster, tmp_path):
    """Run a shell line as a batch job on both nodes and return what the ranks in it say, sorted by rank."""

    def run(line, path=""):
        script = tmp_path / "job.sh"
        script.write_text("#!/bin/sh\nPATH=%s:$PATH\nexport PATH\nexec timeout 300 %s\n" % (path, line))
        log = tmp_path / "log"
        words = ["sbatch", "--wait", "--nodes=2", "--ntasks=4", "--output=%s" % log, str(script)]
        done = cluster.run(*words, check=False)
        assert done.returncode == 0, done.stdout + (log.read_text() if log.exists() else "")
        found = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        return sorted(found, key=lambda one: (one["rank"], one["local_rank"]))

    return run


@pytest.fixture()
def words(tmp_path):
    """The words that run the program, for a shell."""
    return shlex.join([sys.executable, "-S", str(program(tmp_path))])


def test_s43_srun_from_the_login_node(cluster, tmp_path, words):
    done = cluster.run("srun", "--nodes=2", "--ntasks=3", "--distribution=block", "sh", "-c", words, check=False)
    assert done.returncode == 0, done.stdout
    found = sorted((json.loads(path.read_text()) for path in tmp_path.glob("*.json")), key=lambda one: one["rank"])
    assert told(found, *PLACE, "node", "nodes") == [
        ("slurm", 0, 3, 0, 2, 0, 2), ("slurm", 1, 3, 1, 2, 0, 2), ("slurm", 2, 3, 0, 1, 1, 2)]
    assert {one["address"] for one in found} == {"n1"}
    assert len({one["port"] for one in found}) == 1 and found[0]["port"]


def test_s43_srun_in_a_batch_job(submit, words):
    found = submit("srun --ntasks-per-node=2 " + words)
    assert told(found, *PLACE, "node", "nodes") == [("slurm", rank, 4, rank % 2, 2, rank // 2, 2) for rank in range(4)]


def test_s43_a_batch_script_is_no_rank(submit, words):
    assert told(submit(words), *PLACE) == [("none", 0, 1, 0, 1)]


def test_s43_the_shell_of_salloc_is_no_rank(cluster, tmp_path, words):
    done = cluster.run("salloc", "--nodes=1", "--ntasks=2", "sh", "-c", words, check=False)
    assert done.returncode == 0, done.stdout
    assert told([json.loads(path.read_text()) for path in tmp_path.glob("*.json")], *PLACE) == [("none", 0, 1, 0, 1)]


def test_s43_mpich_s_mpiexec_in_a_batch_job(submit, words, tmp_path_factory):
    # The names of the nodes are known to Slurm alone: Hydra cannot reach them, and starts the ranks of both here.
    line = "mpiexec -rmk user -launcher fork -hosts n1,n2 -n 4 -ppn 2 " + words
    found = submit(line, wheel("mpich", tmp_path_factory) / "bin")
    assert told(found, *PLACE) == [("pmi", rank, 4, rank % 2, 2) for rank in range(4)]
    assert len({one["port"] for one in found}) == 1 and {one["address"] for one in found} == {"n1"}


def test_s43_mpich_s_mpiexec_in_a_step_of_srun_with_one_task_on_each_node(submit, words, tmp_path_factory):
    line = "srun --ntasks=2 --ntasks-per-node=1 mpiexec -rmk user -launcher fork -hosts localhost -n 2 " + words
    found = submit(line, wheel("mpich", tmp_path_factory) / "bin")
    assert told(found, *PLACE) == [("pmi", rank, 2, rank, 2) for rank in (0, 0, 1, 1)]


def test_s43_torchrun_s_kin_in_a_step_of_srun_with_one_task_on_each_node(submit, words):
    variables = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"
    found = submit("srun --ntasks=2 --ntasks-per-node=1 env %s %s" % (variables, words))
    assert told(found, *PLACE) == [("environment", 5, 8, 1, 4)] * 2

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The job in which a user starts ranks: the acceptance's, with the user's own project and ten minutes."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.user_job import UserJob, describe_job

RANKS = {"launcher": ["mpiexec", "-n", "{ranks}", "--ppn", "{per_node}"], "nodes": 2, "per_node": 4}


def job_of(launcher, options, steps=None, ranks=RANKS):
    return describe_job({"jobs": {"launcher": launcher, "options": options, "steps": steps or {}}, "ranks": ranks})


def test_without_a_batch_system_ranks_are_started_by_the_releases_own_mpi():
    assert describe_job({}) == UserJob([], "", 1, 2, "mpiexec -n 2")


def test_a_job_of_pbs_is_that_of_the_acceptance_with_the_users_project():
    job = job_of("pbs", {
        "account": "ops", "queue": "preemptable", "walltime": "02:30:00", "cores": 64, "gpus": 4, "requeue": 2,
        "directives": ["-l filesystems=home:eagle", "-A ops"],
    }, {"acceptance": {"queue": "debug", "walltime": "00:30:00"}})
    assert job.head == [
        "#PBS -l filesystems=home:eagle", "#PBS -l select=2:ncpus=64:mpiprocs=4:ngpus=4", "#PBS -l place=scatter",
        "#PBS -l walltime=00:10:00", "#PBS -A your_project", "#PBS -q debug"]
    assert (job.submit, job.start) == ("qsub job.sh", "mpiexec -n 8 --ppn 4")


def test_a_job_of_slurm_has_no_account_where_the_site_needs_none():
    job = job_of("slurm", {"partition": "gpu", "gpus": 4, "gpu_type": "a100", "cores": 32, "tmpdir": "/local"})
    assert job.head == [
        "#SBATCH --partition=gpu", "#SBATCH --time=00:10:00", "#SBATCH --nodes=2", "#SBATCH --gpus-per-node=a100:4",
        "#SBATCH --ntasks-per-node=4", "#SBATCH --cpus-per-task=8"]
    assert job.submit == "sbatch job.sh"


def test_a_job_of_flux_names_the_users_bank():
    job = job_of("flux", {"account": "ops", "queue": "batch", "directives": ["--bank=ops"]})
    assert "#flux: --bank=your_project" in job.head and "ops" not in " ".join(job.head)
    assert job.submit == "flux batch job.sh"


@pytest.mark.parametrize("launcher", [["srun"], ["/opt/my mpi/mpiexec", "-n", "{ranks}"]])
def test_the_start_of_ranks_can_be_typed(launcher):
    start = job_of("slurm", {}, ranks={"launcher": launcher, "nodes": 1, "per_node": 2}).start
    assert start in ("srun", "'/opt/my mpi/mpiexec' -n 2")

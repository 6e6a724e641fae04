# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which rank a process is, by what its launcher left in the environment."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import rank_environment

# All of these are rank 5 of 8, number 1 of 4 on the second of two nodes.
PALS = {
    "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4", "PALS_RANKID": "5",
    "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "1", "PALS_APID": "7f0a",
}
PALS_OF_SITES = {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1"}
SRUN = {
    "SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1", "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_STEP_NODELIST": "nid[001-002]",
}
BATCH_SCRIPT = {
    "SLURM_JOB_ID": "42", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "8",
    "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_JOB_NODELIST": "nid[001-002]",
}
SALLOC_SHELL = dict(BATCH_SCRIPT, SLURM_STEP_ID="4294967290", SLURM_STEP_NUM_TASKS="1")
# What the daemons of mpirun or Hydra have of the srun that started them, one on each node.
DAEMON = dict(
    SRUN, SLURM_PROCID="1", SLURM_LOCALID="0", SLURM_NTASKS="2", SLURM_STEP_NUM_TASKS="2",
    SLURM_STEP_TASKS_PER_NODE="1(x2)",
)
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "nid001", "MASTER_PORT": "34567",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_NODE_RANK": "3", "PMIX_RANK": "5",
    "PMIX_NAMESPACE": "2086928385",
}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "PMI_FD": "9"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "4",
}
ONE_PMI_DAEMON = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "1"}
# As flux-core 0.88 sets them.
FLUX = {
    "FLUX_TASK_RANK": "5", "FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_NNODES": "2", "PMI_RANK": "5",
    "PMI_SIZE": "8", "PMI_FD": "22", "FLUX_JOB_ID": "foszHqR", "FLUX_ENCLOSING_ID": "f8VWnWSj",
}
FLUX_DAEMON = dict(FLUX, FLUX_TASK_RANK="1", FLUX_JOB_SIZE="2", FLUX_TASK_LOCAL_ID="0", PMI_RANK="1", PMI_SIZE="2")
BY_HAND = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(("environment", "source", "local_size", "node"), [
    pytest.param(PALS, "pals", 4, 1, id="PALS"),
    pytest.param(PALS_OF_SITES, "pmi", None, None, id="PALS with PMI's names only"),
    pytest.param({"PALS_RANKID": "5", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1"}, "pals", None, None,
                 id="PALS without PMI_RANK"),
    pytest.param(HYDRA, "pmi", 4, None, id="Hydra"),
    pytest.param(dict(HYDRA, **BATCH_SCRIPT), "pmi", 4, None, id="Hydra in a batch script"),
    pytest.param(dict(HYDRA, **SALLOC_SHELL), "pmi", 4, None, id="Hydra in salloc's shell"),
    pytest.param(dict(HYDRA, **DAEMON), "pmi", 4, None, id="Hydra through srun"),
    pytest.param(dict(HYDRA, PBS_JOBID="7.server"), "pmi", 4, None, id="Hydra in a PBS job"),
    pytest.param(MVAPICH, "mvapich", 4, None, id="MVAPICH2's mpirun_rsh"),
    pytest.param(dict(MVAPICH, **HYDRA), "mvapich", 4, None, id="MVAPICH2 by Hydra"),
    pytest.param(dict(MVAPICH, **SRUN), "slurm", 4, 1, id="MVAPICH2 by srun"),
    pytest.param(SRUN, "slurm", 4, 1, id="srun"),
    pytest.param(dict(SRUN, SLURM_STEP_TASKS_PER_NODE="3,4"), "slurm", 4, 1, id="srun, unlike nodes"),
    pytest.param(dict(SRUN, SLURM_STEP_TASKS_PER_NODE=""), "slurm", None, 1, id="srun without tasks per node"),
    pytest.param(dict(SRUN, PMI_RANK="5", PMI_SIZE="8"), "slurm", 4, 1, id="srun with PMI-2"),
    pytest.param(dict(SRUN, PMI_RANK="5", PALS_RANKID="5", PALS_NODEID="1"), "slurm", 4, 1, id="srun on Cray"),
    pytest.param(dict(SRUN, PMIX_RANK="5"), "slurm", 4, 1, id="srun with PMIx"),
    pytest.param(OPENMPI, "openmpi", 4, None, id="mpirun"),
    pytest.param(dict(OPENMPI, **BATCH_SCRIPT), "openmpi", 4, None, id="mpirun in a batch script"),
    pytest.param(dict(OPENMPI, **DAEMON), "openmpi", 4, None, id="mpirun through srun"),
    pytest.param(dict(OPENMPI, **DAEMON, **ONE_PMI_DAEMON), "openmpi", 4, None, id="mpirun through srun with PMI-2"),
    pytest.param(dict(OPENMPI, **ONE_PMI_DAEMON, PALS_RANKID="1"), "openmpi", 4, None, id="mpirun through PALS"),
    pytest.param(dict(SRUN, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_LOCAL_RANK="0",
                      OMPI_COMM_WORLD_LOCAL_SIZE="1"), "slurm", 4, 1, id="srun from a shell under mpirun"),
    pytest.param(TORCHRUN, "torchrun", 4, 1, id="torchrun"),
    pytest.param(dict(TORCHRUN, **BATCH_SCRIPT), "torchrun", 4, 1, id="torchrun in a batch script"),
    pytest.param(dict(TORCHRUN, **DAEMON, **ONE_PMI_DAEMON), "torchrun", 4, 1, id="torchrun by srun"),
    pytest.param(dict(OPENMPI, **FLUX_DAEMON), "openmpi", 4, None, id="mpirun through flux run"),
    pytest.param(dict(TORCHRUN, **FLUX_DAEMON), "torchrun", 4, 1, id="torchrun by flux run"),
    pytest.param(dict(HYDRA, FLUX_ENCLOSING_ID="f8VWnWSj"), "pmi", 4, None, id="Hydra in a batch script of Flux"),
    pytest.param(BY_HAND, "environment", None, None, id="RANK and WORLD_SIZE of somebody else"),
    pytest.param(dict(BY_HAND, LOCAL_WORLD_SIZE="4", **DAEMON), "environment", 4, None, id="another launcher by srun"),
    pytest.param(dict(BY_HAND, **SRUN), "slurm", 4, 1, id="RANK and WORLD_SIZE taken from srun"),
    pytest.param(dict(BY_HAND, **HYDRA), "pmi", 4, None, id="RANK and WORLD_SIZE taken from Hydra"),
])
def test_s43_every_launcher_gives_rank_local_rank_and_world_size(environment, source, local_size, node):
    nodes = None if node is None or source == "pals" else 2
    expected = rank_environment.Placement(source, 5, 8, 1, local_size, node, nodes)
    assert rank_environment.placement(environment) == expected


@pytest.mark.parametrize("environment", [
    {}, {"PATH": "/bin"}, BATCH_SCRIPT, SALLOC_SHELL, {"SLURM_JOB_ID": "42", "SLURM_NTASKS": "8"}, {"RANK": "3"},
    {"PMI_RANK": "", "PMI_SIZE": ""},
], ids=["nothing", "a shell", "a batch script", "salloc's shell", "an old salloc's shell", "RANK alone", "empty"])
def test_s43_a_process_without_a_launcher_is_alone(environment):
    assert rank_environment.placement(environment) == rank_environment.Placement("none", 0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, (5, 8, 1, None, None, 2)), ({"FLUX_JOB_NNODES": "8", "FLUX_TASK_LOCAL_ID": "0"}, (5, 8, 0, 1, None, 8)),
    ({"FLUX_JOB_NNODES": "1", "FLUX_TASK_LOCAL_ID": "5"}, (5, 8, 5, 8, 0, 1)),
], ids=["several on each node", "one on each node", "all on one node"])
def test_s43_flux_run_tells_how_many_are_on_a_node_only_where_it_follows(changes, expected):
    assert rank_environment.placement(dict(FLUX, **changes)) == rank_environment.Placement("flux", *expected)


def test_s43_jobs_of_flux_have_ports_of_their_own():
    first, second = (dict(FLUX, **own) for own in ({}, {"FLUX_ENCLOSING_ID": "f9"}))
    ports = [rank_environment.rendezvous(one, rank_environment.placement(one)).port for one in (first, second)]
    assert ports[0] and ports[1] and ports[0] != ports[1]
    other = dict(HYDRA, FLUX_ENCLOSING_ID="f9")
    assert rank_environment.rendezvous(other, rank_environment.placement(other)).port


def test_s43_the_one_rank_of_a_step_is_alone_as_well():
    one = dict(SRUN, SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_NODEID="0", SLURM_STEP_NUM_TASKS="1",
               SLURM_STEP_NUM_NODES="1", SLURM_STEP_TASKS_PER_NODE="1")
    assert rank_environment.placement(one) == rank_environment.Placement("slurm", 0, 1, 0, 1, 0, 1)


def test_s43_one_rank_per_node_by_mpirun_within_a_step_of_srun_is_mpirun_s():
    one_each = dict(
        DAEMON, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="0",
        OMPI_COMM_WORLD_LOCAL_SIZE="1",
    )
    assert rank_environment.placement(one_each)[:4] == ("openmpi", 0, 2, 0)


@pytest.mark.parametrize(("environment", "said"), [
    ({"PMI_RANK": "x", "PMI_SIZE": "2"}, "PMI_RANK is 'x', not a number"),
    ({"PMI_RANK": "-1", "PMI_SIZE": "2"}, "PMI_RANK is '-1', not a number"),
    ({"PMI_RANK": "2", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "0"}, r"the launcher \(pmi\) says rank 2 of 2"),
    ({"PMI_RANK": "0", "PMI_LOCAL_RANK": "0"}, "tells rank 0 its number, but not how many there are"),
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "does not tell rank 1 its number on its node"),
    # The local rank of the batch script itself is not that of a rank which Hydra started.
    (dict(BATCH_SCRIPT, PMI_RANK="1", PMI_SIZE="2"), "does not tell rank 1 its number on its node"),
    (dict(HYDRA, MPI_LOCALRANKID="4"), "rank 5 of 8 is number 4 of 4 on its node"),
    (dict(OPENMPI, OMPI_COMM_WORLD_LOCAL_SIZE="9"), "rank 5 of 8 is number 1 of 9 on its node"),
    (dict(SRUN, SLURM_NODEID="2"), "rank 5 is on node 2 of 2"),
    (dict(OPENMPI, PMI_RANK="0", PMI_SIZE="4", MPI_LOCALRANKID="0", MPI_LOCALNRANKS="4"),
     "contradict each other: openmpi says rank 5 of 8, pmi says rank 0 of 4; start ranks with one of them, and unset"),
    (dict(PALS, PALS_RANKID="3"), "contradict each other: pals says rank 3 of 8, pmi says rank 5 of 8"),
    (dict(SRUN, RANK="0", WORLD_SIZE="8"),
     "contradict each other: slurm says rank 5 of 8, environment says rank 0 of 8"),
    # Four mpirun on one node, one in each task of srun: nobody can say whose ranks these are.
    (dict(HYDRA, **dict(SRUN, SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="3", SLURM_STEP_TASKS_PER_NODE="4")),
     "contradict each other: pmi says rank 5 of 8, slurm says rank 3 of 4"),
    (dict(SRUN, PMI_RANK="5", PMI_SIZE="8", PMI_LOCAL_RANK="5", PMI_LOCAL_SIZE="8"), "contradict each other"),
])
def test_s43_launcher_variables_that_make_no_sense_are_refused(environment, said):
    with pytest.raises(ValueError, match=said):
        rank_environment.placement(environment)


def test_s43_pytorch_reads_the_variables_by_its_own_names():
    found = rank_environment.placement(SRUN)
    assert rank_environment.variables(found, rank_environment.rendezvous(SRUN, found)) == {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
        "MASTER_ADDR": "nid001", "MASTER_PORT": str(rank_environment.rendezvous(SRUN, found).port),
    }
    by_hand = rank_environment.variables(rank_environment.placement(BY_HAND))
    assert by_hand == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}


def hint(environment, first_line=None):
    return rank_environment.rendezvous(environment, rank_environment.placement(environment), first_line)


def test_s36_ranks_of_one_job_derive_the_same_port_and_other_jobs_another_one():
    low, high = rank_environment.PORTS
    steps = [dict(SRUN, SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)) for job in range(40, 60) for step in (0, 1)]
    ports = [hint(step).port for step in steps]
    assert len(set(ports)) == len(ports) and all(low <= port < high for port in ports)
    assert hint(dict(SRUN, SLURM_PROCID="4", SLURM_LOCALID="0")) == hint(SRUN)
    # The rank beside mpirun has no step of srun, those of its daemons have.
    assert hint(dict(OPENMPI, **BATCH_SCRIPT)) == hint(dict(OPENMPI, **DAEMON, SLURM_JOB_NODELIST="nid[001-002]"))


def test_ranks_meet_on_the_first_node():
    assert hint(SRUN).address == "nid001"
    assert hint(dict(HYDRA, **BATCH_SCRIPT)).address == "nid001"
    asked = []
    found = hint(dict(PALS, PBS_JOBID="7.server", PBS_NODEFILE="/aux/7"), lambda path: asked.append(path) or "x3001\n")
    assert (asked, found.address) == (["/aux/7"], "x3001")
    assert hint(dict(HYDRA, PMI_SIZE="4", PMI_RANK="1")).address == "127.0.0.1"
    assert hint(HYDRA) == ("", 0)


def test_what_somebody_has_chosen_for_the_meeting_is_kept():
    assert hint(TORCHRUN) == ("nid001", 34567)
    assert hint(dict(SRUN, MASTER_ADDR="head", MASTER_PORT="5")) == ("head", 5)
    with pytest.raises(ValueError, match="MASTER_PORT is 'five'"):
        hint(dict(SRUN, MASTER_ADDR="head", MASTER_PORT="five"))


@pytest.mark.parametrize(("names", "first"), [
    ("", ""), ("n1", "n1"), ("n1,n2", "n1"), ("nid[001-003,007],login", "nid001"), ("nid[007]", "nid007"),
    ("r[1-2]n[3-4]", "r1n3"), ("a-b[2,4]-ib,c", "a-b2-ib"), ("r[10-11]x", "r10x"),
])
def test_the_first_of_slurm_s_host_names(names, first):
    assert rank_environment.first_host(names) == first

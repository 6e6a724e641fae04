# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse SITE=polaris RELEASE=rehearsal-real` to its end: real parts on a conda base, compiled with the dress.

On Slurm, and on the PBS that REHEARSAL_PBS names: with -k slurm or -k pbs on one of them. On the first call on each,
Horovod, mpi4py, HDF5, h5py and torch-scatter are compiled, which takes minutes.
"""

from __future__ import annotations

import json
import os
import tempfile

import pytest
import rehearsals
import yaml
from support import conda_channel
from support.console import changed_in

from rehearsal.archives import write_archive
from rehearsal.batch_systems import batch_system_of
from rehearsal.checkout import CHECKOUT
from rehearsal.cluster import Cluster
from rehearsal.inventory import variables
from rehearsal.nodes import names_of_the_cluster
from rehearsal.site import of_the_checkout

LACKING = conda_channel.needed_tools(conda_channel.Interpreter("/usr/bin/python3"))
pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TORCHSTACK_REHEARSE", "") != "polaris-real",
        reason="compiles Horovod, which takes minutes: TORCHSTACK_REHEARSE=polaris-real asks for it"),
    pytest.mark.skipif(bool(LACKING), reason="no channel can be built: missing " + ", ".join(LACKING)),
]
RELEASE = yaml.safe_load((CHECKOUT / "inventories/polaris/releases/rehearsal-real.yml").read_text())
CHANNEL = RELEASE["base"]["channels"][0].removeprefix("file://")
STEPS = (
    "nccl", "nccl-plugin", "mpi4py", "horovod", "package-h5py-wheel", "package-torch-scatter-wheel", "node_health",
    "acceptance",
)
"""Of those that are jobs."""

SCRIPT = """#!/bin/bash -l
module load torchstack/rehearsal-real
mpiexec -n 2 --ppn 1 python3 /shared/home/researcher/ranks.py
"""
SUBMIT = {
    "slurm": "sbatch --wait --account=science --nodes=2 --output={output} {script}",
    "pbs": "qsub -W block=true -A science -q debug -l select=2:ncpus=64 -l place=scatter -l walltime=00:10:00 "
           "-l filesystems=home:eagle -j oe -o {output} {script}",
}
"""What the ordinary user types to run a job script on two nodes and wait for its end."""

RANKS = """
import json
import h5py, torch, torch_scatter, horovod.torch as hvd
from mpi4py import MPI
hvd.init()
world = MPI.COMM_WORLD
total = hvd.allreduce(torch.full((1000,), float(world.rank + 1)), op=hvd.Sum)
torch.manual_seed(3)
inputs = torch.randn(64, 5) + world.rank
model = torch.nn.Linear(5, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimiser = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters())
losses = []
for _ in range(60):
    optimiser.zero_grad()
    loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
name = "/shared/home/researcher/ranks.h5"
with h5py.File(name, "w", driver="mpio", comm=world) as file:
    rows = file.create_dataset("rows", (world.size, 1000), dtype="f8")
    with rows.collective:
        rows[world.rank] = world.rank + 0.5
world.Barrier()
with h5py.File(name, "r", driver="mpio", comm=world) as file:
    read = sorted(set(file["rows"][world.size - 1 - world.rank].tolist()))
groups = torch.tensor([0, 1, 1, 2])
scattered = torch_scatter.scatter_sum(torch.tensor([1.0, 2.0, 3.0, 4.0]) * (world.rank + 1), groups)
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line}
print("ranks", json.dumps({
    "rank": world.rank, "horovod": [hvd.rank(), hvd.size()], "sum": sorted(set(total.tolist())),
    "first": losses[0], "last": losses[-1], "mpi": sorted(mapped), "torch": torch.__file__,
    "host": MPI.Get_processor_name(), "read": read, "scattered": scattered.tolist(),
}))
"""


OPENED = """
import ctypes, json, os, sys
nccl, plugin = (os.path.join(sys.argv[1], name) for name in ("libnccl.so.2", "libnccl-net.so"))
opened, version = ctypes.CDLL(nccl), ctypes.c_int()
assert opened.ncclGetVersion(ctypes.byref(version)) == 0
interface = hasattr(ctypes.CDLL(plugin), "ncclNetPlugin_v11")
mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps([version.value, interface, sorted(path for path in mapped if "fabric" in path or "hwloc" in path)]))
"""
"""Opens NCCL and its plugin, which asks neither of them for a GPU."""


@pytest.fixture(scope="module", params=["slurm", "pbs"])
def scheduler(request):
    """What the site is rehearsed on; all tests on one come before those on the next."""
    return request.param


@pytest.fixture(scope="module")
def cluster(podman, scheduler):
    """A cluster with that batch system, in the place of the one that other tests share."""
    site = of_the_checkout("polaris", scheduler)
    system = batch_system_of(variables(site, site.own, *site.over))
    names = names_of_the_cluster(rehearsals.NAME + scheduler)
    with rehearsals.lent(Cluster(podman, names, system=system), rehearsals.KEPT) as made:
        yield made


@pytest.fixture(scope="module")
def channel(cluster, tmp_path_factory):
    """The conda channel that the release names, on the cluster; one that is there already stays as it is."""
    if cluster.execute("login", "test", "-e", CHANNEL).returncode == 0:
        return
    scratch = tmp_path_factory.mktemp("channel")
    # The nodes' own Python is of the version that the release asks for, wherever the tests run.
    conda_channel.build(scratch / "channel", scratch, conda_channel.Interpreter("/usr/bin/python3"))
    with tempfile.TemporaryFile() as stream:
        write_archive(stream, scratch / "channel")
        stream.seek(0)
        words = ("sh", "-euc", 'mkdir "$1.new"; tar -xf - -C "$1.new"; mv "$1.new" "$1"', "lay", CHANNEL)
        cluster.podman.ask("exec", "--interactive", cluster.names.container("login"), *words, source=stream)


@pytest.fixture(scope="module")
def rehearse(cluster, channel, scheduler):
    """Rehearses the release; what that printed."""
    return lambda: rehearsals.rehearse(cluster, "polaris", "RELEASE=rehearsal-real", "SCHEDULER=" + scheduler)


@pytest.fixture(scope="module")
def rehearsed(cluster, rehearse):
    """What the first rehearsal printed."""
    printed = rehearse()
    assert "failed=0" in printed
    return printed


def test_each_step_that_compiles_is_one_job_and_the_acceptance_one_of_the_ordinary_user(cluster, rehearsed):
    # A cluster that was kept has those of the ordinary user's own too.
    submitted = [job for job in rehearsals.jobs(cluster).values() if job.name.startswith("ts-")]
    assert {job.state for job in submitted} == {"COMPLETED"}
    steps = {job.step: job for job in submitted}
    assert len(steps) == len(submitted)
    assert {"ts-" + step for step in STEPS} <= set(steps)
    acceptance = steps["ts-acceptance"]
    assert (acceptance.user, acceptance.account) == ("researcher", "science")


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, rehearse, rehearsed):
    before = rehearsals.jobs(cluster)
    assert before
    assert changed_in(rehearse()) == 0
    assert rehearsals.jobs(cluster) == before


def test_nccl_and_its_plugin_are_those_of_their_commits_and_can_be_opened(cluster, rehearsed):
    prefix = "/shared/software/polaris/rehearsal-real/"
    record = json.loads(cluster.execute("login", "cat", prefix + ".torchstack/nccl.json").stdout)
    wanted = RELEASE["nccl"]
    assert (record["version"], record["commit"]) == (wanted["version"], wanted["commit"])
    assert (record["plugin"]["commit"], record["plugin"]["used"]) == (wanted["plugin"]["commit"], 11)
    # An ONLY_FUNCS that matches nothing builds as well, and its all-reduce does nothing.
    words = ("grep", "-c", "ncclDevKernel_AllReduce_Sum_f32", prefix + "nccl/lib/libnccl.so.2")
    assert cluster.execute("login", *words).returncode == 0
    said = cluster.execute("login", "/usr/bin/python3", "-c", OPENED, prefix + "nccl/lib", user="researcher")
    assert said.returncode == 0, said.stderr
    version, interface, mapped = json.loads(said.stdout)
    assert (version, interface) == (22803, True)
    assert [path.rpartition("/")[0] for path in mapped] == [
        "/opt/cray/libfabric/1.22.0/lib64", "/soft/libraries/hwloc/lib"]


@pytest.fixture(scope="module")
def ranks(cluster, scheduler, rehearsed):
    """What two ranks of the ordinary user said, one on each node, by their rank."""
    place = "/shared/home/researcher/"
    for name, text in (("ranks.py", RANKS), ("ranks.sh", SCRIPT)):
        words = ("sh", "-c", 'printf %s "$1" > "$2"', "write", text, place + name)
        written = cluster.execute("login", *words, user="researcher")
        assert written.returncode == 0
    line = SUBMIT[scheduler].format(output=place + "ranks.out", script=place + "ranks.sh")
    done = cluster.execute("login", "bash", "-lc", line, user="researcher")
    said = cluster.execute("login", "cat", place + "ranks.out").stdout.decode(errors="replace")
    assert done.returncode == 0, (done.stderr, said)
    found = [json.loads(text.split("ranks ", 1)[1]) for text in said.splitlines() if text.startswith("ranks ")]
    return sorted(found, key=lambda one: one["rank"])


def test_ranks_on_two_nodes_reduce_by_horovod_over_the_dressed_mpi(ranks):
    assert [one["horovod"] for one in ranks] == [[0, 2], [1, 2]]
    assert [one["sum"] for one in ranks] == [[3.0], [3.0]]
    assert len({one["host"] for one in ranks}) == 2
    for one in ranks:
        (mpi,) = one["mpi"]
        assert mpi.startswith("/opt/cray/pe/mpich/")
        assert one["torch"].startswith("/shared/software/polaris/rehearsal-real/base/lib/")


def test_their_training_s_loss_falls(ranks):
    for one in ranks:
        assert one["last"] < 0.2 * one["first"], one


def test_they_write_one_file_by_hdf5_over_that_mpi_and_read_each_other_s_part(ranks):
    assert [one["read"] for one in ranks] == [[1.5], [0.5]]


def test_they_reduce_by_groups_with_the_compiled_torch_scatter(ranks):
    assert [one["scattered"] for one in ranks] == [[1.0, 5.0, 4.0], [2.0, 10.0, 8.0]]

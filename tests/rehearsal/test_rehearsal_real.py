# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse SITE=... RELEASE=rehearsal-real` to its end: real parts, compiled with the dress.

TORCHSTACK_REHEARSE=polaris-real or derecho-real names the site. On Slurm, and on the PBS that REHEARSAL_PBS names: with
-k slurm or -k pbs on one of them. On the first call on each, all that is no wheel is compiled, which takes minutes.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import NamedTuple

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


class Expected(NamedTuple):
    """What the release of a site has, and what it says."""

    steps: tuple[str, ...]
    """those that are jobs"""
    parts: tuple[str, ...]
    """what ranks try besides PyTorch and mpi4py"""
    nccl: int
    """the version, in NCCL's own form"""
    interface: int
    """the newest one that the plugin offers"""
    mapped: list[str]
    """where libfabric and hwloc are that the plugin maps"""
    launch: str
    """by which two nodes have a rank each"""
    submit: dict[str, str]
    """what the ordinary user types to run a job script on two nodes and wait for its end"""


SLURM = "sbatch --wait --account=science --nodes=2 --output={output} {script}"
PBS = (
    "qsub -W block=true -A science -q %s -l select=2:ncpus=64 -l place=scatter -l walltime=00:10:00 %s"
    "-j oe -o {output} {script}")
SITES = {
    "polaris": Expected(
        ("nccl", "nccl-plugin", "mpi4py", "horovod", "package-h5py-wheel", "package-torch-scatter-wheel", "node_health",
         "acceptance"),
        ("horovod", "h5py", "torch_scatter"), 22803, 11,
        ["/opt/cray/libfabric/1.22.0/lib64", "/soft/libraries/hwloc/lib"], "mpiexec -n 2 --ppn 1",
        {"slurm": SLURM, "pbs": PBS % ("debug", "-l filesystems=home:eagle ")}),
    "derecho": Expected(
        ("nccl", "nccl-plugin", "mpi4py", "node_health", "acceptance"), (), 22105, 6,
        ["/opt/cray/libfabric/1.15.2/lib64"], "mpiexec -n 2 -ppn 1", {"slurm": SLURM, "pbs": PBS % ("main", "")}),
}
ASKED_FOR = [site + "-real" for site in SITES]
SITE = os.environ.get("TORCHSTACK_REHEARSE", "").removesuffix("-real")
EXPECTED = SITES.get(SITE, SITES["polaris"])
RELEASE = yaml.safe_load(
    (CHECKOUT / "inventories" / (SITE if SITE in SITES else "polaris") / "releases/rehearsal-real.yml").read_text())
CHANNEL = RELEASE.get("base", {}).get("channels", [""])[0].removeprefix("file://")
LACKING = conda_channel.needed_tools(conda_channel.Interpreter("/usr/bin/python3")) if CHANNEL else []
pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TORCHSTACK_REHEARSE", "") not in ASKED_FOR,
        reason="compiles, which takes minutes: asked for by TORCHSTACK_REHEARSE=" + " or ".join(ASKED_FOR)),
    pytest.mark.skipif(bool(LACKING), reason="no channel can be built: missing " + ", ".join(LACKING)),
]
PREFIX = "/shared/software/%s/rehearsal-real/" % SITE
SCRIPT = """#!/bin/bash -l
module load torchstack/rehearsal-real
%s python3 /shared/home/researcher/ranks.py %s
""" % (EXPECTED.launch, " ".join(EXPECTED.parts))
RANKS = """
import json, sys
import torch
from mpi4py import MPI
world, parts, found = MPI.COMM_WORLD, sys.argv[1:], {}
torch.manual_seed(3)
inputs = torch.randn(64, 5) + world.rank
model = torch.nn.Linear(5, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
given = torch.full((1000,), float(world.rank + 1))
if "horovod" in parts:
    import horovod.torch as hvd
    hvd.init()
    found["horovod"] = [hvd.rank(), hvd.size()]
    total = hvd.allreduce(given, op=hvd.Sum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimiser = hvd.DistributedOptimizer(optimiser, named_parameters=model.named_parameters())
else:
    total = torch.empty(1000)
    world.Allreduce(given.numpy(), total.numpy())
losses = []
for _ in range(60):
    optimiser.zero_grad()
    loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    if "horovod" not in parts:
        for parameter in model.parameters():
            world.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
            parameter.grad /= world.size
    optimiser.step()
    losses.append(loss.item())
if "h5py" in parts:
    import h5py
    name = "/shared/home/researcher/ranks.h5"
    with h5py.File(name, "w", driver="mpio", comm=world) as file:
        rows = file.create_dataset("rows", (world.size, 1000), dtype="f8")
        with rows.collective:
            rows[world.rank] = world.rank + 0.5
    world.Barrier()
    with h5py.File(name, "r", driver="mpio", comm=world) as file:
        found["read"] = sorted(set(file["rows"][world.size - 1 - world.rank].tolist()))
if "torch_scatter" in parts:
    import torch_scatter
    numbers, groups = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 1, 1, 2])
    found["scattered"] = torch_scatter.scatter_sum(numbers * (world.rank + 1), groups).tolist()
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line}
print("ranks", json.dumps({
    "rank": world.rank, "ranks": world.size, "sum": sorted(set(total.tolist())), "first": losses[0], "last": losses[-1],
    "weights": [p.tolist() for p in model.parameters()], "mpi": sorted(mapped), "torch": torch.__file__,
    "host": MPI.Get_processor_name(), **found}))
"""
OPENED = """
import ctypes, json, os, sys
nccl, plugin = (os.path.join(sys.argv[1], name) for name in ("libnccl.so.2", "libnccl-net.so"))
opened, version = ctypes.CDLL(nccl), ctypes.c_int()
assert opened.ncclGetVersion(ctypes.byref(version)) == 0
opened = ctypes.CDLL(plugin)
interfaces = [number for number in range(2, 20) if hasattr(opened, "ncclNetPlugin_v%d" % number)]
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libfabric" in line or "libhwloc" in line}
print(json.dumps([version.value, interfaces[-1], sorted(mapped)]))
"""
"""Opens NCCL and its plugin, which asks neither of them for a GPU."""


def needs(part):
    """A mark for a test of what not every site's release has."""
    return pytest.mark.skipif(part not in EXPECTED.parts, reason="this site's release has no " + part)


@pytest.fixture(scope="module", params=["slurm", "pbs"])
def scheduler(request):
    """What the site is rehearsed on; all tests on one come before those on the next."""
    return request.param


@pytest.fixture(scope="module")
def cluster(podman, scheduler):
    """A cluster with that batch system, in the place of the one that other tests share."""
    site = of_the_checkout(SITE, scheduler)
    system = batch_system_of(variables(site, site.own, *site.over))
    names = names_of_the_cluster(rehearsals.NAME + scheduler)
    with rehearsals.lent(Cluster(podman, names, system=system), rehearsals.KEPT) as made:
        yield made


@pytest.fixture(scope="module")
def channel(cluster, tmp_path_factory):
    """The conda channel that the release names, on the cluster; one that is there already stays as it is."""
    if not CHANNEL or cluster.execute("login", "test", "-e", CHANNEL).returncode == 0:
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
    return lambda: rehearsals.rehearse(cluster, SITE, "RELEASE=rehearsal-real", "SCHEDULER=" + scheduler)


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
    assert {"ts-" + step for step in EXPECTED.steps} <= set(steps)
    acceptance = steps["ts-acceptance"]
    assert (acceptance.user, acceptance.account) == ("researcher", "science")


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, rehearse, rehearsed):
    before = rehearsals.jobs(cluster)
    assert before
    assert changed_in(rehearse()) == 0
    assert rehearsals.jobs(cluster) == before


def test_nccl_and_its_plugin_are_those_of_their_commits_and_can_be_opened(cluster, rehearsed):
    record = json.loads(cluster.execute("login", "cat", PREFIX + ".torchstack/nccl.json").stdout)
    wanted = RELEASE["nccl"]
    assert (record["version"], record["commit"]) == (wanted["version"], wanted["commit"])
    assert (record["plugin"]["commit"], record["plugin"]["used"]) == (wanted["plugin"]["commit"], EXPECTED.interface)
    # An ONLY_FUNCS that matches nothing builds as well, and its all-reduce does nothing.
    words = ("grep", "-c", "ncclDevKernel_AllReduce_Sum_f32", PREFIX + "nccl/lib/libnccl.so.2")
    assert cluster.execute("login", *words).returncode == 0
    opening = 'module load torchstack/rehearsal-real && python3 -c "$1" "$2"'
    words = ("bash", "-lc", opening, "open", OPENED, PREFIX + "nccl/lib")
    said = cluster.execute("login", *words, user="researcher")
    assert said.returncode == 0, said.stderr
    version, interface, mapped = json.loads(said.stdout)
    assert (version, interface) == (EXPECTED.nccl, EXPECTED.interface)
    assert [path.rpartition("/")[0] for path in mapped] == EXPECTED.mapped


@pytest.fixture(scope="module")
def ranks(cluster, scheduler, rehearsed):
    """What two ranks of the ordinary user said, one on each node, by their rank."""
    place = "/shared/home/researcher/"
    for name, text in (("ranks.py", RANKS), ("ranks.sh", SCRIPT)):
        words = ("sh", "-c", 'printf %s "$1" > "$2"', "write", text, place + name)
        written = cluster.execute("login", *words, user="researcher")
        assert written.returncode == 0
    line = EXPECTED.submit[scheduler].format(output=place + "ranks.out", script=place + "ranks.sh")
    done = cluster.execute("login", "bash", "-lc", line, user="researcher")
    said = cluster.execute("login", "cat", place + "ranks.out").stdout.decode(errors="replace")
    assert done.returncode == 0, (done.stderr, said)
    found = [json.loads(text.split("ranks ", 1)[1]) for text in said.splitlines() if text.startswith("ranks ")]
    return sorted(found, key=lambda one: one["rank"])


def test_ranks_on_two_nodes_reduce_over_the_dressed_mpi(ranks):
    assert [(one["rank"], one["ranks"]) for one in ranks] == [(0, 2), (1, 2)]
    assert [one["sum"] for one in ranks] == [[3.0], [3.0]]
    assert len({one["host"] for one in ranks}) == 2
    for one in ranks:
        (mpi,) = one["mpi"]
        assert mpi.startswith("/opt/cray/pe/mpich/")
        assert one["torch"].startswith(PREFIX + "base/lib/")


def test_their_training_s_loss_falls_on_weights_that_are_the_same(ranks):
    assert ranks[0]["weights"] == ranks[1]["weights"]
    for one in ranks:
        assert one["last"] < 0.2 * one["first"], one


@needs("horovod")
def test_they_are_ranks_of_horovod(ranks):
    assert [one["horovod"] for one in ranks] == [[0, 2], [1, 2]]


@needs("h5py")
def test_they_write_one_file_by_hdf5_over_that_mpi_and_read_each_other_s_part(ranks):
    assert [one["read"] for one in ranks] == [[1.5], [0.5]]


@needs("torch_scatter")
def test_they_reduce_by_groups_with_the_compiled_torch_scatter(ranks):
    assert [one["scattered"] for one in ranks] == [[1.0, 5.0, 4.0], [2.0, 10.0, 8.0]]

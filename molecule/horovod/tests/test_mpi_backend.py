# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The MPI backend, compiled for the torch of a release with the release's MPI.

The source is a stand-in of ours behind the real headers of that torch; tests/upstream has PyTorch's own.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
OURS = CHECKOUT / "roles/pytorch/files/mpi_backend"
FIXTURES = CHECKOUT / "tests/fixtures/mpi_backend"
BASE = pathlib.Path(os.environ["TORCHSTACK_TEST_ROOT"]) / "2026-11-20" / "base"
C10D = "torch/csrc/distributed/c10d"
OPERATIONS = ["all_reduce", "broadcast", "all_gather", "reduce_scatter_tensor", "barrier"]
FUNCTIONS = ["MPI_Bcast", "MPI_Allgather", "MPI_Reduce_scatter_block", "MPI_Barrier"]


def run(*words, path=(), before=(), **environment):
    settings = {
        "PYTHONPATH": os.pathsep.join([str(BASE / "site"), *map(str, path)]),
        "PYTHONNOUSERSITE": "1",
        "PATH": "%s:/usr/local/bin:/usr/bin:/bin" % (BASE / "bin"),
        "OMP_NUM_THREADS": "1",
        "HOME": os.environ["HOME"],
        **environment,
    }
    return subprocess.run(
        [*before, str(BASE / "bin/python3"), *map(str, words)],
        env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What a checkout of the installed version would have of the backend."""
    ask = "import torch; print(torch.__path__[0], torch.__version__, torch.version.git_version)"
    said = run("-c", ask).stdout.split()
    tree = tmp_path_factory.mktemp("source")
    (tree / C10D).mkdir(parents=True)
    for header in pathlib.Path(said[0], "include", C10D).glob("*.h*"):
        shutil.copyfile(header, tree / C10D / header.name)
    shutil.copy(FIXTURES / "ProcessGroupMPI.cpp", tree / C10D)
    (tree / "version.txt").write_text(said[1].partition("+")[0] + "a0\n")
    return tree, said[2]


@pytest.fixture(scope="module")
def site(source, tmp_path_factory):
    """A directory of packages with the backend."""
    work = tmp_path_factory.mktemp("work")
    wheel = work / "torchstack_mpi-2.13.0-cp311-cp311-linux_x86_64.whl"
    compiled = run(OURS / "compile_backend.py", source[0], OURS, work / "compiled", wheel, "mpicxx", "mpi")
    assert compiled.returncode == 0, compiled.stdout
    with zipfile.ZipFile(str(wheel)) as archive:
        archive.extractall(str(work / "site"))
    return work / "site"


def test_a_source_that_does_not_match_the_installed_wheel_is_refused(source, tmp_path):
    tree, commit = source
    assert run(OURS / "match_source.py", tree, commit).returncode == 0
    changed = tmp_path / "changed"
    shutil.copytree(tree, changed)
    with (changed / C10D / "ProcessGroupMPI.hpp").open("a") as stream:
        stream.write("\n")
    for words, sentence in (
        ((changed, commit), "1 of the headers in %s are not the same" % C10D),
        ((tree, "0" * 40), "the installed torch was built from %s" % commit),
    ):
        refused = run(OURS / "match_source.py", *words)
        assert refused.returncode == 1
        assert sentence in refused.stdout and "Nothing was compiled." in refused.stdout


@pytest.mark.parametrize("size", [2, 4])
def test_the_collectives_are_right_and_served_by_the_mpi_of_the_release(site, tmp_path, size):
    process = run(
        FIXTURES / "collectives.py", "mpi", tmp_path / "meeting", *OPERATIONS, "group_of_some",
        path=[site], before=[str(BASE / "bin/mpiexec"), "-n", str(size)],
    )
    assert process.returncode == 0, process.stdout
    ranks = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("meeting.*.json"))]
    assert [rank["rank"] for rank in ranks] == list(range(size))
    for rank in ranks:
        assert rank["size"] == size
        assert rank["right"] == dict.fromkeys([*OPERATIONS, "group_of_some"], True)
        assert {name: rank["calls"].get(name) for name in FUNCTIONS} == dict.fromkeys(FUNCTIONS, 1)
        assert rank["calls"]["MPI_Allreduce"] == (2 if rank["rank"] in (0, size - 1) else 1)
        assert rank["type"] == "torchstack_mpi._backend.ProcessGroupMPI"
        assert not rank["built in"]
        assert rank["library"]["path"].startswith(str(BASE))
        assert [path for path in rank["maps"] if "torchstack_mpi" in path] == [str(site / "torchstack_mpi/_backend.so")]


def test_torch_alone_offers_the_backend_and_can_be_told_not_to(site):
    ask = "import torch; print(torch.distributed.is_mpi_available())"
    assert run("-c", ask, path=[site]).stdout == "True\n"
    explicit = ask + "; import torchstack_mpi; print(torch.distributed.is_mpi_available())"
    assert run("-c", explicit, path=[site], TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout == "False\nTrue\n"


def test_another_torch_is_imported_without_the_backend(site, tmp_path):
    other = tmp_path / "site"
    shutil.copytree(site, other)
    built = json.loads((other / "torchstack_mpi/built.json").read_text())
    (other / "torchstack_mpi/built.json").write_text(json.dumps(dict(built, torch="2.12.0")))
    process = run("-c", "import torch; print(torch.distributed.is_mpi_available())", path=[other])
    assert process.returncode == 0
    assert "was compiled for torch 2.12.0" in process.stdout and process.stdout.endswith("False\n")

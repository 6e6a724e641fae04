# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The tests for ReFrame on a site with Slurm and modules, by a release with a stand-in for mpi4py."""

from __future__ import annotations

import pathlib
import shutil
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import reframe_files, reframe_tests
from support import reframe_program, slurm_cluster

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LMOD = pathlib.Path("/usr/share/lmod/lmod")
MODULE = """\
prepend_path("PYTHONPATH", "{release}/lib")
setenv("FAKE_MPI_DIRECTORY", "{exchange}")
"""
SRUN = ["srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}", "--overcommit"]

pytestmark = pytest.mark.skipif(not LMOD.is_dir(), reason="there is no Lmod in %s" % LMOD)


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as world:
        yield world


@pytest.fixture(name="tests")
def tests_of_a_release(tmp_path):
    """The directory of the tests, and beside it the release and its module."""
    release, modules = tmp_path / "release", tmp_path / "modules" / "torchstack"
    for directory in (release / "lib" / "mpi4py", modules, tmp_path / "exchange"):
        directory.mkdir(parents=True)
    (release / "lib" / "mpi4py" / "__init__.py").write_text("")
    shutil.copy(CHECKOUT / "tests" / "fixtures" / "acceptance" / "MPI.py", release / "lib" / "mpi4py")
    (modules / "r1.lua").write_text(MODULE.format(release=release, exchange=tmp_path / "exchange"))
    described = reframe_tests.described({
        "release": "r1", "prefix": str(release), "shared": None, "module": "torchstack/r1",
        "modulepaths": {"lmod": str(modules.parent), "tcl": None}, "environment": {}, "nodes": 2, "ranks": 2,
        "launcher": SRUN, "job": {"options": {"cores": 1}}, "python": sys.executable, "imports": ["mpi4py.MPI"],
        "checks": ["imports", "mpi4py"], "where_possible": [], "transport": {}, "import_ceiling": 0,
        "measure": {}, "sizes": [], "tolerance": 0, "timeout": 300,
    })
    program = (CHECKOUT / "roles" / "acceptance" / "files" / "reframe" / "torchstack.py").read_text()
    files = reframe_files.wanted(described, program)
    reframe_files.write(str(tmp_path / "tests"), files, list(files))
    return tmp_path / "tests"


def test_a_job_of_two_nodes_loads_the_module_and_is_judged(cluster, tests, tmp_path):
    partition = {
        "name": "batch", "scheduler": "squeue", "launcher": "srun", "access": ["--partition=main"],
        "prepare_cmds": ["source %s/init/bash" % LMOD],
    }
    configuration = reframe_program.configured(tmp_path, [partition], "lmod")
    environment = dict(cluster.environment, LMOD_CMD=str(LMOD / "libexec" / "lmod"), PATH=slurm_cluster.SYSTEM_PATH)
    code, said = reframe_program.run(configuration, [tests], tmp_path, "-r", **environment)
    assert code == 0 and "Ran 1/1 test case(s)" in said, said
    job = cluster.jobs("rfm_TorchstackAcceptance_r1")
    assert [one["state"] for one in job] == ["COMPLETED"]

    (tests.parent / "modules" / "torchstack" / "r1.lua").open("a").write('setenv("FAKE_MPI_OFF_BY_ONE", "1")\n')
    code, said = reframe_program.run(configuration, [tests], tmp_path, "-r", **environment)
    reason = reframe_program.outcomes(tmp_path).popitem()[1]["fail_reason"]
    assert code != 0 and "rank 1 on n2" in reason and "index 17: got 13.0, expected 12" in reason, said

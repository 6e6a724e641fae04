# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the mpi role leaves behind."""

from __future__ import annotations

import os
import pathlib

PREFIX = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root" / "2026-11-20"
RUN = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_the_module_was_compiled_against_the_releases_mpi(host):
    process = host.run(RUN + " -c 'from mpi4py import MPI; print(MPI.Get_library_version())'")
    assert process.rc == 0, process.stderr
    assert "MPICH Version" in process.stdout


def test_the_wheel_is_kept(host):
    assert [path.name for path in (PREFIX / "wheels").iterdir() if path.name.startswith("mpi4py-0.0.1-cp")]


def test_the_launcher_starts_ranks(host):
    process = host.run("%s/base/bin/mpiexec -n 2 echo a rank", str(PREFIX))
    assert process.stdout.count("a rank") == 2

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the python_overlay role leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

PREFIX = pathlib.Path(os.environ["TORCHSTACK_TEST_ROOT"]) / "2026-11-20"
PYTHON = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_s27_the_packages_come_from_the_release(host):
    process = host.run(PYTHON + " -c 'import numpy, torch, yaml; print(numpy.__file__, torch.__file__, yaml.__file__)'")
    assert process.rc == 0, process.stderr
    assert all(path.startswith(str(PREFIX)) for path in process.stdout.split())


def test_s06_torch_reports_the_version_that_was_asked_for(host):
    record = json.loads((PREFIX / ".torchstack" / "pytorch.json").read_text())
    assert record["version"].partition("+")[0] == "2.13.0"
    assert record["origin"]


def test_mpi4py_was_compiled_against_the_releases_mpi(host):
    process = host.run(PYTHON + " -c 'from mpi4py import MPI; print(MPI.Get_library_version())'")
    assert process.rc == 0, process.stderr
    assert "MPI" in process.stdout


def test_the_interpreter_in_the_prefix_is_the_sites_own(host):
    process = host.run(PYTHON + " -c 'import sys; print(sys.prefix == sys.base_prefix, sys.prefix)'")
    assert process.stdout.startswith("True")
    assert str(PREFIX) not in process.stdout

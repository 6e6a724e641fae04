# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the pytorch role leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
PREFIX, BUILT = ROOT / "2026-11-20", ROOT / "2026-11-21"
RUN = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_s06_torch_reports_the_version_that_was_asked_for_and_where_it_came_from(host):
    record = json.loads((PREFIX / ".torchstack" / "pytorch.json").read_text())
    assert (record["version"], record["cuda"]) == ("0.0.1+cpu", None)
    assert record["origin"].startswith("file://")


def test_s27_it_comes_from_the_release(host):
    process = host.run(RUN + " -c 'import torch; print(torch.__file__)'")
    assert process.rc == 0, process.stderr
    assert process.stdout.startswith(str(PREFIX))


def test_an_index_that_cannot_be_reached_was_tried_once(host):
    log = (PREFIX / ".torchstack" / "steps" / "pytorch-fetch" / "log").read_text()
    assert log.count("The CPU index cannot be reached") == 1


def test_s06_what_was_built_from_source_uses_the_mpi_of_the_site_and_reports_its_local_version(host):
    python = RUN.replace(str(PREFIX), str(BUILT))
    process = host.run(python + " -c 'import torch; print(torch.__version__, torch._C._mpi_library())'")
    assert process.rc == 0, process.stderr
    assert process.stdout.split(None, 1) == ["2.3.1+small-site", "small MPI\n"]
    assert [path.name.split("-")[1] for path in (BUILT / "wheels").iterdir()] == ["2.3.1+small.site"]


def test_the_series_is_kept_and_was_applied_to_the_source():
    (kept,) = (BUILT / ".torchstack" / "series" / "pytorch").glob("*/*.patch")
    source = BUILT / "src" / "pytorch-2.3.1" / "torch" / "csrc" / "distributed" / "c10d" / "ProcessGroupMPI.cpp"
    added = [line[1:] for line in kept.read_text().splitlines() if line.startswith("+ ")]
    assert added
    assert set(added) <= set(source.read_text().splitlines())

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""S23: what `horovodrun --check-build` printed is judged, as its exit code says nothing."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "horovod" / "files" / "check_build.py"
REPORT = """Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [X] MPI
    [X] Gloo
"""


@pytest.fixture()
def check_build():
    spec = importlib.util.spec_from_file_location("check_build", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judge(tmp_path, report, expected):
    text, record = tmp_path / "report.txt", tmp_path / "record.json"
    text.write_text(report)
    process = subprocess.run(
        [sys.executable, str(PROGRAM), str(text), json.dumps(expected), str(record)],
        capture_output=True,
        text=True, check=False,
    )
    return process, record


def test_s23_ticked_brackets_are_read_by_section(check_build):
    assert check_build.parse(REPORT) == {
        "version": "0.28.1",
        "frameworks": ["PyTorch"],
        "controllers": ["MPI", "Gloo"],
        "operations": ["MPI", "Gloo"],
    }


def test_s23_a_missing_capability_fails_with_its_name(tmp_path):
    process, record = judge(tmp_path, REPORT, {"operations": ["NCCL", "MPI"]})
    assert process.returncode == 1
    assert "operations: NCCL" in process.stderr
    assert "operations: MPI" not in process.stderr
    assert not record.exists()


def test_s23_mpi_as_controller_does_not_stand_in_for_mpi_as_operation(tmp_path):
    head, heading, tail = REPORT.partition("Available Tensor Operations:")
    report = head + heading + tail.replace("[X] MPI", "[ ] MPI")
    process, _record = judge(tmp_path, report, {"operations": ["MPI"]})
    assert process.returncode == 1


def test_s23_a_report_that_is_none_fails(tmp_path):
    process, _record = judge(tmp_path, "Traceback (most recent call last):\n", {})
    assert process.returncode != 0


def test_s23_what_was_built_is_recorded(tmp_path):
    process, record = judge(tmp_path, REPORT, {"frameworks": ["PyTorch"], "controllers": ["MPI"]})
    assert process.returncode == 0, process.stderr
    assert json.loads(record.read_text())["frameworks"] == ["PyTorch"]

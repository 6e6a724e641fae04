# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The example program all_reduce.py, by the PyTorch of the release that the tests have rolled out."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "roles" / "container" / "files" / "examples" / "all_reduce.py"
ROOT = os.environ.get("TORCHSTACK_TEST_ROOT", os.path.expanduser("~/torchstack-test"))
BASE = pathlib.Path(ROOT, "2026-11-20", "base")
FORGETFUL = """
import sys
sys.path.insert(0, sys.argv[1])
import all_reduce
all_reduce.distributed.all_reduce = lambda values: None
all_reduce.main()
"""

pytestmark = pytest.mark.skipif(
    not list(BASE.glob("lib/python3*/site-packages/torch/__init__.py")), reason="there is no release in %s" % ROOT)


def run_ranks(*words):
    """Run two ranks; the exit status and the output of each."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = dict(
        os.environ, PYTHONPATH=str(BASE / "site"), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2",
        OMP_NUM_THREADS="1")
    started = [
        subprocess.Popen(
            [str(BASE / "bin" / "python3"), "-B", *words], env=dict(environment, RANK=rank, LOCAL_RANK=rank),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) for rank in "01"]
    said = [rank.communicate()[0] for rank in started]
    return [(rank.returncode, text) for rank, text in zip(started, said)]


def test_two_ranks_find_their_sums_right():
    (first, said), (second, others) = run_ranks(str(PROGRAM))
    assert (first, second) == (0, 0), said + others
    assert "All sums over 2 ranks are right" in said
    assert "Rank 1 of 2: cpu on " in others


def test_sums_that_are_wrong_end_the_job():
    for status, said in run_ranks("-c", FORGETFUL, str(PROGRAM.parent)):
        assert status == 1, said
        assert "the sums of [1, 4099] elements are wrong" in said

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the benchmark is held against nccl-tests: with its texts from GPUs, and two small programs in their place."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "bench"))

import collectives

# What nccl-tests printed on two GPUs; its README says how.
PRINTED = {path.stem: path.read_text() for path in (CHECKOUT / "tests" / "fixtures" / "nccl-tests").glob("*.out")}
PERF = "#!/bin/sh\ncat %s\n"
LAUNCHER = """#!%s
import json, sys
rows = [{"bytes": 1 << 30, "busbw": float(%r)}, {"bytes": 1 << 33, "busbw": 1.0}]
with open(sys.argv[sys.argv.index("--json") + 1], "w") as stream:
    json.dump({"verified": True, "measurements": [{"rows": rows}]}, stream)
"""


def test_s30_the_figures_of_nccl_tests_are_those_in_place():
    found = collectives.of_nccl_tests(PRINTED["all"])
    assert list(found) == [1 << power for power in range(3, 33)]
    assert (found[1 << 3], found[1 << 30], found[1 << 32]) == (0.0, 331.96, 344.77)


def test_s30_values_that_nccl_tests_did_not_check_are_no_wrong_ones():
    assert collectives.of_nccl_tests(PRINTED["unchecked"])[1 << 26] == 269.74


def test_s30_what_memory_allows_is_measured():
    assert list(collectives.of_nccl_tests(PRINTED["too-large"])) == [1 << 30, 1 << 32, 1 << 34]


@pytest.mark.parametrize("printed", [
    "", PRINTED["too-many"], PRINTED["unknown"], PRINTED["all"].replace("331.96       0", "331.96       7"),
])
def test_s30_no_figures_and_wrong_values_compare_with_nothing(printed):
    with pytest.raises(ValueError, match="nccl-tests printed"):
        collectives.of_nccl_tests(printed)


@pytest.mark.parametrize(("own", "code"), [(331.5, 0), (338.0, 0), (325.0, 1), (339.0, 1)])
def test_s30_agreeing_with_nccl_tests_is_being_within_2_percent_either_way(own, code, tmp_path):
    (tmp_path / "printed").write_text(PRINTED["all"])
    for name, text in (("perf", PERF % (tmp_path / "printed")), ("launch", LAUNCHER % (sys.executable, own))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    words = ["--perf", str(tmp_path / "perf"), "--launcher", str(tmp_path / "launch"), "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "bench" / "collectives.py"), *words], capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "| 1073741824 | 331.96 | %.2f | %.4f | %s |" % (own, own / 331.96, "NO" if code else "yes") in done.stdout

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the benchmark is held against nccl-tests; with two small programs in their place, because there is no GPU."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "bench"))

import collectives

# The columns that nccl-tests 2.19 prints; the figures are made up.
PRINTED = """\
# nccl-tests version 2.19.6 nccl-headers=23004 nccl-library=23004
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
   536870912     134217728     float     sum      -1  1674.54  320.61  320.61       0  1671.20  321.25  321.25       0
  1073741824     268435456     float     sum      -1  3263.60  329.01  329.01       0  3260.10  329.36  329.36       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 325.057
"""
PERF = "#!/bin/sh\ncat %s\n"
LAUNCHER = """#!%s
import json, sys
rows = [{"bytes": 1 << 30, "busbw": float(%r)}, {"bytes": 1 << 31, "busbw": 1.0}]
with open(sys.argv[sys.argv.index("--json") + 1], "w") as stream:
    json.dump({"verified": True, "measurements": [{"rows": rows}]}, stream)
"""


def test_s30_the_figures_of_nccl_tests_are_those_in_place():
    assert collectives.of_nccl_tests(PRINTED) == {1 << 29: 321.25, 1 << 30: 329.36}


@pytest.mark.parametrize("printed", ["", PRINTED.replace("329.36       0", "329.36       7")])
def test_s30_no_figures_and_wrong_values_compare_with_nothing(printed):
    with pytest.raises(ValueError, match="nccl-tests printed"):
        collectives.of_nccl_tests(printed)


@pytest.mark.parametrize(("own", "code"), [(329.0, 0), (335.0, 0), (322.0, 1), (337.0, 1)])
def test_s30_agreeing_with_nccl_tests_is_being_within_2_percent_either_way(own, code, tmp_path):
    (tmp_path / "printed").write_text(PRINTED)
    for name, text in (("perf", PERF % (tmp_path / "printed")), ("launch", LAUNCHER % (sys.executable, own))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    words = ["--perf", str(tmp_path / "perf"), "--launcher", str(tmp_path / "launch"), "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "bench" / "collectives.py"), *words], capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "| 1073741824 | 329.36 | %.2f | %.4f | %s |" % (own, own / 329.36, "NO" if code else "yes") in done.stdout

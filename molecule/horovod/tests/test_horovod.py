# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the horovod role leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

PREFIX = pathlib.Path(os.environ["TORCHSTACK_TEST_ROOT"]) / "2026-11-20"
SERIES = pathlib.Path(__file__).resolve().parents[3] / "roles/horovod/files/series"
PYTHON = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_s22_horovod_was_built_for_a_torch_that_needs_cxx17(host):
    process = host.run(PYTHON + " -c 'import torch, horovod.torch; print(torch.__version__, horovod.__version__)'")
    assert process.rc == 0, process.stderr
    assert process.stdout.split()[1] == "0.28.1"


def test_s23_what_check_build_ticked_is_recorded(host):
    built = json.loads((PREFIX / ".torchstack" / "horovod.json").read_text())
    assert built["controllers"] == ["MPI", "Gloo"]
    assert built["operations"] == ["MPI", "Gloo"]
    assert built["frameworks"] == ["PyTorch"]


def test_the_wheel_is_kept(host):
    assert [path.name for path in (PREFIX / "wheels").glob("horovod-0.28.1-*.whl")]


def test_the_patch_series_is_kept_with_the_release(host):
    kept = (PREFIX / ".torchstack" / "series" / "horovod").glob("*/*.patch")
    assert sorted(path.name for path in kept) == sorted(path.name for path in SERIES.glob("0.28.1/*.patch"))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The tests that the role acceptance writes for ReFrame, run by a real one on the release that was rolled out."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest
from support import reframe_program
from support.role_plays import play_tasks

ROOT = os.environ.get("TORCHSTACK_TEST_ROOT", os.path.expanduser("~/torchstack-test"))
PREFIX = pathlib.Path(ROOT, "2026-11-20")
BASE = PREFIX / "base"
FLOOR = {"backend": "gloo", "operation": "all_reduce", "bytes": "64 KiB", "busbw": 1e-9, "source": "none is slower"}
PARTITIONS = [{"name": "cpu", "scheduler": "local", "launcher": "mpirun"}]
WRONG = """\
#!/usr/bin/env python3
import runpy
import sys
import torch.distributed
right = torch.distributed.all_reduce
def wrong(values, *words, **options):
    found = right(values, *words, **options)
    if torch.distributed.get_rank() == 1:
        values.view(-1)[-1:] += 1
    return found
torch.distributed.all_reduce = wrong
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

pytestmark = pytest.mark.skipif(
    not list(BASE.glob("lib/python3*/site-packages/torch/__init__.py")), reason="there is no release in %s" % ROOT)


@pytest.fixture(name="written", scope="module")
def tests_of_the_release(tmp_path_factory, ansible_environment):
    """The directory that the role wrote."""
    place = tmp_path_factory.mktemp("site")
    variables = {
        "acceptance_root": str(place), "acceptance_release": "2026-11-20", "acceptance_prefix": str(PREFIX),
        "acceptance_environment": {"PATH": "%s/bin:/usr/bin:/bin" % BASE, "PYTHONPATH": str(BASE / "site")},
        "acceptance_imports": ["torch", "mpi4py"], "acceptance_checks": ["imports", "devices", "torch_gloo", "mpi4py"],
        "acceptance_where_possible": ["torch_nccl"], "acceptance_timeout": 300, "acceptance_reframe_sizes": ["32 KiB"],
        "acceptance_transport": {}, "acceptance_import_ceiling": 0, "acceptance_measure": {
            "operations": ["all_reduce"], "smallest": "32 KiB", "largest": "64 KiB", "warmups": 1, "trials": 3,
            "latency": {"bytes": [8], "iterations": 50}, "floors": {"bandwidth": [FLOOR]},
        },
    }

    # The second time there is nothing to write.
    done = play_tasks("acceptance", "reframe", variables, [{}, {}], ansible_environment, place)
    assert done.returncode == 0 and "changed=1 " in done.stdout, done.stdout
    return place / ".torchstack" / "2026-11-20" / "reframe"


@pytest.fixture(name="site")
def one_site(tmp_path):
    """Run ReFrame with the configuration of a small site; the cases of the report."""
    configuration = reframe_program.configured(tmp_path, PARTITIONS)

    def run(tests, *words):
        code, said = reframe_program.run(configuration, tests, tmp_path, "-r", *words)
        return code, said, reframe_program.outcomes(tmp_path)

    return run


def changed(source, target, **values):
    """A copy of the tests, of a release that is described otherwise."""
    shutil.copytree(source, target)
    described = dict(json.loads((target / "release.json").read_text()), **values)
    (target / "release.json").write_text(json.dumps(described))
    return target


def test_reframe_passes_the_release_and_logs_its_figures(written, site):
    chosen = "Acceptance|Collectives.*backend=(gloo|nccl)|Latency.*backend=mpi"
    code, said, cases = site([written], "-n", chosen)
    assert code == 0, said
    results = {name.partition("_")[0] + name.partition(" ")[2]: case["result"] for name, case in cases.items()}
    gpu = results.pop("TorchstackCollectives%backend=nccl")
    assert set(results.values()) == {"pass"} and len(results) == 3, said
    assert gpu == "skip" or os.path.exists("/dev/nvidia0")
    assert "P: all_reduce_32KiB: " in said and "P: all_reduce_64KiB: " in said and "P: latency_8bytes: " in said


def test_what_is_wrong_slow_not_measured_or_cannot_be_judged_fails(written, site, tmp_path):
    limit = {"backend": "mpi", "kind": "bandwidth", "name": "all_reduce_64KiB", "value": 1e6}
    python = tmp_path / "python"
    python.write_text(WRONG)
    python.chmod(0o755)
    unjudged = changed(written, tmp_path / "d", name="unjudged", python="/bin/true")
    (unjudged / "judge.pyz").write_text("raise SystemExit('too old')")
    code, said, cases = site([
        changed(written, tmp_path / "a", name="slow", limits=[limit]),
        changed(written, tmp_path / "b", name="never", limits=[dict(limit, name="all_reduce_4GiB")]),
        changed(written, tmp_path / "c", name="wrong", python=str(python)),
        unjudged,
    ], "-n", "Collectives_(slow|never).*backend=mpi|Collectives_wrong.*backend=gloo|Acceptance_unjudged")
    assert code != 0
    failed = {name.partition(" ")[0].partition("_")[2]: case for name, case in cases.items()}
    phases = {release: case["fail_phase"] for release, case in failed.items()}
    assert phases == {"slow": "performance", "never": "sanity", "wrong": "sanity", "unjudged": "sanity"}, said
    assert "all_reduce_64KiB" in failed["slow"]["fail_reason"]
    assert "all_reduce_4GiB" in failed["never"]["fail_reason"]
    assert "values are wrong" in failed["wrong"]["fail_reason"]
    assert "cannot judge with" in failed["unjudged"]["fail_reason"]
    assert "too old" in failed["unjudged"]["fail_reason"]

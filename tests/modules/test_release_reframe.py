# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_reframe through Ansible: plan, write, plan again, write again. What ReFrame makes of it: tests/reframe."""

from __future__ import annotations

import json

FILES = ["collectives.pyz", "judge.pyz", "ranks.pyz", "release.json", "torchstack_2026_11_20.py"]


def test_a_plan_writes_nothing_and_what_is_right_stays(run_module, tmp_path):
    floor = {"backend": "gloo", "operation": "all_reduce", "bytes": "1 MiB", "busbw": 2.5, "source": "measured"}
    options = {
        "root": str(tmp_path), "release": "2026-11-20", "imports": ["torch"], "checks": ["imports", "torch_gloo"],
        "module": "torchstack/2026-11-20", "modulepaths": {"lmod": "/soft/lmod"}, "tests": "import reframe\n",
        "measure": {"floors": {"bandwidth": [floor]}},
    }
    directory = tmp_path / ".torchstack" / "2026-11-20" / "reframe"
    planned = run_module("release_reframe", options, check=True, diff=True)
    assert planned.changed and planned["written"] == FILES and planned["directory"] == str(directory)
    assert any("all_reduce_1MiB" in line for line in planned.shown_difference) and not directory.exists()

    done = run_module("release_reframe", options)
    assert done.changed and done["written"] == FILES
    assert sorted(path.name for path in directory.iterdir()) == FILES
    described = json.loads((directory / "release.json").read_text())
    assert described["question"]["prefix"] == str(tmp_path / "2026-11-20") and described["backends"] == {"gloo": True}

    assert not run_module("release_reframe", options, check=True).changed
    assert not run_module("release_reframe", options).changed

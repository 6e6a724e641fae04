# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A look at a release that is killed at any write is completed by the next one, with one line in the history."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import drift_record
from support import faults

PROGRAM = """
import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import drift_record
drift_record.keep(sys.argv[1], "2026-11-20", "quick", {"matches": False, "findings": ["size: x"]}, True)
"""


def test_a_look_killed_at_any_write_is_completed_by_the_next_and_told_once(
    collections_path, fault_library, tmp_path
):
    first = {"matches": True, "findings": []}
    second = {"matches": False, "findings": ["size: x"]}
    before = tmp_path / "before"
    (before / ".torchstack" / "2026-11-20").mkdir(parents=True)
    assert drift_record.keep(str(before), "2026-11-20", "quick", first, True) == (True, None)
    for number in range(1, 40):
        root = tmp_path / str(number)
        shutil.copytree(before, root)
        variables = faults.variables(fault_library, "kill", faults.CHANGES, root, number)
        environment = {**os.environ, "PYTHONPATH": str(collections_path), **variables}
        code = subprocess.run([sys.executable, "-S", "-c", PROGRAM, str(root)], env=environment, check=False).returncode
        changed, earlier = drift_record.keep(str(root), "2026-11-20", "quick", second, True)
        afterwards = root / ".torchstack" / "2026-11-20"
        record = json.loads((afterwards / "drift.json").read_text())["looks"]["quick"]
        told = [json.loads(line) for line in (afterwards / "drift.jsonl").read_text().splitlines()]
        assert [line["findings"] for line in told] == [[], ["size: x"]]
        assert (record["outcome"], record["since"]) == (second, told[1]["time"])
        assert drift_record.keep(str(root), "2026-11-20", "quick", second, True) == (False, second)
        if code == 0:
            assert not changed
            break
        assert code == -signal.SIGKILL and earlier in (first, second)
    assert number > 5 and code == 0

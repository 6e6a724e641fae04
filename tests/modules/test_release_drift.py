# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_drift as Ansible runs it."""

from __future__ import annotations

import json
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest


@pytest.fixture()
def root(tmp_path):
    """Two frozen releases."""
    root = tmp_path / "root"
    for name in ("2026-05-02", "2026-11-20"):
        prefix, afterwards = root / name, root / ".torchstack" / name
        for path in ("base/x.py", ".torchstack/release.yml"):
            (prefix / path).parent.mkdir(parents=True, exist_ok=True)
            (prefix / path).write_text(path)
        subprocess.run(["chmod", "-R", "a-w", str(prefix)], check=True)
        place = str(prefix / ".torchstack" / "manifest.json")
        digest = manifest.record(manifest.Request(str(prefix), str(root), place), True)["digest"]
        afterwards.mkdir(parents=True)
        record = {"digest": name, "frozen_at": name + "T08:00:00Z", "manifest": {"digest": digest}}
        (afterwards / "frozen.json").write_text(json.dumps(record))
    yield root
    subprocess.run(["chmod", "-R", "u+rwX", str(root)], check=True)


def test_check_do_check_again_do_again(run_module, root):
    (root / "2026-05-02" / "base" / "x.py").chmod(0o644)
    record = root / ".torchstack" / "2026-05-02" / "drift.json"
    planned = run_module("release_drift", {"root": str(root)}, check=True, diff=True)
    assert planned.changed and not planned.failed and not record.exists()
    done = run_module("release_drift", {"root": str(root)}, diff=True)
    assert done.changed and done.shown_difference == planned.shown_difference
    assert any("mode: base/x.py, 0644 instead of 0444" in line for line in done.shown_difference)
    assert done["drifted"] == planned["drifted"] == ["2026-05-02"]
    assert [(entry["release"], entry["outcome"]["matches"]) for entry in done["releases"]] == [
        ("2026-05-02", False), ("2026-11-20", True)]
    assert [entry["outcome"] for entry in done["releases"]] == [entry["outcome"] for entry in planned["releases"]]
    content = record.read_bytes()
    for check in (True, False):
        again = run_module("release_drift", {"root": str(root)}, check=check, diff=True)
        assert not again.changed and again.shown_difference == [] and again["drifted"] == ["2026-05-02"]
    assert record.read_bytes() == content

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_report through Ansible: plan, write, plan again, write again."""

from __future__ import annotations

import json

import report_world

RELEASE = report_world.RELEASE


def test_the_report_is_planned_written_and_left_alone(run_module, tmp_path):
    arguments = {"root": str(tmp_path), "release": RELEASE, "resolved": report_world.finished(tmp_path, 8)}
    path = tmp_path / ".torchstack" / RELEASE / "report.json"
    planned = run_module("release_report", arguments, check=True)
    assert planned.changed and not path.exists()
    written = run_module("release_report", arguments)
    assert written.changed and json.loads(path.read_text()) == written["facts"] == planned["facts"]
    content, time = path.read_bytes(), path.stat().st_mtime_ns
    assert not run_module("release_report", arguments, check=True).changed
    assert not run_module("release_report", arguments).changed
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, time)
    assert path.stat().st_mode & 0o777 == 0o644

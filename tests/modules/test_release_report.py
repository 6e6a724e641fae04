# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_report through Ansible: plan, write, plan again, write again."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.hpcml.torchstack.plugins.filter.report_page import report_page
from support import report_records

RELEASE = report_records.RELEASE
TEMPLATES = str(pathlib.Path(__file__).resolve().parents[2] / "roles" / "report" / "templates")


def test_the_report_is_planned_written_and_left_alone(run_module, tmp_path):
    arguments = {"root": str(tmp_path), "release": RELEASE, "resolved": report_records.finished(tmp_path, 8)}
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


def test_the_report_of_a_rollout_that_failed_says_why_once_with_the_log_and_what_to_do(run_module, tmp_path):
    arguments = {"root": str(tmp_path), "release": RELEASE, "resolved": report_records.unfinished(tmp_path)}
    found = run_module("release_report", arguments)["facts"]
    log = str(tmp_path / RELEASE / ".torchstack" / "steps" / "horovod" / "log")
    step = next(step for step in found["steps"] if step["state"] == "failed")
    assert [(error["kind"], error["line"]) for error in step["errors"]] == [("cuda_toolkit", 61)]
    assert step["log"] == log and "Install a complete CUDA toolkit" in step["remedy"]
    page = report_page(found, TEMPLATES)
    for text in (
        '<li value="61"><code>CMake Error at CMakeLists.txt:181 (find_package):</code></li>',
        '<li value="62"><code>  Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIR) &lt;&amp;&gt;</code>',
        "The log is <code>%s</code>." % log, "Install a complete CUDA toolkit",
    ):
        assert page.count(text) == 1, text
    assert page.count("Could NOT find CUDAToolkit") == 1 and "CalledProcessError" not in page

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_report through Ansible: plan, write, plan again, write again."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report.document import update_document
from ansible_collections.hpcml.torchstack.plugins.module_utils.report.page import render_page
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
    page = render_page(found, TEMPLATES)
    for text in (
        '<li value="61"><code>CMake Error at CMakeLists.txt:181 (find_package):</code></li>',
        '<li value="62"><code>  Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIR) &lt;&amp;&gt;</code>',
        "The log is <code>%s</code>." % log, "Install a complete CUDA toolkit",
    ):
        assert page.count(text) == 1, text
    assert page.count("Could NOT find CUDAToolkit") == 1 and "CalledProcessError" not in page


def change(path, how):
    """Change a record, or the first line of a journal."""
    first, _line, others = path.read_text().partition("\n") if path.suffix == ".jsonl" else (path.read_text(), "", "")
    record = json.loads(first)
    how(record)
    path.write_text("\n".join([json.dumps(record), others]))


def named_pipes(root):
    """Put pipes that nobody writes in the places of records."""
    for path in [*(root / RELEASE / ".torchstack").glob("*.json"), *(root / ".torchstack" / RELEASE).glob("*.jsonl")]:
        path.unlink()
        os.mkfifo(str(path))


def infinite(root):
    path = next((root / RELEASE / ".torchstack" / "steps").glob("*")) / "exit"
    path.write_text('{"code": Infinity, "reason": "exit", "seconds": NaN}')


def surrogate(root):
    for path in (root / RELEASE / ".torchstack" / "steps").glob("*/stamp.json"):
        change(path, lambda record: record.update(host="\ud800"))


def rule_of_no_text(root):
    path = root / RELEASE / ".torchstack" / "verification.json"

    def damage(record):
        needed = next(entry["needed"] for entry in record["objects"].values() if entry["needed"])
        for place in needed.values():
            place["rule"] = True

    change(path, damage)


def times_of_no_text(root):
    for path in (root / ".torchstack" / RELEASE).glob("*.jsonl"):
        change(path, lambda record: record.update(time=["x"]))


def name_with_a_nul(root):
    change(root / ".torchstack" / RELEASE / "modulefile.json", lambda record: record.update(name="torch\0stack"))


def names_of_mathematics(root):
    path = root / ".torchstack" / RELEASE / "sweep.json"
    path.write_text(path.read_text().replace("x3001c0s", "$\\\\frac{1}{0$"))


@pytest.mark.parametrize("damage", [
    named_pipes, infinite, surrogate, rule_of_no_text, times_of_no_text, name_with_a_nul, names_of_mathematics])
def test_a_damaged_record_costs_its_part_of_the_report_and_no_more(damage, tmp_path):
    resolved = report_records.finished(tmp_path, 8)
    damage(tmp_path)
    found = update_document(str(tmp_path), RELEASE, resolved, False)
    assert json.loads((tmp_path / ".torchstack" / RELEASE / "report.json").read_text()) == found["facts"]
    assert RELEASE in render_page(found["facts"], TEMPLATES)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records of acceptances, and whether one still answers."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import records as acceptance_records
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import verdict as acceptance_verdict
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

ASKED = {"subject": "sha256:1", "ranks": 2, "checks": ["imports"]}
PASSED = {"passed": True, "subject": "sha256:1", "question": {"ranks": 2, "checks": ["imports"]}}


@pytest.mark.parametrize(("record", "asked", "again", "reason"), [
    (None, ASKED, False, "no acceptance"),
    (PASSED, ASKED, True, "again"),
    (dict(PASSED, passed=False), ASKED, False, "did not pass"),
    ({}, ASKED, False, "did not pass"),
    (PASSED, dict(ASKED, subject="sha256:2"), False, "another state"),
    (PASSED, dict(ASKED, ranks=8), False, "something else: ranks"),
])
def test_an_acceptance_runs_again_only_for_a_reason(record, asked, again, reason):
    assert reason in acceptance_verdict.reason_to_run(record, asked, again)


def test_a_passed_record_for_the_same_subject_means_nothing_to_do():
    assert acceptance_verdict.reason_to_run(PASSED, ASKED, False) == ""


def test_a_changed_modulefile_needs_another_acceptance(tmp_path):
    modulefile = tmp_path / "1.lua"
    modulefile.write_text("one")
    digests = acceptance_verdict.modulefile_digests("lmod", str(modulefile))
    assert list(digests) == ["lmod"]
    record = dict(PASSED, through="lmod", modulefile=str(modulefile), modulefiles=digests)
    assert acceptance_verdict.reason_to_run(record, ASKED, False) == ""
    modulefile.write_text("two")
    assert "modulefile has changed" in acceptance_verdict.reason_to_run(record, ASKED, False)
    modulefile.unlink()
    assert "modulefile has changed" in acceptance_verdict.reason_to_run(record, ASKED, False)


def test_the_history_survives_a_line_that_a_crash_has_cut(tmp_path):
    files = acceptance_records.Files.below(str(tmp_path), "r1")
    os.makedirs(files.state)
    files.add({"run": 1})
    with open(files.history, "ab") as stream:
        stream.write(b'{"run": 2, "cut')
    files.add({"run": 3})
    lines = pathlib.Path(files.history).read_text().splitlines()
    assert [json.loads(lines[0]), json.loads(lines[2])] == [{"run": 1}, {"run": 3}]
    assert files.last() == {"run": 3}


@pytest.mark.parametrize(("root", "release"), [
    ("relative", "r"), ("", "r"), ("/soft", "../x"), ("/soft", ""), ("/soft", ".x"),
])
def test_records_stay_below_the_root(root, release):
    with pytest.raises(StackError):
        acceptance_records.Files.below(root, release)


def test_a_record_that_is_no_json_is_an_error_with_a_remedy(tmp_path):
    files = acceptance_records.Files.below(str(tmp_path), "r1")
    os.makedirs(files.state)
    pathlib.Path(files.record).write_text("{")
    with pytest.raises(StackError) as caught:
        files.last()
    assert "acceptance.jsonl" in caught.value.remedy


@pytest.mark.parametrize(("record", "subject", "state", "said"), [
    (None, "sha256:1", "missing", "has not been accepted"),
    (dict(PASSED, passed=False), "sha256:1", "failed", "failed its last acceptance"),
    (PASSED, "sha256:2", "other subject", "another state"),
    (PASSED, "sha256:1", "passed", "is accepted"), (PASSED, "", "passed", "is accepted"),
])
def test_what_the_last_acceptance_says_of_a_release(tmp_path, record, subject, state, said):
    files = acceptance_records.Files.below(str(tmp_path), "r1")
    os.makedirs(files.state)
    if record is not None:
        files.add(record)
    standing = acceptance_records.standing(str(tmp_path), "r1", subject)
    assert standing.state == state
    assert said in standing.sentence and files.record in standing.sentence

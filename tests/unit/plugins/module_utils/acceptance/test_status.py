# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the last acceptance says of a release."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import records, status

PASSED = {"passed": True, "subject": "sha256:1", "question": {"ranks": 2, "checks": ["imports"]}}


@pytest.mark.parametrize(("record", "subject", "state", "said"), [
    (None, "sha256:1", "missing", "has not been accepted"),
    (dict(PASSED, passed=False), "sha256:1", "failed", "failed its last acceptance"),
    (PASSED, "sha256:2", "other subject", "another state"),
    (PASSED, "sha256:1", "passed", "is accepted"), (PASSED, "", "passed", "is accepted"),
])
def test_what_the_last_acceptance_says_of_a_release(tmp_path, record, subject, state, said):
    files = records.Files.below(str(tmp_path), "r1")
    os.makedirs(files.state)
    if record is not None:
        files.add(record)
    standing = status.acceptance_state(str(tmp_path), "r1", subject)
    assert standing.state == state
    assert said in standing.sentence and files.record in standing.sentence


def test_a_site_with_partitions_has_a_release_accepted_on_each_that_is_needed(tmp_path):
    def state(partitions):
        found = status.state_on(str(tmp_path), "r1", "sha256:1", partitions)
        return found.state, found.sentence

    def accept(name, **changed):
        files = records.Files.below(str(tmp_path), "r1", partition=name)
        os.makedirs(files.state, exist_ok=True)
        files.add(dict(PASSED, **changed))

    assert state({})[0] == "missing"
    accept("a100")
    missing, said = state({"a100": {}, "l40s": {}})
    assert missing == "missing" and "Release r1 has not been accepted on partition l40s" in said and "a100" not in said
    assert state({"a100": {}, "l40s": {"optional": "It is new."}})[0] == "passed"
    assert state({"a100": {}, "l40s": {"left_out": "It is being moved."}})[0] == "passed"
    assert state({"l40s": {"left_out": "It is being moved."}})[0] == "missing"
    accept("l40s", passed=False)
    failed, said = state({"h100": {}, "l40s": {}})
    assert failed == "failed" and said.index("failed its last acceptance on partition l40s") < said.index("h100")
    accept("l40s", subject="sha256:2")
    assert state({"a100": {}, "l40s": {}})[0] == "other subject"
    accept("l40s")
    assert state({"a100": {}, "l40s": {}})[0] == "passed"

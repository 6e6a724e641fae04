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

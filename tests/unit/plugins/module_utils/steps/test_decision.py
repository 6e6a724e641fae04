# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is to be done about a step, and why it runs again."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.decision import decide, resume_reason
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Stamp, StepRecords

from .step_records import STARTED, job_record, outcome

FILES = step_files("/steps", "pytorch")


def decided(digest, stamp, missing, state, job=None):
    records = StepRecords(stamp, job or job_record(), None)
    return decide(FILES, digest, records, records.is_stamped(digest) and not missing, state)


def test_a_stamp_for_the_same_digest_is_all_there_is_to_know():
    assert decided("d1", Stamp("d1"), [], "killed") == "unchanged"


@pytest.mark.parametrize(
    "stamp, missing, state, expected",
    [
        (None, [], "none", "run"),
        (None, [], "killed", "run"),
        (None, [], "leftover", "run"),
        (None, [], "rebooted", "run"),
        (None, [], "finished", "run"),
        (Stamp("d0", "n0"), [], "finished", "run"),
        (Stamp("d1", "n1"), ["/gone"], "finished", "run"),
        (Stamp("d1", "n1"), ["/gone"], "running", "run"),
        (None, [], "starting", "wait"),
        (None, [], "running", "attach"),
        (None, [], "elsewhere", "attach"),
    ],
)
def test_what_is_to_be_done(stamp, missing, state, expected):
    assert decided("d1", stamp, missing, state) == expected


@pytest.mark.parametrize("state", ["running", "elsewhere"])
def test_an_older_build_with_other_inputs_is_named_and_left_alone(state):
    with pytest.raises(StackError) as caught:
        decided("d2", None, [], state)
    message = caught.value.as_result()["msg"]
    assert decided("d2", Stamp("d1", "n1"), [], state) == "run", "it has just ended"
    for part in ("login01", "pid 7", STARTED, "/steps/pytorch/log", "kill 7"):
        assert part in message


def test_a_silent_build_of_another_host_is_never_declared_dead():
    with pytest.raises(StackError) as caught:
        decided("d1", None, [], "silent", job_record(host="login02"))
    assert "login02" in caught.value.message
    assert FILES.job in caught.value.remedy


JOB = job_record()


@pytest.mark.parametrize(
    "state, job, end, missing, expected",
    [
        ("none", None, None, [], None),
        ("finished", JOB, outcome("done"), [], None),
        ("finished", JOB, outcome("exit", code=2), [], "the last attempt failed: step s failed with exit code 2"),
        ("killed", JOB, None, [], "s was killed (host login01, pid 7, started 2026-11-20T00:00:00Z); resumed"),
        ("finished", JOB, outcome("done"), ["/a"], "s was complete, but /a is gone"),
    ],
)
def test_a_resumed_step_says_why(state, job, end, missing, expected):
    assert resume_reason("s", state, job, end, missing) == expected


def test_a_reboot_is_told_from_a_kill():
    assert resume_reason("s", "rebooted", JOB, None, []).startswith("the machine rebooted while s was running")
    assert "what was left of it was stopped" in resume_reason("s", "leftover", JOB, None, [])

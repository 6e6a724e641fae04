# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import utc
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import Here
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.job_state import (
    SILENT_SECONDS,
    STARTING_SECONDS,
    heartbeat_changes,
    judge,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import StepRecords

from .step_records import job_record, outcome

NOW = 1700000000.0
HERE = Here("login01", "boot-1")


def job(age=0.0, **changes):
    return job_record(**dict({"heartbeat": utc(NOW - age), "started": utc(NOW - 1000)}, **changes))


AWAY = {"host": "login02", "boot_id": "boot-2"}
DONE = outcome("done", "n1", code=0)
FAILED = outcome("exit", "n1", code=1)
OLDER = outcome("exit", "n0", code=1)


@pytest.mark.parametrize(
    "record, last, alive, remains, expected",
    [
        (None, None, False, False, "none"),
        (job(), None, True, True, "running"),
        (job(age=9999), None, True, True, "running"),
        (job(), OLDER, True, True, "running"),
        (job(), DONE, True, False, "running"),
        (job(), DONE, False, False, "finished"),
        (job(), DONE, False, True, "leftover"),
        (job(), FAILED, True, False, "finished"),
        (job(), FAILED, False, True, "leftover"),
        (job(**AWAY), FAILED, False, True, "finished"),
        (job(), None, False, False, "killed"),
        (job(), OLDER, False, False, "killed"),
        (job(), None, False, True, "leftover"),
        (job(boot_id="boot-0"), None, True, True, "rebooted"),
        (job(boot_id="boot-0"), DONE, True, True, "finished"),
        (job(phase="starting", pid=None), None, False, False, "starting"),
        (job(age=STARTING_SECONDS + 1, phase="starting", pid=None), None, False, False, "killed"),
        (job(**AWAY), None, False, False, "elsewhere"),
        (job(**AWAY), None, True, True, "elsewhere"),
        (job(age=-50, **AWAY), None, False, False, "elsewhere"),
        (job(age=SILENT_SECONDS + 1, **AWAY), None, False, False, "silent"),
        (job(age=SILENT_SECONDS + 1, **AWAY), FAILED, False, False, "finished"),
        (job(age=SILENT_SECONDS + 1, **AWAY), DONE, False, False, "finished"),
    ],
)
def test_the_state_of_a_job_follows_from_its_records_and_its_processes(record, last, alive, remains, expected):
    end = StepRecords(None, record, last).end
    assert judge(record, end, HERE, NOW, lambda pid, start: alive, lambda left: remains) == expected


@pytest.mark.parametrize("age", [SILENT_SECONDS + 1, -SILENT_SECONDS - 1, -86400.0], ids=["behind", "ahead", "a-day"])
@pytest.mark.parametrize("changes, expected", [(True, "elsewhere"), (False, "silent")])
def test_the_clock_of_another_host_is_not_believed_but_its_heartbeat_is(age, changes, expected):
    record = job(age=age, **AWAY)
    assert judge(record, None, HERE, NOW, lambda pid, start: False, lambda left: False, lambda: changes) == expected


def test_a_heartbeat_is_watched_until_it_changes(tmp_path):
    files, other = step_files(str(tmp_path), "s"), step_files(str(tmp_path), "none")
    (tmp_path / "s").mkdir()
    job().write(files)
    assert not heartbeat_changes(files, 0.05)
    timer = threading.Timer(0.1, job(age=-1).beat, (files,))
    timer.start()
    assert heartbeat_changes(files, 60)
    timer.join()
    assert not heartbeat_changes(other, 60)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import Here
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.job import (
    SILENT_SECONDS,
    STARTING_SECONDS,
    decide,
    heartbeat_changes,
    judge,
    read_record,
    write_in_place,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.step import step_files, utc

NOW = 1700000000.0
HERE = Here("login01", "boot-1")
FILES = step_files("/steps", "pytorch")


def job(age=0.0, **changes):
    record = {
        "boot_id": "boot-1", "digest": "d1", "heartbeat": utc(NOW - age), "host": "login01", "launcher": "local",
        "nonce": "n1", "phase": "running", "pid": 7, "start_time": 70, "started": utc(NOW - 1000),
    }
    return dict(record, **changes)


AWAY = {"host": "login02", "boot_id": "boot-2"}
DONE = {"nonce": "n1", "reason": "done"}
FAILED = {"nonce": "n1", "reason": "exit", "code": 1}
OLDER = {"nonce": "n0", "reason": "exit", "code": 1}


@pytest.mark.parametrize(
    "record, outcome, alive, remains, expected",
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
def test_how_a_job_stands(record, outcome, alive, remains, expected):
    assert judge(record, outcome, HERE, NOW, lambda pid, start: alive, lambda left: remains) == expected


def test_a_stamp_for_the_same_digest_is_all_there_is_to_know():
    assert decide(FILES, "d1", {"digest": "d1"}, [], "killed", job()) == "unchanged"


@pytest.mark.parametrize(
    "stamp, missing, standing, expected",
    [
        (None, [], "none", "run"),
        (None, [], "killed", "run"),
        (None, [], "leftover", "run"),
        (None, [], "rebooted", "run"),
        (None, [], "finished", "run"),
        ({"digest": "d0", "nonce": "n0"}, [], "finished", "run"),
        ({"digest": "d1", "nonce": "n1"}, ["/gone"], "finished", "run"),
        ({"digest": "d1", "nonce": "n1"}, ["/gone"], "running", "run"),
        (None, [], "starting", "wait"),
        (None, [], "running", "attach"),
        (None, [], "elsewhere", "attach"),
    ],
)
def test_what_is_to_be_done(stamp, missing, standing, expected):
    assert decide(FILES, "d1", stamp, missing, standing, job()) == expected


@pytest.mark.parametrize("standing", ["running", "elsewhere"])
def test_an_older_build_with_other_inputs_is_named_and_left_alone(standing):
    with pytest.raises(StackError) as caught:
        decide(FILES, "d2", None, [], standing, job())
    message = caught.value.as_result()["msg"]
    assert decide(FILES, "d2", {"digest": "d1", "nonce": "n1"}, [], standing, job()) == "run", "it has just ended"
    for part in ("login01", "pid 7", utc(NOW - 1000), "/steps/pytorch/log", "kill 7"):
        assert part in message


@pytest.mark.parametrize("age", [SILENT_SECONDS + 1, -SILENT_SECONDS - 1, -86400.0], ids=["behind", "ahead", "a-day"])
@pytest.mark.parametrize("changes, expected", [(True, "elsewhere"), (False, "silent")])
def test_the_clock_of_another_host_is_not_believed_but_its_heartbeat_is(age, changes, expected):
    record = job(age=age, **AWAY)
    assert judge(record, None, HERE, NOW, lambda pid, start: False, lambda left: False, lambda: changes) == expected


def test_a_heartbeat_is_watched_until_it_changes(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job()))
    assert not heartbeat_changes(str(path), 0.05)
    timer = threading.Timer(0.1, write_in_place, (str(path), job(age=-1)))
    timer.start()
    assert heartbeat_changes(str(path), 60)
    timer.join()
    assert not heartbeat_changes(str(tmp_path / "none"), 60)


def test_a_silent_build_of_another_host_is_never_declared_dead():
    with pytest.raises(StackError) as caught:
        decide(FILES, "d1", None, [], "silent", job(host="login02"))
    assert "login02" in caught.value.message
    assert FILES.job in caught.value.remedy


def test_a_damaged_record_is_an_error_with_its_name(tmp_path):
    path = tmp_path / "job.json"
    assert read_record(str(path)) is None
    for content in (b"", b"{", b"[]", b"{}", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(StackError) as caught:
            read_record(str(path))
        assert caught.value.path == str(path)


def test_a_heartbeat_replaces_the_record_as_a_whole(tmp_path):
    path = tmp_path / "job.json"
    write_in_place(str(path), {"a": 1})
    write_in_place(str(path), {"b": 2})
    assert read_record(str(path)) == {"b": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.json"]

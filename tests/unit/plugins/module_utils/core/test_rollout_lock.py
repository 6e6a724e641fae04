# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The lock of a rollout: who has it, who may replace it."""

from __future__ import annotations

import calendar
import errno
import json
import multiprocessing
import os
import stat
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock as lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lock.json")


@pytest.fixture
def sleeper():
    """A process that somebody else may be."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def me():
    return lock.describe_process(os.getpid(), "playbooks/here.yml")


def ended():
    """The record of a process that was here and is gone."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = lock.describe_process(process.pid, "playbooks/gone.yml")
    process.communicate(b"\n")
    return record


def listing(path):
    return sorted(os.listdir(os.path.dirname(path)))


def test_a_free_lock_is_taken_and_given_back(path):
    taken = lock.acquire(path, me(), lock.this_place())
    assert taken.replaced is None and taken.again is False
    assert lock.read_lock(path) == taken.record
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    assert taken.record["pid"] == os.getpid() and taken.record["since"] >= taken.record["started"]
    assert lock.release(path, me()) == (True, taken.record)
    assert listing(path) == []


def test_the_same_process_may_take_it_again(path):
    first = lock.acquire(path, me(), lock.this_place())
    second = lock.acquire(path, me(), lock.this_place())
    assert second.again is True and second.record == first.record


def test_giving_back_a_lock_that_is_not_there_does_nothing(path):
    assert lock.release(path, me()) == (False, None)


def test_a_lock_is_given_back_only_by_its_holder(path, sleeper):
    theirs = lock.acquire(path, lock.describe_process(sleeper.pid, "x"), lock.this_place()).record
    assert lock.release(path, me()) == (False, theirs)
    assert lock.read_lock(path) == theirs


def test_a_second_rollout_is_refused_with_the_name_of_the_first_and_nothing_is_written(path, sleeper):
    lock.acquire(path, lock.describe_process(sleeper.pid, "playbooks/polaris.yml"), lock.this_place())
    with pytest.raises(lock.LockHeld) as caught:
        lock.acquire(path, me(), lock.this_place())
    assert caught.value.verdict == lock.ALIVE
    error = lock.refusal(caught.value, "r1", "/soft", "here")
    for word in ("r1", "/soft", "process %d on " % sleeper.pid, "playbooks/polaris.yml", "since 20"):
        assert word in error.message
    assert listing(path) == ["lock.json"]


def test_an_ended_process_is_replaced_and_reported(path):
    old = lock.acquire(path, ended(), lock.this_place()).record
    taken = lock.acquire(path, me(), lock.this_place())
    assert taken.replaced == old
    assert lock.read_lock(path)["pid"] == os.getpid()
    assert listing(path) == ["lock.json"]


def test_a_zombie_counts_as_ended(sleeper):
    record = lock.describe_process(sleeper.pid, "x")
    assert lock.judge(record, lock.this_place()) == lock.ALIVE
    sleeper.kill()
    deadline = time.monotonic() + 60
    while lock.judge(record, lock.this_place()) == lock.ALIVE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert os.path.exists("/proc/%d" % sleeper.pid)
    assert lock.judge(record, lock.this_place()) == lock.DEAD


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, lock.ALIVE),
        ({"start_time": "1"}, lock.DEAD),
        ({"boot_id": "11111111-2222-3333-4444-555555555555"}, lock.DEAD),
        ({"boot_id": ""}, lock.UNKNOWN),
        ({"host": "elsewhere"}, lock.UNKNOWN),
        ({"host": "elsewhere", "start_time": "1"}, lock.UNKNOWN),
        ({"machine": "0123456789abcdef", "boot_id": "other"}, lock.UNKNOWN),
        ({"pid_namespace": "pid:[1]", "start_time": "1"}, lock.UNKNOWN),
        ({"pid_namespace": "pid:[1]", "boot_id": "other"}, lock.DEAD),
    ],
)
def test_a_process_is_only_judged_where_its_id_has_a_meaning(change, verdict):
    assert lock.judge(dict(me(), **change), lock.this_place()) == verdict


def test_a_process_that_proc_hides_counts_as_alive(monkeypatch):
    record = me()
    monkeypatch.setattr(lock, "read_process", lambda pid: None)
    assert lock.judge(record, lock.this_place()) == lock.ALIVE


def test_nobody_is_declared_dead_from_a_machine_without_proc():
    assert lock.judge(me(), lock.Place(me()["host"], me()["machine"], "", "")) == lock.UNKNOWN


def test_the_lock_of_another_host_is_refused_with_what_to_look_at(path):
    lock.acquire(path, dict(me(), host="login-02"), lock.this_place())
    with pytest.raises(lock.LockHeld) as caught:
        lock.acquire(path, me(), lock.this_place())
    error = lock.refusal(caught.value, "r1", "/soft", "login-01")
    assert "login-01 cannot tell whether that process is alive" in error.message
    assert error.remedy.startswith("On login-02, look with 'ps -o lstart,args -p %d'" % os.getpid())
    assert path in error.remedy


def test_a_record_found_dead_elsewhere_is_replaced_but_no_other_one(path):
    old = lock.acquire(path, dict(me(), host="controller"), lock.this_place()).record
    with pytest.raises(lock.LockHeld):
        lock.acquire(path, me(), lock.this_place(), ["0" * 16])
    assert lock.acquire(path, me(), lock.this_place(), [old["token"]]).replaced == old


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff"])
def test_a_file_that_is_no_record_is_named_and_left_alone(path, content, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    with open(path, "wb") as stream:
        stream.write(content)
    with pytest.raises(StackError, match="is not a lock record"):
        lock.acquire(path, me(), lock.this_place())
    with open(path, "rb") as stream:
        assert stream.read() == content


def test_a_file_system_without_hard_links_will_do(path, monkeypatch, sleeper):
    def refuse(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    lock.acquire(path, lock.describe_process(sleeper.pid, "x"), lock.this_place())
    with pytest.raises(lock.LockHeld):
        lock.acquire(path, me(), lock.this_place())
    assert listing(path) == ["lock.json"]


def test_a_lost_answer_of_the_file_server_does_not_lose_the_lock(path, monkeypatch):
    real = os.link

    def lose(source, target):
        real(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", lose)
    assert lock.acquire(path, me(), lock.this_place()).again is False
    assert listing(path) == ["lock.json"]


def test_a_replacer_that_was_killed_half_way_does_not_block_the_next(path):
    old = lock.acquire(path, ended(), lock.this_place()).record
    claim = "%s.%s" % (path, old["token"])
    half = lock.acquire(claim, ended(), lock.this_place()).record
    lock.acquire("%s.%s" % (claim, half["token"]), ended(), lock.this_place())
    assert lock.acquire(path, me(), lock.this_place()).replaced == old
    assert listing(path) == ["lock.json"]


def test_a_replacer_at_work_is_waited_for_and_then_named(path, sleeper, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.2)
    old = lock.acquire(path, ended(), lock.this_place()).record
    lock.acquire("%s.%s" % (path, old["token"]), lock.describe_process(sleeper.pid, "x"), lock.this_place())
    with pytest.raises(lock.LockHeld) as caught:
        lock.acquire(path, me(), lock.this_place())
    assert caught.value.record["pid"] == sleeper.pid
    assert lock.read_lock(path) == old


def test_a_slow_replacer_does_not_throw_out_the_one_that_came_first(path, monkeypatch, sleeper):
    lock.acquire(path, ended(), lock.this_place())
    fast = lock.describe_process(sleeper.pid, "fast")
    real = lock.judge

    def judge_slowly(record, place):
        verdict = real(record, place)
        if verdict == lock.DEAD:
            monkeypatch.setattr(lock, "judge", real)
            lock.acquire(path, fast, place)
        return verdict

    monkeypatch.setattr(lock, "judge", judge_slowly)
    with pytest.raises(lock.LockHeld) as caught:
        lock.acquire(path, me(), lock.this_place())
    assert caught.value.record["pid"] == sleeper.pid
    assert listing(path) == ["lock.json"]


def _contend(path, start, answers, done):
    start.wait()
    for _round in range(5):
        try:
            taken = lock.acquire(path, me(), lock.this_place())
            answers.put((os.getpid(), not taken.again))
        except lock.LockHeld as held:
            answers.put((held.record["pid"], False))
    done.wait()


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_at_once_exactly_one_wins_and_all_others_see_it(path, stale):
    for _round in range(5):
        if stale:
            with open(path, "w", encoding="utf-8") as stream:
                json.dump(dict(ended(), token="a" * 16, since=""), stream)
        context = multiprocessing.get_context("fork")
        start, done, answers = context.Event(), context.Event(), context.Queue()
        processes = [context.Process(target=_contend, args=(path, start, answers, done)) for _number in range(8)]
        for process in processes:
            process.start()
        start.set()
        seen = [answers.get(timeout=60) for _number in range(40)]
        record = lock.read_lock(path)
        done.set()
        for process in processes:
            process.join()
        assert {pid for pid, _won in seen} == {record["pid"]}
        assert sum(won for _pid, won in seen) == 1
        assert listing(path) == ["lock.json"]
        os.unlink(path)


def test_directories_of_the_lock_are_readable_whatever_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        lock.make_directory(str(tmp_path / "a" / "b"))
    finally:
        os.umask(old)
    assert [stat.S_IMODE(os.stat(str(tmp_path / name)).st_mode) for name in ("a", "a/b")] == [0o755, 0o755]


def test_a_record_says_when_its_process_began(sleeper):
    started = lock.describe_process(sleeper.pid, "x")["started"]
    assert abs(calendar.timegm(time.strptime(started, "%Y-%m-%dT%H:%M:%SZ")) - time.time()) < 60

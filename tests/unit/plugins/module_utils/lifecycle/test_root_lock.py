# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two who change one root at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock as lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import root_lock


def add_one(root, counter, times):
    for _time in range(times):
        with root_lock.held(root):
            with open(counter, encoding="ascii") as stream:
                number = int(stream.read())
            with open(counter, "w", encoding="ascii") as stream:
                stream.write(str(number + 1))


def test_two_at_once_take_turns(tmp_path):
    counter = str(tmp_path / "counter")
    (tmp_path / "counter").write_text("0")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=add_one, args=(str(tmp_path), counter, 5)) for _worker in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (tmp_path / "counter").read_text() == "10"
    assert os.listdir(tmp_path / ".torchstack") == []


def hold(root, **changes):
    """The lock as somebody else has it."""
    lock.make_directory(os.path.join(root, ".torchstack"))
    record = dict(lock.describe_process(os.getpid(), "playbooks/publish.yml"), token="t", since="then", **changes)
    with open(root_lock.lock_path(root), "w", encoding="utf-8") as stream:
        json.dump(record, stream)
    return record


def ended():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = lock.describe_process(process.pid, "x")
    process.communicate(b"\n")
    return {"pid": record["pid"], "start_time": record["start_time"]}


def refusal_of(sentence, directory, **options):
    """The remedy, where the lock is refused with this sentence."""
    with pytest.raises(StackError, match=sentence) as caught, root_lock.held(directory, **options):
        pass
    return caught.value.remedy


def test_whoever_holds_it_all_the_time_is_named(tmp_path):
    parent = lock.describe_process(os.getppid(), "playbooks/publish.yml")
    hold(str(tmp_path), pid=parent["pid"], start_time=parent["start_time"])
    remedy = refusal_of("process %d on .* has held" % os.getppid(), str(tmp_path), patience=0.1)
    assert "Wait for it to end" in remedy


def test_on_another_host_nobody_is_declared_dead(tmp_path):
    hold(str(tmp_path), host="login2", **ended())
    remedy = refusal_of("cannot tell whether that process is alive", str(tmp_path), patience=0.1)
    assert "On login2, look with 'ps -o lstart,args -p" in remedy
    root_lock.remove_stale(str(tmp_path))
    assert os.path.exists(root_lock.lock_path(str(tmp_path)))


def test_the_lock_of_a_killed_run_is_taken_over_or_tidied_away(tmp_path):
    hold(str(tmp_path), **ended())
    with root_lock.held(str(tmp_path), patience=0.1):
        assert os.path.exists(root_lock.lock_path(str(tmp_path)))
    assert not os.path.exists(root_lock.lock_path(str(tmp_path)))
    hold(str(tmp_path), **ended())
    root_lock.remove_stale(str(tmp_path))
    assert not os.path.exists(root_lock.lock_path(str(tmp_path)))
    root_lock.remove_stale(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_root_of_somebody_else_is_refused_with_the_remedy(tmp_path):
    os.chmod(tmp_path, 0o555)
    try:
        remedy = refusal_of("cannot be taken: Permission denied", str(tmp_path))
        assert "the account that owns the root" in remedy
    finally:
        os.chmod(tmp_path, 0o755)

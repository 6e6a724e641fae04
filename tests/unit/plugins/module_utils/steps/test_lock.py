# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import Here, here, read_process
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import lock as lock_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.lock import StepLock


@pytest.fixture(name="files")
def step_directory(tmp_path):
    files = step_files(str(tmp_path), "s")
    os.mkdir(files.directory)
    return files


def write_claim(files, **changes):
    place = here()
    record = {
        "host": place.host, "boot_id": place.boot_id, "pid": os.getpid(),
        "start_time": read_process(os.getpid()).start_time, "since": "2026-11-20T00:00:00Z",
    }
    with open(files.path(".starting"), "w", encoding="utf-8") as stream:
        json.dump(dict(record, **changes), stream)


@pytest.fixture(params=[True, False], ids=["flock", "no-flock"])
def with_and_without_flock(request, monkeypatch):
    if not request.param:

        def refuse(*arguments):
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("with_and_without_flock")
def test_one_starter_at_a_time(files):
    first, second = StepLock(files, here()), StepLock(files, here())
    assert first.acquire()
    assert not second.acquire()
    first.withdraw()
    assert second.acquire()
    second.withdraw()
    assert os.listdir(files.directory) == [".lock"]


def test_whoever_inherits_the_descriptor_keeps_the_lock(files):
    starter = StepLock(files, here())
    assert starter.acquire()
    inherited = os.dup(starter.descriptor)
    starter.withdraw()
    late = StepLock(files, here())
    assert not late.acquire()
    os.close(inherited)
    assert late.acquire()
    late.withdraw()


@pytest.mark.usefixtures("with_and_without_flock")
@pytest.mark.parametrize("change", [{"start_time": 1}, {"boot_id": "older"}, {"pid": 2**22 + 1}], ids=str)
def test_the_claim_of_a_dead_starter_of_this_host_is_taken_over(files, change):
    write_claim(files, **change)
    lock = StepLock(files, here())
    assert lock.acquire()
    lock.withdraw()


def test_a_starter_of_another_host_is_never_declared_dead(files):
    write_claim(files, host="login02", boot_id="other", pid=1, start_time=1)
    lock = StepLock(files, here())
    assert not lock.acquire()
    error = lock.refusal()
    assert "login02" in error.message
    assert files.path(".starting") in error.remedy
    assert os.path.exists(files.path(".starting"))


def test_two_hosts_without_a_common_flock_start_one_job(files, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *arguments: None)
    first, second = StepLock(files, Here("login01", "a")), StepLock(files, Here("login02", "b"))
    assert first.acquire()
    assert not second.acquire()
    first.withdraw()
    assert second.acquire()
    second.withdraw()


def test_a_lock_without_a_claim_is_explained(files):
    assert "fuser" in StepLock(files, here()).refusal().remedy


def test_a_claim_is_judged_by_one_process_at_a_time(files):
    """Between judging a dead claim and removing it, another remover could have put its own there."""
    write_claim(files, start_time=1)
    with lock_module._exclusive_decision(files.path(".starting")) as ours:
        assert ours
        late = StepLock(files, here())
        assert not late.acquire()
        assert late.descriptor == -1
    assert late.acquire()
    late.withdraw()
    assert os.listdir(files.directory) == [".lock"]


RIVAL = """
import errno, fcntl, os, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import here
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.lock import StepLock
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files

def refuse(*arguments):
    raise OSError(errno.ENOSYS, "Function not implemented")

fcntl.flock = refuse
files = step_files(sys.argv[1], "s")
for _round in range(150):
    lock = StepLock(files, here())
    if lock.acquire():
        os.close(os.open(files.path("inside"), os.O_CREAT | os.O_EXCL))
        time.sleep(0.0005)
        os.unlink(files.path("inside"))
        if _round % 2:
            # As if it had been killed: its announcement stays, and names nobody who lives.
            text = open(lock.claim).read().replace('"pid": %d' % os.getpid(), '"pid": 4194305')
            open(lock.claim + ".x", "w").write(text)
            os.replace(lock.claim + ".x", lock.claim)
            lock.release()
        else:
            lock.withdraw()
"""


def test_rivals_without_flock_never_hold_the_lock_together(files):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", RIVAL, os.path.dirname(files.directory)]
    rivals = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _number in range(4)]
    errors = [rival.communicate()[1].decode() for rival in rivals]
    assert not any(errors), "\n".join(errors)


def test_an_announcement_that_cannot_be_written_leaves_nothing(files, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    lock = StepLock(files, here())
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(OSError):
            lock.acquire()
    assert lock.descriptor == -1
    assert os.listdir(files.directory) == [".lock"]

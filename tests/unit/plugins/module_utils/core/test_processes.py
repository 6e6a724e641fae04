# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import (
    MARKER,
    Process,
    bears_marker,
    catches,
    command_line,
    here,
    is_alive,
    job_processes,
    own_processes,
    read_process,
    stop_processes,
)

NONCE = uuid.uuid4().hex
NO_PROCESS = 2**22 + 1


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


@pytest.fixture()
def spawn():
    started = []

    def start(arguments, **options):
        process = subprocess.Popen(arguments, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_a_process_is_itself_only_with_its_start_time(spawn):
    child = spawn(["sleep", "60"])
    process = read_process(child.pid)
    assert process.parent == os.getpid()
    assert is_alive(child.pid, process.start_time)
    assert not is_alive(child.pid, process.start_time + 1)
    assert not is_alive(None, None)
    assert not is_alive(NO_PROCESS, 1)


def test_a_zombie_is_not_alive(spawn):
    child = spawn(["sleep", "60"])
    start_time = read_process(child.pid).start_time
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: read_process(child.pid).ended)
    assert not is_alive(child.pid, start_time)


def test_a_name_with_brackets_and_spaces_does_not_confuse_the_fields(spawn, tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    child = spawn([str(program), "60"])
    eventually(lambda: read_process(child.pid).command == "a) R 1 (b")
    assert read_process(child.pid).parent == os.getpid()
    eventually(lambda: command_line(child.pid).endswith("a) R 1 (b 60"))


def test_this_boot_has_an_identity():
    assert here() == here()
    assert len(here().boot_id) == 36


def test_a_job_is_found_by_its_marker_wherever_it_went(spawn):
    child = spawn(
        ["bash", "-c", "setsid sleep 61 & wait"], env=dict(os.environ, **{MARKER: NONCE}), start_new_session=True
    )
    stranger = spawn(["sleep", "62"], env=dict(os.environ, **{MARKER: "5b" * 16}))
    eventually(lambda: len(job_processes(NONCE)) == 2)
    found = {process.pid for process in job_processes(NONCE)}
    assert child.pid in found
    assert stranger.pid not in found
    assert {process.pid for process in job_processes(NONCE, keep=child.pid)} == found - {child.pid}
    assert stop_processes(lambda: job_processes(NONCE), 5, child.poll) == []


def test_a_job_that_turns_from_one_program_into_the_next_never_seems_to_have_ended(spawn, tmp_path):
    script = tmp_path / "relay"
    script.write_text('[ "$1" -gt 0 ] || exit 0\nexec sh "$0" $(($1 - 1))\n')
    nonce = uuid.uuid4().hex
    child = spawn(["sh", str(script), "1500"], env=dict(os.environ, **{MARKER: nonce}))
    looks = 0
    while child.poll() is None:
        assert bears_marker(child.pid, nonce) or read_process(child.pid).ended
        looks += 1
    assert looks > 10


def test_a_program_is_waited_for_however_long_it_is_on_its_way(monkeypatch):
    """Its arguments are there, its environment is not yet; the marker shows when it has started."""
    fields = ["R", *["1"] * 22, "0", *["1"] * 27]
    stat = "7 (a) b) " + " ".join(fields)
    seen = iter([b""] * 50)

    def read(_pid, name):
        if name == "environ":
            return next(seen, ("A=b\0%s=%s\0" % (MARKER, NONCE)).encode())
        return (stat if name == "stat" else "sh\0").encode()

    monkeypatch.setattr(processes, "read_process_file", read)
    monkeypatch.setattr(processes, "_EXEC_PATIENCE", 60.0)
    assert bears_marker(7, NONCE)


@pytest.mark.parametrize("adopts, patience", [(False, [10.0, 0.0, 0.0]), (True, [0.0, 0.0, 0.0])])
def test_whom_nobody_may_look_into_is_waited_for_once_in_a_look_if_at_all(monkeypatch, adopts, patience):
    """On a busy machine processes of another user namespace look for ever as if they were amid execve."""
    clock, waited = [100.0], []

    def look(_pid, _nonce, seconds):
        waited.append(seconds)
        clock[0] += seconds
        return False

    monkeypatch.setattr(processes.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(processes, "bears_marker", look)
    monkeypatch.setattr(processes._Orphans, "adopted", adopts)
    strangers = [Process(pid, "sh", "R", os.getppid(), pid, pid, 1) for pid in (7, 8, 9)]
    monkeypatch.setattr(processes, "own_processes", lambda: iter(strangers))
    assert job_processes(NONCE, keep=os.getpid()) == []
    assert waited == patience


def test_who_was_given_no_environment_or_has_ended_is_not_waited_for(spawn, monkeypatch):
    monkeypatch.setattr(processes, "_EXEC_PATIENCE", 1e9)
    child = spawn(["sleep", "60"], env={})
    assert not bears_marker(child.pid, NONCE)
    child.kill()
    eventually(lambda: read_process(child.pid).ended)
    assert not bears_marker(child.pid, NONCE)
    child.wait()
    assert not bears_marker(child.pid, NONCE)


HEIR = """
import os, subprocess, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import adopt_orphans, job_processes
adopt_orphans()
child = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True)
found = [process.pid for process in job_processes("no-such-nonce", keep=os.getpid())]
print([pid == child.pid for pid in found], flush=True)
child.kill()
"""


def test_a_child_that_a_supervisor_has_from_its_batch_system_is_none_of_its_job(spawn):
    """As pbs_demux, which PBS starts before it becomes the job's program; without it no rank starts on another node."""
    line = 'sleep 60 & inherited=$!; echo $inherited; exec "$0" -c "$1"'
    path = os.pathsep.join(path for path in sys.path if path)
    child = spawn(
        ["sh", "-c", line, sys.executable, HEIR], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE,
        text=True)
    inherited, found = (child.stdout.readline() for _line in range(2))
    os.kill(int(inherited), signal.SIGKILL)
    assert found == "[True]\n"


def test_a_job_is_found_by_its_session_although_it_cleared_its_environment(spawn):
    child = spawn(["sleep", "60"], env={}, start_new_session=True)
    start_time = read_process(child.pid).start_time
    assert [process.pid for process in job_processes(NONCE, child.pid, start_time)] == [child.pid]
    assert job_processes(NONCE, child.pid, start_time + 1) == [], "that id belongs to somebody else now"


def test_what_does_not_end_when_asked_is_made_to(spawn):
    child = spawn(
        ["bash", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], stdout=subprocess.PIPE,
        env=dict(os.environ, **{MARKER: NONCE}),
    )
    child.stdout.readline()
    began = time.monotonic()
    assert stop_processes(lambda: job_processes(NONCE), 0.5, child.poll) == []
    assert time.monotonic() - began >= 0.5
    assert child.wait() == -signal.SIGKILL


def test_a_stopped_process_ends_when_asked(spawn):
    child = spawn(["sleep", "60"], env=dict(os.environ, **{MARKER: NONCE}))
    os.kill(child.pid, signal.SIGSTOP)
    assert stop_processes(lambda: job_processes(NONCE), 5, child.poll) == []
    assert child.wait() == -signal.SIGTERM


def test_only_a_process_with_a_handler_is_said_to_catch_a_signal(spawn):
    code = "import signal, time; signal.signal(signal.SIGUSR1, print); print(1, flush=True); time.sleep(60)"
    child = spawn([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    assert catches(child.pid, signal.SIGUSR1)
    assert not catches(child.pid, signal.SIGUSR2)
    assert not catches(spawn(["sleep", "60"]).pid, signal.SIGUSR1)
    assert not catches(NO_PROCESS, signal.SIGUSR1)


def test_own_processes_are_ours_and_not_this_one():
    assert os.getpid() not in {process.pid for process in own_processes()}

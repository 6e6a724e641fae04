# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import Process
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import stack_dumps


def process(pid, parent):
    return Process(pid, "x", "S", parent, pid, pid, 1)


TREE = [process(1, 0), process(2, 1), process(3, 2), process(4, 2), process(5, 4)]
"""1 started 2, which started 3 and 4; 5 is below 4."""


@pytest.mark.parametrize("asked, expected", [
    ([], []), ([3, 4], [3, 4]), ([2, 3, 4], [3, 4]), ([1, 5], [5]), ([4, 5], [5]), ([1, 2], [2]), ([3, 5], [3, 5]),
])
def test_the_leaves_come_first(asked, expected):
    chosen = stack_dumps.leaves([entry for entry in TREE if entry.pid in asked], TREE)
    assert [entry.pid for entry in chosen] == expected


def test_a_loop_of_parents_ends():
    assert stack_dumps.leaves([process(1, 2), process(2, 1)], [process(1, 2), process(2, 1)]) == []


def test_an_interpreter_is_known_by_its_program():
    assert stack_dumps.runs_python(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as other:
        assert not stack_dumps.runs_python(other.pid)
        other.kill()
    assert not stack_dumps.runs_python(other.pid)


@pytest.fixture(name="sleeper")
def sleeping_python():
    """A Python process that sleeps, with the handler that the variable installs."""
    program = "import sys, time; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONFAULTHANDLER="1"),
    ) as sleeper:
        sleeper.stdout.readline()
        yield sleeper
        sleeper.kill()


def test_no_core_is_left_of_a_process_that_is_ended(sleeper):
    stack_dumps.forbid_core(sleeper.pid)
    soft, hard = resource.prlimit(sleeper.pid, resource.RLIMIT_CORE)
    assert soft == (1 if hard else 0)
    stack_dumps.forbid_core(2**22 + 1)


def test_a_stopped_process_says_where_it_is_before_it_goes_on(sleeper):
    stack_dumps.forbid_core(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGSTOP)
    stack_dumps.signal_main_thread(sleeper.pid, signal.SIGABRT)
    os.kill(sleeper.pid, signal.SIGCONT)
    _output, errors = sleeper.communicate()
    assert errors.startswith(b"Fatal Python error: Aborted\n")
    assert b'File "<string>", line 1 in <module>' in errors
    assert sleeper.returncode == -signal.SIGABRT


def test_a_machine_without_that_system_call_signals_the_process(sleeper, monkeypatch):
    monkeypatch.setattr(stack_dumps, "_TGKILL", {})
    stack_dumps.forbid_core(sleeper.pid)
    stack_dumps.signal_main_thread(sleeper.pid, signal.SIGABRT)
    assert sleeper.communicate()[1].startswith(b"Fatal Python error: Aborted\n")
    stack_dumps.signal_main_thread(2**22 + 1, signal.SIGABRT)


def test_what_goes_into_a_record_is_bounded(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"old\n" + b"\xff" + b"x" * 1000 + b"\n" + b"line\n" * 1000)
    lines = stack_dumps.read_stacks(str(log), 4)
    assert len(lines) == stack_dumps.MAX_LINES
    assert len(lines[0]) == stack_dumps.MAX_WIDTH
    assert stack_dumps.read_stacks(str(tmp_path / "none"), 0) == []

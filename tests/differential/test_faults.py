# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The library of faults, on programs that have nothing to do with this collection."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support import faults

COPY = "import os, sys; f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); [os.write(f, b'four') for _ in range(3)]"


def run(words, variables):
    return subprocess.run(words, env=dict(os.environ, **variables), capture_output=True, text=True, check=False)


def copy(target, variables):
    return run([sys.executable, "-c", COPY, str(target)], variables)


@pytest.mark.parametrize("at, onwards, written", [(1, True, ""), (3, False, "fourfour"), (4, False, "fourfourfour")])
def test_the_call_that_was_named_fails_and_says_why(fault_library, tmp_path, at, onwards, written):
    target = tmp_path / "file"
    ended = copy(target, faults.variables(fault_library, "error:ENOSPC", ("write",), target, at, onwards))
    assert target.read_text() == written
    assert ("No space left on device" in ended.stderr) == (written != "fourfourfour")


@pytest.mark.parametrize("action, written", [("kill", "four"), ("torn", "fourfo")])
def test_the_program_dies_at_the_call_that_was_named(fault_library, tmp_path, action, written):
    target = tmp_path / "file"
    ended = copy(target, faults.variables(fault_library, action, ("write",), target, 2))
    assert (ended.returncode, target.read_text()) == (-signal.SIGKILL, written)


def test_other_paths_and_programs_meet_nothing(fault_library, tmp_path):
    elsewhere = faults.variables(fault_library, "kill", ("write",), tmp_path / "other")
    assert copy(tmp_path / "file", elsewhere).returncode == 0
    others = faults.variables(fault_library, "kill", ("write",), tmp_path, program="no such program")
    assert copy(tmp_path / "file", others).returncode == 0


def test_a_program_that_is_stopped_goes_on_in_a_changed_world(fault_library, tmp_path):
    target = tmp_path / "file"
    target.write_text("before")
    words = [sys.executable, "-c", "import os, sys; print(os.stat(sys.argv[1]).st_size)", str(target)]
    stop = faults.variables(fault_library, "stop", ("stat",), target)
    process = subprocess.Popen(words, env=dict(os.environ, **stop), stdout=subprocess.PIPE, text=True)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    target.write_text("longer than before")
    process.send_signal(signal.SIGCONT)
    assert process.communicate()[0] == "18\n"


def test_calls_are_logged_and_counted_over_processes(fault_library, tmp_path):
    log, counter = tmp_path / "log", tmp_path / "counter"
    target = tmp_path / "tree"
    for name in ("a", "b"):
        (target / name).mkdir(parents=True)
    count = faults.variables(fault_library, "none", ("mode",), target, log=log, counter=counter)
    for _run in range(2):
        run(["chmod", "-R", "a-w", str(target)], count)
    assert len(log.read_text().splitlines()) == 6
    assert int.from_bytes(counter.read_bytes(), sys.byteorder) == 6

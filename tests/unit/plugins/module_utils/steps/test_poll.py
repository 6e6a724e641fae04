# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.poll import Snapshot, parse_snapshot, poll_command
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.progress import WINDOW

from .step_records import job_record

JOB = job_record()


@pytest.fixture(name="step")
def step_directory(tmp_path):
    """A step that is being built, in a directory whose name needs quoting."""
    step = tmp_path / "it's the $step"
    step.mkdir()
    (step / "job.json").write_text(json.dumps(JOB.as_json(), indent=2) + "\n")
    (step / "log").write_text("==== attempt 1  x\n[9/9] old\n==== attempt 2  x\n[1/4] a\n[3/4] b\n")
    return step


def poll(step, start=0):
    ended = subprocess.run(
        ["/bin/sh", "-c", "cd / && " + poll_command(str(step), start)], stdout=subprocess.PIPE, check=False,
        stderr=subprocess.DEVNULL,
    )
    return parse_snapshot(ended.stdout.decode("utf-8", "surrogateescape"), "n1") if ended.returncode == 0 else None


def test_a_poll_shows_the_progress_of_this_attempt(step):
    assert poll(step) == Snapshot(JOB, False, 62, {"done": 3, "total": 4, "percent": 75})
    (step / "log").write_text("==== attempt 1  x\n[9/9] old\n==== attempt 2  x\n")
    assert poll(step).progress is None
    (step / "log").write_bytes(b"x" * 100000 + b"\xff\n[ 7%] c\n")
    assert poll(step).progress == {"percent": 7}


def test_an_older_attempts_marks_are_never_this_ones_however_late_the_log_is_shown(step):
    older = b"==== attempt 1  x\n[9/9] old\n"
    for seen in (b"", older[:12], older, older + b"==== att", older + b"==== attempt 2  x\n[1/"):
        (step / "log").write_bytes(seen)
        assert poll(step, len(older)).progress is None, seen
    (step / "log").write_bytes(older + b"==== attempt 2  x\n[1/4] a\n")
    assert poll(step, len(older)).progress == {"done": 1, "total": 4, "percent": 25}


def test_a_line_that_is_cut_by_the_window_holds_no_mark(step):
    (step / "log").write_bytes(b"see " + b"[1/2]" + b"x" * (WINDOW - 5))
    assert poll(step).progress is None


def test_a_poll_through_a_terminal_is_the_same(step):
    """ssh -tt, which Ansible uses where it may have to answer a prompt, turns every line's end into CR LF."""
    (step / "log").write_bytes(bytes(range(32, 256)) * 4 + b"\n[3/4] b\n")
    reader, terminal = pty.openpty()
    output = b"Welcome to login01\r\n"
    with subprocess.Popen(["/bin/sh", "-c", poll_command(str(step), 0)], stdout=terminal, stderr=terminal) as shell:
        os.close(terminal)
        try:
            while True:
                output += os.read(reader, 65536)
        except OSError:
            pass  # EIO is how a terminal says that nobody is left at its other side.
        finally:
            os.close(reader)
    assert shell.returncode == 0
    assert b"\r\n" in output
    seen = parse_snapshot(output.decode("utf-8", "surrogateescape"), "n1")
    assert seen == Snapshot(JOB, False, 224 * 4 + 9, {"done": 3, "total": 4, "percent": 75})


def test_half_a_gigabyte_without_a_newline_costs_as_much_as_a_short_log(step):
    with open(str(step / "log"), "r+b") as log:
        log.truncate(1 << 29)
        log.seek(0, os.SEEK_END)
        log.write(b"\xff\x00" * WINDOW)
    command = poll_command(str(step), 0)
    ended = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, check=True)
    assert len(ended.stdout) < 2 * WINDOW
    assert poll(step) == Snapshot(JOB, False, (1 << 29) + 2 * WINDOW, None)


def test_the_record_of_an_end_is_told(step):
    (step / "exit").write_text("{}")
    assert poll(step) == Snapshot(JOB, True, 0, None)
    assert not poll(step).running


def test_a_job_that_waits_is_not_running(step):
    (step / "job.json").write_text(json.dumps(JOB._replace(phase="starting").as_json()))
    (step / "log").unlink()
    assert poll(step) == Snapshot(JOB._replace(phase="starting"), False, 0, None)
    assert not poll(step).running


@pytest.mark.parametrize("change", [
    "rm job.json", "echo half > job.json", "echo [] > job.json", "sed -i s/n1/n2/ job.json", "cd .. && rm -r %s",
])
def test_what_cannot_be_read_is_left_to_the_module(step, change):
    command = change % shlex.quote(str(step)) if "%s" in change else change
    subprocess.run(command, shell=True, cwd=str(step), check=True)
    assert poll(step) is None


def test_a_log_that_is_not_there_yet_is_no_obstacle(step):
    (step / "log").unlink()
    assert poll(step) == Snapshot(JOB, False, 0, None)
    assert poll(step, 4711) == Snapshot(JOB, False, 0, None)

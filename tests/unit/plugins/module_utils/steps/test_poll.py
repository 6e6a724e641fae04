# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.poll import glance, glance_command
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.progress import WINDOW

JOB = {"nonce": "n1", "phase": "running", "heartbeat": "2026-11-20T02:12:09Z"}


@pytest.fixture(name="step")
def step_directory(tmp_path):
    """A step that is being built, in a directory whose name needs quoting."""
    step = tmp_path / "it's the $step"
    step.mkdir()
    (step / "job.json").write_text(json.dumps(JOB, indent=2) + "\n")
    (step / "log").write_text("==== attempt 1  x\n[9/9] old\n==== attempt 2  x\n[1/4] a\n[3/4] b\n")
    return step


def glance_at(step, start=0):
    ended = subprocess.run(
        ["/bin/sh", "-c", "cd / && " + glance_command(str(step), start)], stdout=subprocess.PIPE, check=False,
        stderr=subprocess.DEVNULL,
    )
    return glance(ended.stdout.decode("utf-8", "surrogateescape"), "n1") if ended.returncode == 0 else None


def test_a_glance_shows_the_progress_of_this_attempt(step):
    assert glance_at(step) == (JOB, False, 62, {"done": 3, "total": 4, "percent": 75})
    (step / "log").write_text("==== attempt 1  x\n[9/9] old\n==== attempt 2  x\n")
    assert glance_at(step).progress is None
    (step / "log").write_bytes(b"x" * 100000 + b"\xff\n[ 7%] c\n")
    assert glance_at(step).progress == {"percent": 7}


def test_an_older_attempts_marks_are_never_this_ones_however_late_the_log_is_shown(step):
    older = b"==== attempt 1  x\n[9/9] old\n"
    for seen in (b"", older[:12], older, older + b"==== att", older + b"==== attempt 2  x\n[1/"):
        (step / "log").write_bytes(seen)
        assert glance_at(step, len(older)).progress is None, seen
    (step / "log").write_bytes(older + b"==== attempt 2  x\n[1/4] a\n")
    assert glance_at(step, len(older)).progress == {"done": 1, "total": 4, "percent": 25}


def test_a_line_that_is_cut_by_the_window_holds_no_mark(step):
    (step / "log").write_bytes(b"see " + b"[1/2]" + b"x" * (WINDOW - 5))
    assert glance_at(step).progress is None


def test_a_glance_through_a_terminal_is_the_same(step):
    """ssh -tt, which Ansible uses where it may have to answer a prompt, turns every line's end into CR LF."""
    (step / "log").write_bytes(bytes(range(32, 256)) * 4 + b"\n[3/4] b\n")
    reader, terminal = pty.openpty()
    output = b"Welcome to login01\r\n"
    with subprocess.Popen(["/bin/sh", "-c", glance_command(str(step), 0)], stdout=terminal, stderr=terminal) as shell:
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
    seen = glance(output.decode("utf-8", "surrogateescape"), "n1")
    assert seen == (JOB, False, 224 * 4 + 9, {"done": 3, "total": 4, "percent": 75})


def test_half_a_gigabyte_without_a_newline_costs_as_much_as_a_short_log(step):
    with open(str(step / "log"), "r+b") as log:
        log.truncate(1 << 29)
        log.seek(0, os.SEEK_END)
        log.write(b"\xff\x00" * WINDOW)
    command = glance_command(str(step), 0)
    ended = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, check=True)
    assert len(ended.stdout) < 2 * WINDOW
    assert glance_at(step) == (JOB, False, (1 << 29) + 2 * WINDOW, None)


def test_the_record_of_an_end_is_told(step):
    (step / "exit").write_text("{}")
    assert glance_at(step) == (JOB, True, 0, None)
    assert not glance_at(step).running


def test_a_job_that_waits_is_not_running(step):
    (step / "job.json").write_text(json.dumps(dict(JOB, phase="intent")))
    (step / "log").unlink()
    assert glance_at(step) == (dict(JOB, phase="intent"), False, 0, None)
    assert not glance_at(step).running


@pytest.mark.parametrize("change", [
    "rm job.json", "echo half > job.json", "echo [] > job.json", "sed -i s/n1/n2/ job.json", "cd .. && rm -r %s",
])
def test_what_cannot_be_read_is_left_to_the_module(step, change):
    command = change % shlex.quote(str(step)) if "%s" in change else change
    subprocess.run(command, shell=True, cwd=str(step), check=True)
    assert glance_at(step) is None


def test_a_log_that_is_not_there_yet_is_no_obstacle(step):
    (step / "log").unlink()
    assert glance_at(step) == (JOB, False, 0, None)
    assert glance_at(step, 4711) == (JOB, False, 0, None)

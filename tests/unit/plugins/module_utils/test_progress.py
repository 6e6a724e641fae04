# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.progress import (
    ProgressPrinter,
    glance,
    glance_command,
    last_lines,
    parse_progress,
    progress_line,
    read_end,
    stated_error,
)


@pytest.mark.parametrize(
    "text, expected",
    [
        (b"", None),
        (b"no marks\n", None),
        (b"[1234/2210] Building CXX object x.o\n", {"done": 1234, "total": 2210, "percent": 55}),
        (b"[1/3] a\n[2/3] b\nwarning: something\n", {"done": 2, "total": 3, "percent": 66}),
        (b"[ 56%] Building CXX object x.o\n", {"percent": 56}),
        (b"[1/2] a\n[100%] Built target b\n", {"percent": 100}),
        (b"[ 56%] a\n[3/4] b\n", {"done": 3, "total": 4, "percent": 75}),
        (b"[1/9] a\r[2/9] b\r", {"done": 2, "total": 9, "percent": 22}),
        (b"see [3/4] in the text\n", None),
        (b"[4/3] nonsense\n[0/0] nonsense\n[250%] nonsense\n", None),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_last_mark_of_ninja_or_cmake_counts(text, expected):
    assert parse_progress(text) == expected


def test_only_this_attempts_end_of_the_log_is_read(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"old" * 10 + b"new lines")
    assert read_end(str(log), 30) == b"new lines"
    assert read_end(str(log), 0, 5) == b"lines"
    assert read_end(str(log), 10**6) == b""
    assert read_end(str(tmp_path / "none")) == b""


def test_the_last_lines_are_what_a_terminal_would_show():
    assert last_lines(b"a\n10%\r20%\r\nb \xff\n", 2) == ["20%", "b \ufffd"]
    assert last_lines(b"") == []
    assert len(last_lines(b"x" * 9999 + b"\n")[0]) == 500
    assert last_lines(b"1\n2\n3\n", 2) == ["2", "3"]


def test_a_line_reads_as_documented():
    assert progress_line("name", {"done": 1234, "total": 2210, "percent": 56}, 725) == "name  [1234/2210]  56 %  12 min"
    assert progress_line("name", {"percent": 5}, 12) == "name  5 %  12 s"
    assert progress_line("name", None, 60) == "name  1 min"


def played(marks, seconds):
    """When lines are printed if ``marks(second)`` is looked at once a second."""
    printer = ProgressPrinter("s")
    return [second for second in range(seconds) if printer.line(marks(second), second, 1000.0 + second)]


def test_a_short_step_prints_nothing():
    assert played(lambda second: {"percent": second}, 10) == []


def test_an_unchanged_step_prints_once_a_minute():
    assert played(lambda second: None, 200) == [10, 70, 130, 190]


def test_a_changing_step_prints_every_ten_seconds_at_most():
    assert played(lambda second: {"percent": second}, 45) == [10, 20, 30, 40]


def test_a_change_is_printed_when_it_comes():
    assert played(lambda second: {"percent": second // 25}, 60) == [10, 25, 50]


@pytest.mark.parametrize(
    "text, expected",
    [
        (b"Collecting x\nERROR: No matching distribution found for x\n", "ERROR: No matching distribution found for x"),
        (b"ERROR: first.\nERROR: the network.\n", "ERROR: the network"),
        (b"a.cc:3:7: error: expected ';'\nninja: build stopped\n", "a.cc:3:7: error: expected ';'"),
        (b"fatal: not a git repository\n", "fatal: not a git repository"),
        (b"CMake Error at CMakeLists.txt:3 (message):\n", "CMake Error at CMakeLists.txt:3 (message):"),
        (b"no errors here\nerrors: 0\n", ""),
        (b"", ""),
    ],
)
def test_what_calls_itself_an_error_is_found(text, expected):
    assert stated_error(text) == expected


JOB = {"nonce": "n1", "phase": "running", "heartbeat": "2026-11-20T02:12:09Z"}


@pytest.fixture(name="step")
def step_directory(tmp_path):
    """A step that is being built, in a directory whose name needs quoting."""
    step = tmp_path / "it's the $step"
    step.mkdir()
    (step / "job.json").write_text(json.dumps(JOB, indent=2) + "\n")
    (step / "log").write_text("==== attempt 1  x\n[9/9] old\n==== attempt 2  x\n[1/4] a\n[3/4] b\n")
    return step


def glance_at(step):
    ended = subprocess.run(
        "cd / && " + glance_command(str(step)), shell=True, capture_output=True, check=False
    )
    return glance(ended.stdout.decode("utf-8", "replace"), "n1")


def test_a_glance_shows_the_progress_of_this_attempt(step):
    assert glance_at(step) == (JOB, {"done": 3, "total": 4, "percent": 75})
    (step / "log").write_text("==== attempt 1  x\n[9/9] old\n==== attempt 2  x\n")
    assert glance_at(step) == (JOB, None)
    (step / "log").write_bytes(b"x" * 100000 + b"\xff\n[ 7%] c\n")
    assert glance_at(step) == (JOB, {"percent": 7})


@pytest.mark.parametrize(
    "change",
    [
        "echo '{}' > exit", "rm job.json", "echo half > job.json", "sed -i s/n1/n2/ job.json", "rm log",
        "sed -i s/running/starting/ job.json", "cd .. && rm -r %s",
    ],
)
def test_whatever_is_not_plainly_a_running_build_is_left_to_the_module(step, change):
    command = change % shlex.quote(str(step)) if "%s" in change else change
    subprocess.run(command, shell=True, cwd=str(step), check=True)
    found = glance_at(step)
    assert found is None or (change == "rm log" and found == (JOB, None))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.progress import (
    OFTEN,
    SELDOM,
    ProgressPrinter,
    last_lines,
    parse_progress,
    progress_line,
    read_end,
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
        (b"[" + b"9" * 5000 + b"/" + b"9" * 5000 + b"] more digits than Python reads\n", None),
        (bytes(range(256)) * 8 + b"\n[3/4] after binary\n" + bytes(range(256)), {"done": 3, "total": 4, "percent": 75}),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_last_mark_of_ninja_or_cmake_counts(text, expected):
    assert parse_progress(text) == expected


def test_what_may_be_the_rest_of_a_line_is_no_mark():
    assert parse_progress(b"[3/4] of see [3/4]\n[1/4] a\n", cut=True) == {"done": 1, "total": 4, "percent": 25}
    assert parse_progress(b"[3/4] of a line without an end", cut=True) is None


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


def played(marks, seconds, pace=OFTEN):
    """When lines are printed if ``marks(second)`` is looked at once a second."""
    printer = ProgressPrinter("s", pace)
    return [second for second in range(seconds) if printer.line(marks(second), second, 1000.0 + second)]


def test_a_short_step_prints_nothing():
    assert played(lambda second: {"percent": second}, 10) == []


def test_an_unchanged_step_prints_once_a_minute():
    assert played(lambda second: None, 200) == [10, 70, 130, 190]


def test_a_changing_step_prints_every_ten_seconds_at_most():
    assert played(lambda second: {"percent": second}, 45) == [10, 20, 30, 40]


def test_a_change_is_printed_when_it_comes():
    assert played(lambda second: {"percent": second // 25}, 60) == [10, 25, 50]


def test_where_few_lines_are_wanted_a_build_prints_its_quarters_and_a_silent_one_every_quarter_of_an_hour():
    assert played(lambda second: {"percent": second // 10}, 1000, SELDOM) == [60, 250, 500, 750]
    assert played(lambda second: None, 2000, SELDOM) == [60, 960, 1860]

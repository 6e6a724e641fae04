# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.queue_lines import (
    QueuePrinter,
    describe_start,
    queue_line,
)

TODAY = "2026-11-20"
QUEUE = {
    "job_id": "4711", "state": "pending", "reason": "Priority", "position": 3, "of": 17,
    "estimated_start": "2026-11-20T13:20:00Z",
}


@pytest.fixture(autouse=True)
def clock_of_the_operator(monkeypatch):
    """An hour before UTC, all the year."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ-1")
        time.tzset()
        yield
    time.tzset()


def test_a_line_reads_as_documented():
    assert queue_line("horovod", QUEUE, TODAY) == (
        "horovod  job 4711 pending (Priority), position 3 of 17, starts about 14:20"
    )


@pytest.mark.parametrize("queue, expected", [
    ({"job_id": "7"}, "s  job 7 pending"),
    ({"job_id": None, "state": "starting", "reason": ""}, "s  job starting"),
    ({"job_id": "7", "state": "starting", "node": "nid002", "former": ""}, "s  job 7 starting on nid002"),
    ({"job_id": "7", "state": "held", "reason": "JobHeldUser", "position": None}, "s  job 7 held (JobHeldUser)"),
    ({"job_id": "7", "state": "pending", "position": 2, "of": None}, "s  job 7 pending, position 2"),
    (dict(QUEUE, estimated_start="2026-11-21T23:02:03Z"),
     "s  job 4711 pending (Priority), position 3 of 17, starts about 2026-11-22 00:02"),
])
def test_what_is_not_known_is_left_out(queue, expected):
    assert queue_line("s", queue, TODAY) == expected


def test_a_job_that_waits_for_its_former_build_says_where_both_are():
    again = {"job_id": "7", "state": "starting", "node": "nid002", "former": "nid001"}
    assert queue_line("s", again, TODAY) == (
        "s  job 7 started again on nid002 and waits until its former build on nid001 is surely gone"
    )


def test_an_estimate_that_is_not_understood_is_shown_as_it_is():
    assert describe_start("Fri Nov 20 14:20:00 2026", TODAY) == "Fri Nov 20 14:20:00 2026"


def played(answers, every=60.0, today=TODAY):
    """When lines are printed if the scheduler gives these answers."""
    printer = QueuePrinter("s")
    return [number for number, queue in enumerate(answers) if printer.lines(queue, 1e6 + every * number, today)]


def test_seventeen_minutes_of_queue_are_a_handful_of_lines():
    answers = [dict(QUEUE, position=1 + (1020 - second) // 60) for second in range(1020)]
    assert len(played(answers, every=1.0)) == 6


def test_a_day_in_the_queue_is_a_hundred_lines_even_where_the_reason_comes_and_goes():
    answers = [dict(QUEUE, reason=("Priority", "Resources")[minute % 2], position=minute) for minute in range(1440)]
    assert len(played(answers)) <= 105


def test_a_new_state_or_reason_is_shown_at_once():
    answers = [QUEUE, QUEUE, dict(QUEUE, reason="Resources"), dict(QUEUE, state="held", reason="JobHeldUser"), QUEUE]
    assert played(answers, every=1.0) == [0, 2, 3]


def test_a_job_that_nothing_keeps_back_is_a_line_only_where_it_waits_all_the_same():
    answers = [{"job_id": "7", "state": "pending", "position": 1, "of": 1}] * 8
    assert played(answers, every=1.0) == [5]
    assert played([*answers[:2], dict(answers[0], reason="Resources")], every=1.0) == [2]


def test_advice_is_given_once():
    advice = "Release it with 'scontrol release 7'."
    printer, held = QueuePrinter("s"), {"job_id": "7", "state": "held", "advice": advice}
    assert printer.lines(held, 0.0, TODAY) == ["s  job 7 held", "s  " + advice]
    assert printer.lines(held, 100.0, TODAY) == ["s  job 7 held"]

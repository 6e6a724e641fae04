# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.needs import (
    ground_of,
    stamp_of,
    still_stands,
    took_over,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.outcome import Outcome
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Stamp

from .step_records import job_record

JOB = job_record(digest="d", result="made", ground="n0")
END = Outcome("done", finished="2026-11-20T02:13:09Z", seconds=60.0)


def test_the_grounds_of_all_that_is_needed_make_one():
    assert ground_of(["n2", "n1+n2", ""], "n3") == "n1+n2+n3"
    assert ground_of([]) == ""


def test_a_stamp_says_what_was_made_on_what():
    def made(stamp):
        return stamp.result, stamp.ground

    assert made(stamp_of(JOB, END, "", None)) == ("made", "n0")
    assert made(stamp_of(JOB._replace(foundation=True), END, "", None)) == ("made", "n0+n1")
    assert made(stamp_of(JOB, END, "content", None)) == ("content", None)
    assert stamp_of(JOB, END, "content", {"release": "one"}).from_cache
    assert made(Stamp.from_json({"digest": "before"})) == ("before", "")


def test_a_needed_step_stands_as_long_as_it_has_the_same_result_on_the_same_ground():
    stamp = stamp_of(JOB, END, "", None)
    assert still_stands(stamp, "made on n0") and still_stands(stamp, "made")
    assert not still_stands(stamp, "made on n9") and not still_stands(stamp, "other") and not still_stands(None, "made")
    assert still_stands(stamp_of(JOB, END, "content", None), "content on n0")


def test_what_was_taken_over_is_said_with_what_is_known():
    origin = {"release": "one", "finished": "2026-11-20T02:13:09Z", "seconds": 612.4}
    assert took_over(origin) == "taken over from release one: same inputs, built 2026-11-20T02:13:09Z in 612 s"
    assert took_over({}) == "taken over from an earlier run: same inputs, built at an unknown time"

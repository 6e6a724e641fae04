# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.step import check_request, step_digest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.step_results import (
    counted,
    ground_of,
    result_of,
    stamp_record,
    stamped,
    still_stands,
    took_over,
)

STEPS = "/soft/stacks/%s/.torchstack/steps"
JOB = {
    "digest": "d", "nonce": "n1", "needs": {}, "attempt": 1, "started": "2026-11-20T02:12:09Z", "host": "n1",
    "result": "made", "ground": "n0", "foundation": False,
}
END = {"finished": "2026-11-20T02:13:09Z", "seconds": 60.0}


def request(release="one", **options):
    options = {"name": "s", "state_dir": STEPS % release, "script": "make -C /soft/stacks/%s/src" % release, **options}
    return check_request(options)


def test_the_same_step_of_another_release_has_the_same_digest():
    assert step_digest(request("one"), {"a": "1"}) == step_digest(request("two"), {"a": "1"})
    assert step_digest(request("one"), {"a": "1"}) != step_digest(request("one"), {"a": "2"})
    beside = request("two", script="make -C /soft/stacks/one/src")
    assert step_digest(beside, {}) != step_digest(request("two"), {})


@pytest.mark.parametrize("other", [{"produces": ["/w"]}, {"creates": ["/w"]}])
def test_what_is_produced_is_an_input(other):
    assert step_digest(request(**other), {}) != step_digest(request(), {})


def test_a_result_is_known_beforehand_unless_something_is_produced():
    plain, install = request(needs=["a", "b"]), request(needs=["a", "b"], judged_by=["b"])
    assert result_of(request(needs=["a", "b"], produces=["/w"]), {"a": "1", "b": "2"}) is None
    assert result_of(plain, {"a": "1", "b": "2"}) != result_of(plain, {"a": "3", "b": "2"})
    assert result_of(install, {"a": "1", "b": "2"}) == result_of(install, {"a": "3", "b": "2"})
    assert result_of(install, {"a": "1", "b": "2"}) != result_of(install, {"a": "1", "b": "3"})


def test_only_what_is_installed_is_judged_by_the_ground():
    assert counted(request(), "r", "n1") == "r on n1"
    assert counted(request(), "r", "") == "r"
    assert counted(request(produces=["/w"]), "r", "n1") == "r"
    assert ground_of(["n2", "n1+n2", ""], "n3") == "n1+n2+n3"
    assert ground_of([]) == ""


def test_a_stamp_says_what_was_made_on_what():
    assert stamped(stamp_record(JOB, END, "", None)) == ("made", "n0")
    assert stamped(stamp_record(dict(JOB, foundation=True), END, "", None)) == ("made", "n0+n1")
    assert stamped(stamp_record(JOB, END, "content", None)) == ("content", None)
    assert stamp_record(JOB, END, "content", {"release": "one"})["from_cache"]
    assert stamped({"digest": "before"}) == ("before", "")


def test_a_needed_step_stands_as_long_as_it_has_the_same_result_on_the_same_ground():
    stamp = stamp_record(JOB, END, "", None)
    assert still_stands(stamp, "made on n0") and still_stands(stamp, "made")
    assert not still_stands(stamp, "made on n9") and not still_stands(stamp, "other") and not still_stands(None, "made")
    assert still_stands(stamp_record(JOB, END, "content", None), "content on n0")


@pytest.mark.parametrize("options", [
    {"judged_by": ["b"]}, {"needs": ["a"], "judged_by": ["b"]},
    {"needs": ["a"], "judged_by": ["a"], "produces": ["/w"]},
    {"produces": ["relative"]},
], ids=str)
def test_what_would_be_judged_wrongly_is_refused(options):
    with pytest.raises(StackError) as caught:
        request(**options)
    assert caught.value.remedy


def test_what_was_taken_over_is_said_with_what_is_known():
    origin = {"release": "one", "finished": "2026-11-20T02:13:09Z", "seconds": 612.4}
    assert took_over(origin) == "taken over from release one: same inputs, built 2026-11-20T02:13:09Z in 612 s"
    assert took_over({}) == "taken over from an earlier run: same inputs, built at an unknown time"

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Why a step was built: what of its inputs differs from the release before, wherever that lies."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import releases, why


@pytest.fixture()
def explained(root):
    def explain(before, after, needs=("a on 1", "a on 2")):
        root.release("2026-11-20", "2026-11-20T08:15:00Z")
        root.step("2026-11-20", "horovod", "2026-11-20T08:00:00Z", 9.0, before, {"pytorch": needs[0]})
        root.release("2026-11-24")
        root.step("2026-11-24", "horovod", "2026-11-24T10:00:00Z", 9.0, after, {"pytorch": needs[1]})
        release = releases.read(str(root.place), "2026-11-24")
        return why.explain(release, "horovod", why.other_release(release, "horovod"))
    return explain


def test_a_changed_variable_is_named_with_both_values(explained):
    found = explained({"environment": {"JOBS": "8"}}, {"environment": {"JOBS": "2"}})
    assert found["changed"] == ["environment.JOBS"]
    assert found["sentences"] == [
        "Step horovod was built, as its inputs differ from those in release 2026-11-20:",
        "  environment.JOBS: 2, before 8"]


def test_a_changed_script_is_shown_by_its_lines(explained):
    found = explained({"script": "a\nb\n"}, {"script": "a\nc\n"})
    assert found["sentences"][1:] == ["  Its script:", "    -b", "    +c"]


def test_another_step_below_is_named_with_the_next_question(explained):
    found = explained({}, {}, ("a on 1", "b on 2"))
    assert found["sentences"][1] == "  It is built on step pytorch, which is another one: torchstack why pytorch"


def test_the_place_of_the_release_and_what_it_was_made_on_are_no_difference(explained, root):
    found = explained(
        {"script": "make %s/2026-11-20/base\n" % root.place}, {"script": "make %s/2026-11-24/base\n" % root.place})
    assert found["changed"] == [] and "has the same inputs as in release 2026-11-20" in found["sentences"][0]


def test_the_first_release_has_none_to_compare_with(root):
    root.release("2026-11-24")
    root.step("2026-11-24", "horovod", "2026-11-24T10:00:00Z", 9.0)
    found = why.explain(releases.read(str(root.place), "2026-11-24"), "horovod", None)
    assert found["sentences"] == ["Step horovod was built as no earlier release below %s has it." % root.place]

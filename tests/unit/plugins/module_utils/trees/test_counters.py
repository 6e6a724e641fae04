# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Counts of a pass, added up, and the error that they amount to."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.counters import (
    BoundedList,
    Counters,
    ModeChange,
    as_result,
    permission_error,
)


def test_a_list_keeps_the_first_few_and_counts_all():
    first, second = BoundedList(2), BoundedList(2)
    for name in ("c", "d", "e"):
        first.add(lambda name=name: name)
    second.add(lambda: "a")
    first.merge(second)
    assert (first.first, first.total) == (["a", "c"], 4)


def test_nothing_is_made_for_a_list_without_room():
    nothing = BoundedList(0)
    nothing.add(lambda: 1 / 0)
    assert (nothing.first, nothing.total) == ([], 1)


def test_what_threads_have_counted_adds_up():
    total, part = Counters(5), Counters(5)
    part.files, part.changed_files, part.excluded = 3, 2, 1
    part.drift.add(lambda: ModeChange("lib/a", 0o644, 0o444))
    total.merge(part)
    total.merge(part)
    result = as_result(total)
    assert (result["files"], result["changed_files"], result["excluded"], result["drift_total"]) == (6, 4, 2, 2)
    assert result["drift"] == [{"path": "lib/a", "from": "0644", "to": "0444"}] * 2


def test_entries_that_could_not_be_changed_are_one_error_with_every_reason():
    counters = Counters(1)
    assert permission_error(counters, "/tree") is None
    counters.foreign.add(lambda: "a")
    counters.foreign.add(lambda: "b")
    counters.refused.add(lambda: "c (Operation not permitted)")
    error = permission_error(counters, "/tree")
    assert error.path == "/tree" and error.details["foreign_total"] == 2 and error.details["foreign"] == ["a"]
    assert error.message == (
        "2 of the entries below /tree belong to another account, first a; "
        "1 of the entries below /tree cannot be changed, first c (Operation not permitted)."
    )

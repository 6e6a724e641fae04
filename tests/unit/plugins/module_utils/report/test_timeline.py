# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the steps lie on the page of a report."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.report import (
    timeline,
)


def step(begun, ended, name="s"):
    return {"name": name, "started": begun and "2026-11-20T%sZ" % begun, "finished": ended and "2026-11-20T%sZ" % ended,
            "seconds": None, "host": "h"}


def test_a_pause_is_cut_and_the_steps_keep_their_order_and_their_lengths():
    times = (("08:00:00", "08:01:00"), ("08:01:00", "08:03:00"), ("20:00:00", "20:01:00"))
    found = timeline.make_timeline([step(*both) for both in times])
    places = [(row["left"], row["width"]) for row in found["rows"]]
    cut = 240 * timeline.PAUSE
    whole = 240 + cut
    assert places == [
        (round(100 * left / whole, 2), round(100 * width / whole, 2))
        for left, width in ((0, 60), (60, 120), (180 + cut, 60))
    ]
    assert found["busy"] == 240
    assert [pause["seconds"] for pause in found["pauses"]] == [11 * 3600 + 57 * 60]


def test_steps_side_by_side_are_counted_once_and_one_without_a_time_has_no_place():
    found = timeline.make_timeline([step("08:00:00", "08:02:00"), step("08:01:00", "08:03:00"), step(None, None)])
    assert found["busy"] == 180 and found["pauses"] == []
    assert found["rows"][2]["left"] is None
    assert timeline.make_timeline([])["rows"] == []

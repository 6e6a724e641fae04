# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Numbers, sizes and times as people read them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import (
    formatting,
)


@pytest.mark.parametrize(("said", "meant"), [
    (formatting.size(1 << 15), "32 KiB"), (formatting.size(3 << 29), "1.5 GiB"), (formatting.size(8), "8 bytes"),
    (formatting.size(None), formatting.DASH), (formatting.duration(0.04), "0.0 s"),
    (formatting.duration(59.6), "1 min 0 s"),
    (formatting.duration(151.2), "2 min 31 s"), (formatting.duration(7214), "2 h 0 min"),
    (formatting.speed(346.2), "346"),
    (formatting.speed(23), "23.0"), (formatting.speed(2.306), "2.31"), (formatting.speed(0.0564), "0.0564"),
    (formatting.speed(99.96), "100"), (formatting.short(72.0), "72"), (formatting.short(100), "100"),
    (formatting.count(1, "rank"), "1 rank"), (formatting.count(0, "rank"), "0 ranks"),
    (formatting.numbers([5, 1, 2, 3]), "1\u20133, 5"),
    (formatting.sentence("x"), "x."), (formatting.sentence("x."), "x."), (formatting.sentence(""), ""),
    (formatting.moment("2026-11-20T12:00:05Z"), "2026-11-20 12:00:05 UTC"), (formatting.day(None), formatting.DASH),
])
def test_numbers_are_said_as_people_say_them(said, meant):
    assert said == meant

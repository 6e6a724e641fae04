# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import now, seconds_of, utc


def test_times_survive_the_record():
    assert seconds_of(utc(1700000000.9)) == 1700000000
    assert utc(0) == "1970-01-01T00:00:00Z"


def test_now_is_written_as_every_other_time():
    assert utc(seconds_of(now())) == now() or utc(seconds_of(now())) <= now()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests for what has to come, however busy the machine is."""

from __future__ import annotations

import time


def eventually(condition, what, seconds=120.0):
    """Poll until the condition holds, and return its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it never happened: " + what
        time.sleep(0.01)

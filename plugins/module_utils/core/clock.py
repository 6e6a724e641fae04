# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell the time as the records of a release keep it."""

from __future__ import annotations

import time


def now() -> str:
    """Return this moment in UTC, to the second, as ``2026-11-20T08:15:00Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

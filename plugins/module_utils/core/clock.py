# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell the time as the records of a release keep it."""

from __future__ import annotations

import datetime
import time

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def now() -> str:
    """Return this moment in UTC, to the second, as ``2026-11-20T08:15:00Z``."""
    return time.strftime(_FORM, time.gmtime())


def utc(seconds: float) -> str:
    """Write seconds since 1970 as records do: ``2026-11-20T23:11:48Z``."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(_FORM)


def seconds_of(text: str) -> float:
    """Read a time of :func:`utc` as seconds since 1970; ValueError: it is none."""
    return datetime.datetime.strptime(text, _FORM).replace(tzinfo=datetime.timezone.utc).timestamp()

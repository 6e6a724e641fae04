# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A finding about a node, with the figures that make it one. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from .thresholds import (
    FAILURE,
    REMARK,
    WARNING,
    Limit,
)


class Finding(NamedTuple):
    """One thing that is not as it should be, or that is to be known."""

    severity: str
    check: str
    subject: str
    message: str
    value: Any = None
    threshold: Any = None
    source: str = ""
    remedy: str = ""


def failure(
    check: str, subject: str, message: str, value: Any = None, threshold: Any = None, source: str = "", remedy: str = ""
) -> Finding:
    """Something that a release must not be accepted on."""
    return Finding(FAILURE, check, subject, message, value, threshold, source, remedy)


def warning(
    check: str, subject: str, message: str, value: Any = None, threshold: Any = None, source: str = "", remedy: str = ""
) -> Finding:
    """Something that somebody should look at."""
    return Finding(WARNING, check, subject, message, value, threshold, source, remedy)


def remark(
    check: str, subject: str, message: str, value: Any = None, threshold: Any = None, source: str = "", remedy: str = ""
) -> Finding:
    """Something to know."""
    return Finding(REMARK, check, subject, message, value, threshold, source, remedy)


def limited(limit: Limit, check: str, subject: str, message: str, value: Any, remedy: str) -> Finding:
    """Something that is a finding by a threshold."""
    return Finding(limit.severity, check, subject, message, value, limit.threshold, limit.source, remedy)

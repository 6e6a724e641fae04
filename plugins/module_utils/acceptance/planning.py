# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plan an acceptance or a sweep: check its preconditions, and describe the difference for Ansible."""

from __future__ import annotations

import os
from typing import Any, Mapping

from ..core.errors import StackError


def find_obstacle(prefix: str, subject: str) -> StackError | None:
    """Find what keeps an acceptance from being possible; return the error to raise."""
    if not os.path.isdir(prefix):
        return StackError(
            "The release %s does not exist." % prefix, "prefix", "Build and freeze it first, or correct prefix.", prefix
        )
    if not subject:
        return StackError(
            "There is no subject: an acceptance belongs to one frozen state of a release.", "subject",
            "Freeze the release first, and give its digest.", prefix)
    return None


def plan_diff(what: str, last: Mapping[str, Any] | None, subject: str, reason: str) -> dict[str, str]:
    """Describe the plan as Ansible shows a difference, from the last record, and the reason to ask (empty: none)."""

    def text(verdict: str, of: object) -> str:
        return "%s: %s\nsubject: %s\n" % (what, verdict, of or "not known yet")

    before = ""
    if last is not None:
        before = text("passed" if last.get("passed") is True else "failed", last.get("subject"))
    return {"before": before, "after": text("to be run", subject) if reason else before}

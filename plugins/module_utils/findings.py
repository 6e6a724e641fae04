# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Findings: what a check saw, how bad that is, and what to do."""

from __future__ import annotations

from typing import NamedTuple, Sequence

ERROR, WARNING, NOTE = "error", "warning", "note"


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    ok: bool
    severity: str
    message: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """What is wrong and what to do."""
        return ("%s %s" % (self.message, self.remedy)).strip()


def error(check: str, message: str, remedy: str) -> Finding:
    """Something that a rollout cannot begin with."""
    return Finding(check, False, ERROR, message, remedy)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Something that will hurt somebody later."""
    return Finding(check, False, WARNING, message, remedy)


def note(check: str, message: str, remedy: str = "") -> Finding:
    """Something to know."""
    return Finding(check, True, NOTE, message, remedy)


def failure(findings: Sequence[Finding]) -> str:
    """The sentences of all errors, for the message of a failed task; empty when there is none."""
    return " ".join(finding.sentence for finding in findings if finding.severity == ERROR)

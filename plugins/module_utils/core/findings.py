# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect findings of checks: what was seen, how bad that is, and what to do."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from .errors import StackError

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
        """Return what is wrong and what to do."""
        return ("%s %s" % (self.message, self.remedy)).strip()


def error(check: str, message: str, remedy: str) -> Finding:
    """Make a finding that a rollout cannot begin with."""
    return Finding(check, False, ERROR, message, remedy)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Make a finding that will hurt somebody later."""
    return Finding(check, False, WARNING, message, remedy)


def note(check: str, message: str, remedy: str = "") -> Finding:
    """Make a finding that is good to know."""
    return Finding(check, True, NOTE, message, remedy)


def failure(findings: Sequence[Finding]) -> str:
    """Join the sentences of all errors, for the message of a failed task; empty when there is none."""
    return " ".join(finding.sentence for finding in findings if finding.severity == ERROR)


def conclude(
    module: Any, findings: Sequence[Finding], failed_step: str, always: Mapping[str, Any],
    passed: Mapping[str, Any] | None = None, consequence: str = "", trouble: str = "",
) -> dict[str, Any]:
    """Show each warning, and return the result of a module that has looked at something.

    The result is ``always``, and where there is no error ``passed``. A message is ``trouble``, which kept it from
    looking, or the errors; it ends with the consequence. StackError: there is a message; the result is in its details.
    """
    for finding in findings:
        if finding.severity == WARNING:
            module.warn(finding.sentence)
    result = dict(always, changed=False, findings=[finding._asdict() for finding in findings])
    message = trouble or failure(findings)
    if message:
        raise StackError(" ".join(part for part in (message, consequence) if part), failed_step, **result)
    return dict(passed or {}, **result)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Findings: what a check saw, how bad that is, and what to do."""

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


def end(
    module: Any, findings: Sequence[Finding], failed_step: str, always: Mapping[str, Any],
    passed: Mapping[str, Any] | None = None, consequence: str = "", trouble: str = "",
) -> None:
    """End a module that has looked at something: each warning is shown, and the errors are the message of its failure.

    Args:
        module: the AnsibleModule, which exits.
        findings: all of them; part of the result.
        failed_step: what failed, where there are errors.
        always: what the module returns in any case.
        passed: what it returns besides where there is no error.
        consequence: a sentence to end the message with.
        trouble: what kept it from looking, instead of the errors.
    """
    for finding in findings:
        if finding.severity == WARNING:
            module.warn(finding.sentence)
    result = dict(always, changed=False, findings=[finding._asdict() for finding in findings])
    message = trouble or failure(findings)
    if message:
        told = " ".join(part for part in (message, consequence) if part)
        module.fail_json(**dict(result, **StackError(told, failed_step).as_result()))
    module.exit_json(**dict(passed or {}, **result))

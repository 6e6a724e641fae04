# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Decide how a release stands, and list the problems that say why. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.lenient_json import mapping
from . import partitions

GOOD, BAD, WARNED, UNKNOWN = "good", "bad", "warning", "unknown"


def decide_verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    """Decide how the release stands: a word, its tone, and the problems."""
    return partitions.decide_verdict(found, _decide) if found.get("partitions") else _decide(found)


def _decide(found: Mapping[str, Any]) -> dict[str, Any]:
    """Decide it by one acceptance."""
    release, accepted = found["release"], found["acceptance"]
    health, sweep = mapping(found["health"]), mapping(found["sweep"])
    failed = [step for step in found["steps"] if step["state"] == "failed"]
    problems = [_step_problem(step) for step in failed]
    problems += [dict(finding, of="node health") for finding in health.get("problems", [])]
    if accepted:
        problems += [
            {"of": "acceptance, " + failure["check"], "message": failure["message"], "remedy": failure["remedy"]}
            for failure in accepted["failures"]
        ]
    problems += [dict(finding, of="pair sweep") for finding in sweep.get("problems", [])]
    for name, record in (("node health", health), ("pair sweep", sweep)):
        problems += _record_problems(name, record, release)
    if failed and not (accepted and accepted["passed"]):
        word, tone = "Not built", BAD
    elif accepted is None:
        word, tone = "Not accepted yet", UNKNOWN
    elif not accepted["passed"]:
        word, tone = "Not accepted", BAD
    elif release["frozen_at"] and accepted["subject"] != release["subject"]:
        word, tone = "Accepted in another state", WARNED
        problems.append({
            "of": "acceptance", "message": "The acceptance was of another state of this release.",
            "remedy": "Accept it: playbooks/accept.yml -e torchstack_release=%s." % release["name"],
        })
    else:
        word, tone = ("Accepted, with findings", WARNED) if problems else ("Accepted", GOOD)
    return {"word": word, "tone": tone, "problems": problems}


def _step_problem(step: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the problem of a step that failed, with the lines of its log that say why."""
    lines = [line for error in step.get("errors", []) for line in error["lines"]]
    return {
        "of": "step " + step["name"], "message": step["outcome"], "remedy": step.get("remedy", ""),
        "lines": lines, "log": step.get("log", ""),
    }


def _record_problems(name: str, found: Mapping[str, Any], release: Mapping[str, Any]) -> list[dict[str, str]]:
    """Explain why a record does not count: failed without a reason, or of another state of the release."""
    problems = []
    if found and not found["passed"] and not found["problems"]:
        problems.append({"of": name, "message": "It did not pass, and its record does not say why.", "remedy": ""})
    if found and found["subject"] and release["subject"] and found["subject"] != release["subject"]:
        problems.append({
            "of": name, "message": "It was of another state of this release.",
            "remedy": "Accept this one: playbooks/accept.yml -e torchstack_release=%s." % release["name"],
        })
    return problems

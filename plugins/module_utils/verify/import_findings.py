# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Interpret the events of a run: who brought which map, and which imports and values are wrong."""

from __future__ import annotations

import signal
from typing import Any, Mapping, NamedTuple, Sequence

from .import_rules import Expectation, as_text
from .import_runner import Outcome

START, EXIT = "the interpreter", "the end of the interpreter"

_MISSING = "ModuleNotFoundError"
_REMEDIES = (
    ("cannot open shared object file",
     "Let ldd_verify say where that library was looked for, and rebuild what needs it with a RUNPATH."),
    ("undefined symbol", "A library of another build was mapped first: see mapped, and let one thing bring it."),
    ("version `", "A library of another build was mapped first: see mapped, and let one thing bring it."),
    ("cannot allocate memory in static TLS block", "Import it earlier: put it further up in modules."),
)


class Run(NamedTuple):
    """Hold a run, interpreted.

    ``maps`` are the steps and the process maps behind them, ``errors`` the imports that failed, ``values`` what the
    expressions gave, ``complaints`` why one gave nothing, ``absent`` modules that are not there.
    """

    version: str
    maps: tuple[tuple[str, bytes], ...]
    errors: tuple[dict[str, Any], ...]
    values: dict[str, Any]
    complaints: dict[str, str]
    absent: tuple[str, ...]


def expression_step(expression: str) -> str:
    """Return the name of the step that evaluates an expression."""
    return "expect: " + expression


def interpret(outcome: Outcome, modules: Sequence[str], timeout: float, manual_command: str) -> Run:
    """Interpret a run of so many seconds at most; ``manual_command`` does the same imports, for remedies."""
    version, step = "", START
    maps: list[tuple[str, bytes]] = []
    errors: list[dict[str, Any]] = []
    values: dict[str, Any] = {}
    complaints: dict[str, str] = {}
    absent, tried = [], []
    for event in outcome.events:
        kind = event[0]
        if kind == "start":
            version = event[1]
            maps.append((START, event[-1]))
        elif kind in ("import", "evaluate"):
            step = event[1] if kind == "import" else expression_step(event[1])
            if kind == "import":
                tried.append(step)
            continue
        elif kind == "failed":
            _kind, module, classes, missing, complaint, lines, text = event
            maps.append((module, text))
            if _MISSING in classes and missing and (module + ".").startswith(missing + "."):
                absent.append(module)
            errors.append({
                "module": module, "error": complaint, "output": list(lines), "not_tried": [],
                "remedy": remedy_for(complaint, missing if _MISSING in classes else "", manual_command),
            })
        elif kind == "imported":
            maps.append((event[1], event[2]))
        elif kind in ("value", "no value"):
            (values if kind == "value" else complaints)[event[1]] = event[2]
            maps.append((expression_step(event[1]), event[3]))
        step = EXIT if kind == "end" else step
    ended = outcome.events[-1:] and outcome.events[-1][0] == "end"
    if outcome.status != 0 or not ended:
        errors.append({
            "module": step, "error": describe_end(outcome.status, timeout), "output": list(outcome.output),
            "not_tried": [module for module in modules if module not in tried],
            "remedy": "Do the same by hand: %s" % manual_command,
        })
    return Run(version, tuple(maps), tuple(errors), values, complaints, tuple(absent))


def describe_end(status: int | None, timeout: float) -> str:
    """Tell how a process ended, in words."""
    if status is None:
        return "it did not come to an end within %g seconds" % timeout
    if status >= 0:
        return "the process ended with exit status %d" % status
    try:
        return "the process was killed by signal %d (%s)" % (-status, signal.Signals(-status).name)
    except ValueError:
        return "the process was killed by signal %d" % -status


def remedy_for(complaint: str, missing: str, manual_command: str) -> str:
    """Say what to do about an import that failed; ``missing`` is the module that was not found, if any."""
    if missing:
        return "Install %s into the release, or correct PYTHONPATH in environment." % missing
    by_hand = "Do the same by hand: %s" % manual_command
    return next((remedy for sign, remedy in _REMEDIES if sign in complaint), by_hand)


def wrong_values(run: Run, expectations: Sequence[Expectation]) -> list[dict[str, Any]]:
    """List the expectations that were not met, without those not tried because the process died."""
    wrong = []
    for rule in expectations:
        evaluated = rule.value in run.values
        if rule.value in run.complaints or (evaluated and not rule.is_met(run.values[rule.value])):
            wrong.append({
                "value": rule.value, "expected": rule.expected_text, "actual": run.values.get(rule.value),
                "error": run.complaints.get(rule.value, ""), "reason": rule.reason,
                "remedy": "Install the version that the release file names, or correct the release file.",
            })
    return wrong


def sentence_of_value(finding: Mapping[str, Any]) -> str:
    """Write a wrong value as one sentence."""
    was = "gives " + finding["error"] if finding["error"] else "is " + as_text(finding["actual"])
    return "%s has to %s and %s." % (finding["value"], finding["expected"], was)


def sentence_of_error(finding: Mapping[str, Any]) -> str:
    """Write a failed import as one sentence."""
    where = finding["module"]
    places = {START: "Before anything was imported, ", EXIT: "After all imports, at its end, "}
    place = places.get(where, "Import of %s: " % where)
    if where.startswith(expression_step("")):
        place = "While %s was evaluated, " % where[len(expression_step("")) :]
    untried = ", ".join(finding["not_tried"])
    return "%s%s%s." % (place, finding["error"].strip().rstrip("."), " (not tried: %s)" % untried if untried else "")

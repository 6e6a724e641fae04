# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Verify imports: one run, its libraries identified, and all of it checked."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..elf import process_map
from . import import_checks, import_findings, import_record, import_runner
from .import_rules import Rules
from .rule_globs import Paths, PathsElsewhere

LISTED_SENTENCES = 5


class Report(NamedTuple):
    """Hold what the module returns and records, the failure if there is one, and the modules that are not there."""

    result: dict[str, Any]
    record: dict[str, Any]
    error: StackError | None
    absent: tuple[str, ...]


def require_interpreter(python: str) -> None:
    """Refuse an interpreter that is not an executable file with an absolute path."""
    if not os.path.isabs(python) or not os.path.isfile(python) or not os.access(python, os.X_OK):
        message = "There is no interpreter %s." % python
        raise StackError(message, "plan", "Build the base of the release, or correct python.", python)


def verify(params: Mapping[str, Any], rules: Rules, scratch: str) -> Report:
    """Run the imports in the empty directory ``scratch``, identify what is mapped, and check it."""
    if params["timeout"] <= 0:
        raise StackError("timeout is not positive: %s." % params["timeout"], "plan", "Correct it.")
    container = bool(params.get("container"))
    if container and params.get("static"):
        raise StackError("The files of a container are not those of the static record.", "plan", "Leave static out.")
    require_interpreter(params["python"])
    given = params.get("environment") or {}
    unset = params.get("unset") or []
    expressions = tuple(dict.fromkeys(rule.value for rule in rules.expect))
    environment = import_runner.environment(given, unset, scratch, container)
    static = None
    if params.get("static"):
        static = import_record.read_static(params["static"], bool(environment.get("LD_LIBRARY_PATH")))
    plan = import_runner.Plan(params["python"], rules.modules, expressions, environment, params["timeout"])
    outcome = import_runner.run(plan, scratch)
    run = import_findings.interpret(outcome, rules.modules, plan.timeout, manual_command(plan, given))
    know = process_map.identify_unseen if container else process_map.identify
    mapped = [import_checks.MappedLibrary(step, library) for step, library in process_map.libraries(run.maps, know)]
    recorded = static.of(mapped) if static else ()
    paths = PathsElsewhere() if container else Paths()
    verdict = import_checks.check_mapped(mapped, rules, recorded, _identities(recorded), paths)
    wrong = import_findings.wrong_values(run, rules.expect)
    release = import_record.find_release(params["record"]) if params.get("record") else "/"
    record = import_record.as_record(
        release, params["python"], run.version, rules.modules, mapped, run.values, verdict.allowed, scratch
    )
    result: dict[str, Any] = {
        "mapped": [entry.as_result() for entry in mapped], "reported": run.values, "wrong_values": wrong,
        "import_errors": list(run.errors), "allowed": list(verdict.allowed), "unused_allow": list(verdict.unused),
        "python_version": run.version, "seconds": outcome.seconds,
    }
    for kind in (import_checks.MISPLACED, import_checks.DUPLICATES, import_checks.FORBIDDEN):
        result[kind] = [finding.as_result() for finding in verdict.findings if finding.kind == kind]
    return Report(result, record, _failure(result, verdict.findings), run.absent)


def manual_command(plan: import_runner.Plan, given: Mapping[str, Any]) -> str:
    """Write a command that does the same imports in the same environment."""
    names = sorted({*given, "PATH", "LANG", "PYTHONDONTWRITEBYTECODE"} & set(plan.environment))
    words = ["env", "-i", "HOME=/nonexistent", *("%s=%s" % (name, plan.environment[name]) for name in names)]
    words += [plan.python, "-X", "faulthandler", "-s", "-c", "; ".join("import " + name for name in plan.modules)]
    return " ".join(shlex.quote(word) for word in words)


def _identities(recorded: Sequence[import_checks.Recorded]) -> dict[bytes, process_map.Identity]:
    found = {}
    for path in {edge.path for edge in recorded}:
        with contextlib.suppress(OSError):
            found[path] = process_map.identity_of(os.stat(path))
    return found


def _failure(result: Mapping[str, Any], findings: Sequence[import_checks.Finding]) -> StackError | None:
    """Join all that is wrong to one failure; None where nothing is."""
    wrong = [
        *((import_findings.sentence_of_error(entry), entry["remedy"]) for entry in result["import_errors"]),
        *((import_findings.sentence_of_value(entry), entry["remedy"]) for entry in result["wrong_values"]),
        *((finding.sentence, finding.remedy) for finding in findings),
    ]
    if not wrong:
        return None
    message = " ".join(sentence for sentence, _remedy in wrong[:LISTED_SENTENCES])
    if len(wrong) > LISTED_SENTENCES:
        message += " And %d more, see the result." % (len(wrong) - LISTED_SENTENCES)
    return StackError(message, "verify", wrong[0][1], **result)

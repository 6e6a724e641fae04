# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the record of a pair sweep, and decide whether the last one still answers."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.errors import StackError
from ..core.files import write_atomic
from ..ranks import sweep_levels, sweep_repeat
from . import sweep_diagnosis
from .failures import Failure
from .login import Account, account_gaps
from .output import (
    JobOutput,
    last_lines,
    parse_output,
    rank_name,
    readable,
)
from .records import Files, changed_keys
from .sweep_results import MAX_TOLD, SweepResults

RESUME = "Run this again: it goes on where this one has ended."

REMEDIES = {
    "incomplete": RESUME,
    "pairs": "Look into the log, and at the network between these nodes; run this again: it measures what is missing.",
    "slow_nodes": "Take these nodes out of the partition, look at their links and counters (node_health), then run this"
                  " again.",
    "slow_links": "Look at cables, ports and routes between these nodes, then run this again.",
    "timeout": RESUME + " If no round was finished, look into the log, or raise acceptance_sweep_timeout.",
    "nodes": "Have acceptance_sweep_launcher spread the ranks with {nodes} and {per_node}, in a job of as many nodes.",
}
"""Remedies by the check that failed; for others see :data:`.failures.REMEDIES`."""


def parse_rule(thresholds: Mapping[str, Any]) -> sweep_levels.Rule:
    """Parse what counts as slow, as a site writes it; raise StackError where it cannot be used."""
    remedy = "Correct acceptance_sweep_thresholds."
    known = sweep_levels.Rule._fields
    unknown = sorted(set(thresholds).difference(known))
    if unknown:
        raise StackError(
            "thresholds has the key %s; known are %s." % (unknown[0], ", ".join(known)), "thresholds", remedy)
    try:
        given: dict[str, Any] = {
            key: int(value) if key == "repeats" else float(value) for key, value in thresholds.items()}
        made = sweep_levels.Rule(**given)
    except (TypeError, ValueError):
        raise StackError("thresholds is %r; its values are numbers." % (thresholds,), "thresholds", remedy) from None
    if not 0 < made.slow <= made.suspect < 1 or not 0 < made.nearly_all <= 1 or made.repeats < sweep_repeat.MIN_REPEATS:
        raise StackError(
            "thresholds are shares below 1, slow at most suspect, with at least %d repeats." % sweep_repeat.MIN_REPEATS,
            "thresholds", remedy)
    return made


def reason_to_run(last: Mapping[str, Any] | None, question: Mapping[str, Any], again: bool) -> str:
    """Explain why a sweep has to run, as a sentence's end; empty where the record answers the question."""
    if last is None:
        return "there is no sweep with this release yet"
    if again and last.get("complete"):
        return "it was asked for again"
    if last.get("subject") != question["subject"]:
        return "the last sweep was with another state of this release"
    changed = changed_keys(last.get("question") or {}, recorded_question(question), str(last.get("through")))
    if changed:
        return "the site now asks for something else: %s" % ", ".join(changed)
    if not last.get("complete"):
        return "the last sweep ended after %d of %d rounds" % (last.get("rounds_done", 0), last.get("rounds", 0))
    return "" if last.get("passed") is True else "the last sweep did not pass"


def resume_data(last: Mapping[str, Any] | None, question: Mapping[str, Any]) -> dict[str, Any]:
    """Select what of the last sweep is not measured again, if that ended early and asked the same."""
    if last is None or last.get("complete") or not last.get("hosts"):
        return {}
    if last.get("subject") != question["subject"] or changed_keys(
            last.get("question") or {}, recorded_question(question), str(last.get("through"))):
        return {}
    return {key: last[key] for key in ("hosts", "per_node", "measured", "repeated", "unanswered")}


def _list_failures(
    question: Mapping[str, Any], job_output: JobOutput, joined: SweepResults, complete: bool
) -> list[Failure]:
    """List what is wrong beside slow nodes and links; what explains most first."""
    found = [Failure(*problem) for problem in job_output.problems]
    how_far = "%d of %d rounds are done" % (joined.done, len(joined.rounds)) if joined.rounds else "no round has begun"
    if job_output.event("timeout") is not None:
        busy = [stage for stage in job_output.stages.values() if stage["stage"].startswith(("round ", "again "))]
        where = ["%s is in %s" % (rank_name(stage), stage["stage"]) for stage in busy[:MAX_TOLD]]
        if not where and joined.unanswered:
            one, other = (joined.hosts[node] for node in joined.unanswered[0][:2])
            more = " and %d more" % (len(joined.unanswered) - 1) if len(joined.unanswered) > 1 else ""
            where = ["no answer from the pair %s and %s%s" % (one, other, more)]
        message = "it did not finish within %s s: %s" % (job_output.event("timeout"), "; ".join([how_far, *where]))
        found.append(Failure("timeout", message))
    refused = [report for report in job_output.reports if report.get("error")]
    # All ranks find the same; and when one leaves, the others lose their connections.
    refused.sort(key=lambda report: "has left" in report["error"] or "ConnectionReset" in report["error"])
    if refused:
        found.append(Failure("ranks", "%s: %s" % (rank_name(refused[0]), refused[0]["error"])))
    found += [Failure("pairs", sentence) for sentence in joined.failed_pairs()]
    if joined.hosts and len(joined.hosts) != question["nodes"]:
        found.append(Failure("nodes", "%d nodes were asked for, and the ranks ran on %d: %s" % (
            question["nodes"], len(joined.hosts), ", ".join(joined.hosts))))
    if not complete and not found:
        text = how_far if joined.done < len(joined.rounds) or not joined.rounds else (
            "all pairs are measured, but not all suspects a second time")
        found.append(Failure("incomplete", "it ended early: %s" % text))
    return [failure._replace(advice=REMEDIES.get(failure.check, "")) for failure in dict.fromkeys(found)]


def conclude(
    files: Files, question: Mapping[str, Any], account: Account, output: str, started: str, seconds: float
) -> dict[str, Any]:
    """Judge a sweep that has ended, write its record, and return it where all was measured and nothing is slow."""
    job_output = parse_output(output)
    asked = question["sweep"]
    joined = SweepResults(asked.get("known") or {}, job_output)
    seen = sweep_levels.analyse(len(joined.hosts), joined.measured, parse_rule(asked["rule"]))
    complete = joined.complete(seen)
    diagnosis = sweep_diagnosis.diagnose(joined.hosts, seen, joined.repeated)
    failures = _list_failures(question, job_output, joined, complete)
    for kind, named in (("slow_nodes", diagnosis.slow_nodes), ("slow_links", diagnosis.slow_links)):
        failures += [Failure(kind, entry["evidence"].rstrip("."), REMEDIES[kind]) for entry in named]
    record = {
        "schema": 1, "passed": not failures, "complete": complete, "subject": question["subject"], "user": account.name,
        "ordinary_user": account.other, "through": job_output.event("through") or "", "module": question["module"],
        "launcher": question["launcher"], "hosts": joined.hosts, "per_node": joined.per_node,
        "backend": asked["backend"], "operation": asked["operation"], "bytes": asked["bytes"],
        "rounds": len(joined.rounds), "rounds_done": joined.done, "resumed": joined.resumed,
        "measured": joined.measured, "repeated": joined.repeated, "unanswered": joined.unanswered,
        **diagnosis._asdict(), "failures": [failure.as_record() for failure in failures],
        "question": recorded_question(question), "started": started, "seconds": seconds,
    }
    record["not_checked"] = account_gaps(account) + diagnosis.not_checked
    write_atomic(files.log, readable(output).encode("utf-8"))
    files.add(record)
    if failures:
        only_slow = all(failure.check in ("slow_nodes", "slow_links") for failure in failures)
        raise files.error(
            "pair sweep with", failures, last_lines=[] if only_slow else last_lines(output),
            **describe_record(record))
    return record


def recorded_question(question: Mapping[str, Any]) -> dict[str, Any]:
    """Select what the record keeps of a question: not the subject, nor what was known before."""
    asked = {key: value for key, value in question["sweep"].items() if key != "known"}
    return {key: asked if key == "sweep" else value for key, value in question.items() if key != "subject"}


def describe_record(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe a record for a module's result."""
    if record is None:
        return {}
    keys = ("passed", "hosts", "rounds", "rounds_done", "slow_nodes", "slow_links", "undecided", "not_checked")
    named = len(record["slow_nodes"]) + len(record["slow_links"])
    verdict = "nobody is slow" if record["passed"] else "%d of %d rounds done, %d slow" % (
        record["rounds_done"], record["rounds"], named)
    summary = "%d pairs of %d nodes over %s, %d bytes, in %.1f s: %s." % (
        len(record["measured"]), len(record["hosts"]), record["backend"], record["bytes"], record["seconds"], verdict)
    return dict({key: record[key] for key in keys}, summary=summary)

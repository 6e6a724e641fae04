# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of a pair sweep: what the ranks have printed, joined with what is known from before, and judged."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..core.files import write_atomic
from ..ranks import pair_rounds as pairs
from ..ranks import sweep_levels
from ..ranks import sweep_repeat as sweep_again
from . import sweep_diagnosis
from .acceptance_failures import Failure
from .acceptance_gaps import own_account_gaps
from .login import Account
from .output import (
    Heard,
    hear,
    last_lines,
    readable,
    who,
)
from .records import Files

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
"""What to do next; for others see :data:`.acceptance_failures.REMEDIES`."""

FIRST = 3
"""Ranks and pairs whose trouble is told; of the others there is the log."""


class Joined:
    """What is known of all pairs: from before, as far as it was of the same nodes, and from this output.

    Args:
        known: ``hosts``, ``measured``, ``repeated`` and ``unanswered`` of an earlier sweep that has ended early, or
            nothing.
        heard: what came out of the job.
    """

    def __init__(self, known: Mapping[str, Any], heard: Heard) -> None:
        begun = (heard.messages.get("sweep") or [{}])[0]
        before = list(known.get("hosts") or [])
        self.hosts: list[str] = begun.get("hosts") or before
        self.per_node: int = begun.get("per_node") or known.get("per_node", 0)
        measured, self.repeated, late = (
            pairs.carried(known.get(key, []), before, self.hosts) for key in ("measured", "repeated", "unanswered")
        )
        self.resumed = bool(measured)
        values = {(one, other): value for one, other, value in measured}
        late_times = {(one, other): times for one, other, times in late}
        begun_pairs: set[tuple[int, int]] = set()
        self.troubles: dict[tuple[int, int], str] = {}
        # Every message is printed twice.
        for kind in ("begun", "round", "again"):
            for message in {message["number"]: message for message in heard.messages.get(kind, [])}.values():
                rows = [(row[0], row[1]) for row in [*message["pairs"], *message.get("troubles", [])]]
                if kind == "begun":
                    if message["kind"] == "round":
                        begun_pairs.update(rows)
                    continue
                begun_pairs.difference_update(rows)
                self.troubles.update({(one, other): text for one, other, text in message["troubles"]})
                if kind == "round":
                    values.update({(one, other): value for one, other, value in message["pairs"]})
                else:
                    self.repeated += message["pairs"]
        self.measured = [[*pair, value] for pair, value in sorted(values.items())]
        late_times.update({pair: late_times.get(pair, 0) + 1 for pair in begun_pairs})
        self.unanswered = [[*pair, times] for pair, times in sorted(late_times.items()) if pair not in values]
        self.rounds = pairs.schedule(len(self.hosts)) if len(self.hosts) > 1 else []
        left = pairs.missing(self.rounds, list(values))
        self.done = len(self.rounds) - len(left)

    def failed_pairs(self) -> list[str]:
        """A sentence for each node of which no pair could be measured, and for the first other pairs."""
        measured = {node for one, other, _value in self.measured for node in (one, other)}
        sentences, told = [], set()
        for node, host in enumerate(self.hosts):
            own = [pair for pair in self.troubles if node in pair]
            if len(own) > 1 and node not in measured:
                told.update(own)
                sentences.append("%s: all its %d pairs failed; %s" % (host, len(own), self._told(own[0])))
        others = [pair for pair in self.troubles if pair not in told]
        sentences += [self._told(pair) for pair in others[:FIRST]]
        if len(others) > FIRST:
            sentences.append("%d more pairs failed" % (len(others) - FIRST))
        return sentences

    def _told(self, pair: tuple[int, int]) -> str:
        return "%s and %s: %s" % (self.hosts[pair[0]], self.hosts[pair[1]], self.troubles[pair])

    def complete(self, seen: sweep_levels.Look | None) -> bool:
        """Whether nothing is left to measure."""
        return bool(self.rounds) and self.done == len(self.rounds) and not sweep_again.again(seen, self.repeated)


def rule(thresholds: Mapping[str, Any]) -> sweep_levels.Rule:
    """What counts as slow, from what a site says.

    Raises:
        StackError: it cannot be used.
    """
    remedy = "Correct acceptance_sweep_thresholds."
    known = sweep_levels.Rule._fields
    unknown = sorted(set(thresholds).difference(known))
    if unknown:
        raise StackError(
            "thresholds has the key %s; known are %s." % (unknown[0], ", ".join(known)), "thresholds", remedy
        )
    try:
        given: dict[str, Any] = {
            key: int(value) if key == "repeats" else float(value) for key, value in thresholds.items()
        }
        made = sweep_levels.Rule(**given)
    except (TypeError, ValueError):
        raise StackError("thresholds is %r; its values are numbers." % (thresholds,), "thresholds", remedy) from None
    if not 0 < made.slow <= made.suspect < 1 or not 0 < made.nearly_all <= 1 or made.repeats < sweep_again.LEAST:
        raise StackError(
            "thresholds are shares below 1, slow at most suspect, with at least %d repeats." % sweep_again.LEAST,
            "thresholds", remedy,
        )
    return made


def reason_to_run(last: Mapping[str, Any] | None, question: Mapping[str, Any], again: bool) -> str:
    """Why a sweep has to run, as a sentence's end; empty where the record answers the question.

    Args:
        last: the last record, or None.
        question: what would be asked now, with ``subject``.
        again: whether the operator wants it though it is complete.
    """
    if last is None:
        return "there is no sweep with this release yet"
    if again and last.get("complete"):
        return "it was asked for again"
    if last.get("subject") != question["subject"]:
        return "the last sweep was with another state of this release"
    answered, asked = last.get("question") or {}, question_of(question)
    changed = sorted(key for key in asked if answered.get(key) != asked[key])
    if changed:
        return "the site now asks for something else: %s" % ", ".join(changed)
    if not last.get("complete"):
        return "the last sweep ended after %d of %d rounds" % (last.get("rounds_done", 0), last.get("rounds", 0))
    return "" if last.get("passed") is True else "the last sweep did not pass"


def known(last: Mapping[str, Any] | None, question: Mapping[str, Any]) -> dict[str, Any]:
    """What of the last sweep need not be measured again: all of one that has ended early and asked the same."""
    if last is None or last.get("complete") or not last.get("hosts"):
        return {}
    if last.get("subject") != question["subject"] or last.get("question") != question_of(question):
        return {}
    return {key: last[key] for key in ("hosts", "per_node", "measured", "repeated", "unanswered")}


def _failures(question: Mapping[str, Any], heard: Heard, joined: Joined, complete: bool) -> list[Failure]:
    """What is wrong, but for slow nodes and links; what explains most first."""
    found = []
    for name, text in heard.events:
        if name == "problem":
            check, _space, message = text.partition(" ")
            found.append(Failure(check, message))
    how_far = "%d of %d rounds are done" % (joined.done, len(joined.rounds)) if joined.rounds else "no round has begun"
    if heard.event("timeout") is not None:
        busy = [stage for stage in heard.stages.values() if stage["stage"].startswith(("round ", "again "))]
        where = ["%s is in %s" % (who(stage), stage["stage"]) for stage in busy[:FIRST]]
        if not where and joined.unanswered:
            one, other = (joined.hosts[node] for node in joined.unanswered[0][:2])
            more = " and %d more" % (len(joined.unanswered) - 1) if len(joined.unanswered) > 1 else ""
            where = ["no answer from the pair %s and %s%s" % (one, other, more)]
        message = "it did not finish within %s s: %s" % (heard.event("timeout"), "; ".join([how_far, *where]))
        found.append(Failure("timeout", message))
    refused = [report for report in heard.reports if report.get("error")]
    # All ranks find the same; and when one leaves, the others lose their connections.
    refused.sort(key=lambda report: "has left" in report["error"] or "ConnectionReset" in report["error"])
    if refused:
        found.append(Failure("ranks", "%s: %s" % (who(refused[0]), refused[0]["error"])))
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
    """Judge a sweep that has ended, and write its record.

    Args:
        files: where the records are.
        question: what was asked, with what was known before as ``known`` in its ``sweep``.
        account: who ran the ranks.
        output: what they printed.
        started: their begin in UTC.
        seconds: the sweep's length.

    Returns:
        The record of a sweep that has measured all and found nothing slow.

    Raises:
        StackError: it did not, or it found something.
        OSError: as the system reports it.
    """
    heard = hear(output)
    asked = question["sweep"]
    joined = Joined(asked.get("known") or {}, heard)
    seen = sweep_levels.look(len(joined.hosts), joined.measured, rule(asked["rule"]))
    complete = joined.complete(seen)
    diagnosis = sweep_diagnosis.diagnose(joined.hosts, seen, joined.repeated)
    failures = _failures(question, heard, joined, complete)
    for kind, named in (("slow_nodes", diagnosis.slow_nodes), ("slow_links", diagnosis.slow_links)):
        failures += [Failure(kind, entry["evidence"].rstrip("."), REMEDIES[kind]) for entry in named]
    gaps = own_account_gaps(account.name, account.uid, account.name if account.other else "")
    record = {
        "schema": 1,
        "passed": not failures,
        "complete": complete,
        "subject": question["subject"],
        "user": account.name,
        "ordinary_user": account.other,
        "through": heard.event("through") or "",
        "module": question["module"],
        "launcher": question["launcher"],
        "hosts": joined.hosts,
        "per_node": joined.per_node,
        "backend": asked["backend"],
        "operation": asked["operation"],
        "bytes": asked["bytes"],
        "rounds": len(joined.rounds),
        "rounds_done": joined.done,
        "resumed": joined.resumed,
        "measured": joined.measured,
        "repeated": joined.repeated,
        "unanswered": joined.unanswered,
        **diagnosis._asdict(),
        "failures": [
            {"check": failure.check, "message": failure.message, "remedy": failure.remedy} for failure in failures
        ],
        "question": question_of(question),
        "started": started,
        "seconds": seconds,
    }
    record["not_checked"] = gaps + record["not_checked"]
    write_atomic(files.log, readable(output).encode("utf-8"))
    files.add(record)
    if failures:
        raise _refusal(files, record, failures, last_lines(output))
    return record


def question_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """A question as the record keeps it: without the subject, and without what was known before."""
    asked = {key: value for key, value in question["sweep"].items() if key != "known"}
    return {key: asked if key == "sweep" else value for key, value in question.items() if key != "subject"}


def _refusal(files: Files, record: Mapping[str, Any], failures: Sequence[Failure], last: list[str]) -> StackError:
    """What the play says of a sweep that has not passed."""
    first = failures[0]
    named = [failure for failure in failures if failure.check in ("slow_nodes", "slow_links")]
    more = " (and %d more in the record)" % (len(failures) - 1) if len(failures) > 1 else ""
    message = "The pair sweep with %s failed at %s: %s%s." % (
        os.path.basename(files.state), first.check, first.message.rstrip("."), more)
    remedy = "%s Record: %s, log: %s." % (first.remedy, files.record, files.log)
    return StackError(
        message, first.check, remedy, changed=True, record=files.record, log=files.log,
        failures=[failure.message for failure in failures], last_lines=[] if named and len(named) == len(failures)
        else last, **outcome(record),
    )


def outcome(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a result says about a record."""
    if record is None:
        return {}
    keys = ("passed", "hosts", "rounds", "rounds_done", "slow_nodes", "slow_links", "undecided", "not_checked")
    named = len(record["slow_nodes"]) + len(record["slow_links"])
    verdict = "nobody is slow" if record["passed"] else "%d of %d rounds done, %d slow" % (
        record["rounds_done"], record["rounds"], named)
    summary = "%d pairs of %d nodes over %s, %d bytes, in %.1f s: %s." % (
        len(record["measured"]), len(record["hosts"]), record["backend"], record["bytes"], record["seconds"], verdict)
    return dict({key: record[key] for key in keys}, summary=summary)

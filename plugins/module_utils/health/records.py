# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the record of the nodes' health, and decide whether the last one still answers."""

from __future__ import annotations

import collections
import os
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..acceptance.login import Account
from ..acceptance.output import (
    JobOutput,
    last_lines,
    parse_output,
    readable,
)
from ..acceptance.records import (
    Files,
    changed_keys,
    writing_records,
)
from ..acceptance.status import acceptance_state
from ..core.errors import StackError
from ..core.files import read_json, write_atomic
from .checks import check_node
from .facts import read_facts
from .nodes import compare_nodes
from .summary import MAX_SENTENCES, describe_record, format_finding, list_findings, list_hosts
from .thresholds import FAILURE, Finding, failure, warning

STEM = "node_health"
"""Beginning of the names of the records, and name of the step."""


class Node(NamedTuple):
    """Hold a node that has answered, with its findings."""

    facts: dict[str, Any]
    findings: list[Finding]
    not_seen: list[str]


def reason_to_run(last: Mapping[str, Any] | None, question: Mapping[str, Any], again: bool, accepted: bool) -> str:
    """Explain why the nodes have to be checked, as a sentence's end; empty where the record answers.

    A node may fail on any day. A check therefore only holds for a release that was accepted after it, which is not
    accepted again.
    """
    if last is None:
        return "the nodes were not looked at yet"
    if again:
        return "it was asked for again"
    if last.get("passed") is not True or not isinstance(last.get("question"), dict):
        return "the last look found failures"
    if not question["subject"] or last.get("subject") != question["subject"]:
        return "the last look was for another state of this release"
    changed = changed_keys(last["question"], question, str(question.get("module_system")))
    if changed:
        return "the site now asks for something else: %s" % ", ".join(changed)
    return "" if accepted else "the release is not accepted yet, and nodes change"


def is_accepted(root: str, release: str, subject: str, partition: str = "") -> bool:
    """Tell whether that state of the release has passed its acceptance."""
    return bool(subject) and acceptance_state(root, release, subject, partition).state == "passed"


def conclude(
    files: Files, question: Mapping[str, Any], account: Account, output: str, started: str, seconds: float
) -> dict[str, Any]:
    """Judge a check that has ended, write its record, and return it where no finding is a failure."""
    job_output = parse_output(output)
    nodes, troubles = check_answers(job_output.messages.get("node", []), question)
    incomplete = len({node.facts["host"] for node in nodes}) < question["nodes"]
    record = make_record(
        nodes, [*_check_job(job_output, incomplete), *troubles], question, account.name, started, seconds)
    write_atomic(files.log, readable(output).encode("utf-8"))
    return write_record(files, record, last_lines(output))


def write_record(files: Files, record: dict[str, Any], lines: Sequence[str] = ()) -> dict[str, Any]:
    """Write a record, and return it, or raise its failures."""
    with writing_records(files):
        files.add(record)
    raise_failures(record, files, lines)
    return record


def raise_failures(record: Mapping[str, Any], files: Files, lines: Sequence[str] = ()) -> None:
    """Raise the failures of a record."""
    bad = [finding for finding in list_findings(record) if finding["severity"] == FAILURE]
    if not bad:
        return
    said = " ".join(format_finding(finding) for finding in bad[:MAX_SENTENCES])
    more = " There are %d more." % (len(bad) - MAX_SENTENCES) if len(bad) > MAX_SENTENCES else ""
    raise StackError(
        "These nodes%s are not fit to accept release %s on. %s%s" % (
            " of partition %s" % files.partition if files.partition else "", files.release, said, more),
        bad[0]["check"], "%s All findings are in %s." % (bad[0]["remedy"] or "Have them looked at.", files.record),
        **dict(describe_record(record), changed=False, record=files.record, log=files.log,
               failures=[format_finding(finding) for finding in bad], last_lines=list(lines)))


def check_answers(collected: Iterable[Any], question: Mapping[str, Any]) -> tuple[list[Node], list[Finding]]:
    """Check the nodes that have answered; also return findings about unreadable answers."""
    nodes, troubles = [], []
    for raw in collected:
        try:
            facts = read_facts(raw)
            judged = check_node(facts, question["expected"], question["thresholds"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            host = raw.get("host", "") if isinstance(raw, dict) else ""
            troubles.append(failure(
                "collector", str(host) or "a node", "What the node answered cannot be read: %s." % error,
                remedy="Run the program of this very release of the collection there."))
        else:
            nodes.append(Node(facts, judged.findings, judged.not_seen))
    nodes.sort(key=lambda node: node.facts["host"])
    return nodes, troubles


def read_answers(path: str) -> list[Any]:
    """Read what the program has left in a directory, one file for each node."""
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(".json"))
        found = [read_json(os.path.join(path, name)) for name in names]
    except (OSError, ValueError) as error:
        raise StackError(
            "What was recorded of the nodes in %s cannot be read: %s." % (path, error), "recorded",
            "Give the directory with what the program printed on each node, one file .json each.", path) from error
    if not found:
        raise StackError(
            "There is no file .json in %s." % path, "recorded", "Run bin/node-health on each node first.", path)
    return found


def _check_job(job_output: JobOutput, incomplete: bool) -> list[Finding]:
    """Find what went wrong with the job itself."""
    found = [failure("job", "job", "%s." % message.rstrip("."), remedy="Correct the site's data for it.")
             for _check, message in job_output.problems]
    if job_output.event("timeout") is not None:
        found.append(failure("job", "job", "The look did not end within %s s." % job_output.event("timeout"),
                             remedy="Where it waited in a queue, raise node_health_timeout."))
    status = job_output.event("exit")
    if status != "0" and not found:
        said = "The launcher ended with %s." % ("exit status " + status if status is not None else "no exit status")
        found.append((failure if incomplete else warning)("job", "job", said, remedy="Look at the end of the log."))
    return found


def make_record(
    nodes: Sequence[Node], troubles: Sequence[Finding], question: Mapping[str, Any], user: str, started: str,
    seconds: float,
) -> dict[str, Any]:
    """Make the record of one check; ``troubles`` are findings about the check itself."""
    across = [*troubles, *compare_nodes([node.facts for node in nodes], question["nodes"], question["thresholds"])]
    everything = [*across, *(finding for node in nodes for finding in node.findings)]
    hosts = [node.facts["host"] for node in nodes]
    others = "Another job, that of the acceptance too, may get other nodes than %s." % list_hosts(hosts, "these %d")
    return {
        "schema": 1, "passed": not any(finding.severity == FAILURE for finding in everything),
        "subject": question["subject"], "user": user,
        "nodes": [
            {"host": node.facts["host"], "facts": shorten_facts(node.facts), "not_seen": node.not_seen,
             "findings": [finding._asdict() for finding in node.findings]}
            for node in nodes
        ],
        "findings": [finding._asdict() for finding in across], "not_checked": [others] if nodes else [],
        "question": {key: value for key, value in question.items() if key != "subject"},
        "started": started, "seconds": seconds,
    }


def shorten_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten facts for the record: without the kernel's log and each link of each GPU."""
    log = {key: facts["log"][key] for key in ("source", "tried", "total", "left_out", "since")}
    gpus = []
    for gpu in facts["gpus"]:
        speeds = [link["speed"] for link in gpu["nvlinks"] if link["speed"] is not None]
        errors: collections.Counter[str] = collections.Counter()
        for link in gpu["nvlinks"]:
            errors.update(link["errors"])
        gpus.append(dict(gpu, nvlinks={
            "links": len(gpu["nvlinks"]), "up": len(speeds), "slowest": min(speeds, default=None),
            "errors": dict(errors)}))
    pci = [device for device in facts["pci"] if device["kind"] in ("gpu", "fabric")]
    return dict(facts, gpus=gpus, pci=pci, log=dict(log, xids=len(facts["log"]["xids"])))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of a look at a release's nodes: what is written in the end, what it says, and whether it still answers."""

from __future__ import annotations

import json
import os
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..acceptance.login import Account
from ..acceptance.output import (
    Heard,
    hear,
    last_lines,
    readable,
)
from ..acceptance.records import (
    Files,
    keeping_records,
    standing,
)
from ..core.errors import StackError
from ..core.files import write_atomic
from . import facts as health_facts
from .checks import judge
from .health_results import Finding, failure, warning
from .nodes import judge_fleet
from .thresholds import FAILURE, SEVERITIES, WARNING

STEM = "node_health"
"""What the names of the records begin with, and the name of the step."""

SENTENCES = 6
"""Failures in the message of a failed task; all are in the record."""


class Node(NamedTuple):
    """One node that has answered."""

    facts: dict[str, Any]
    findings: list[Finding]
    not_seen: list[str]


def reason_to_look(
    last: Mapping[str, Any] | None, question: Mapping[str, Any], again: bool, accepted: bool
) -> str:
    """Why the nodes have to be looked at, as a sentence's end; empty where the record answers.

    A node may fall ill on any day. A look therefore only holds for a release that was accepted after it, which is not
    accepted again.

    Args:
        last: the last record, or None.
        question: what would be asked now, with ``subject``.
        again: whether the operator wants it in any case.
        accepted: whether that state of the release has passed its acceptance.
    """
    if last is None:
        return "the nodes were not looked at yet"
    if again:
        return "it was asked for again"
    if last.get("passed") is not True or not isinstance(last.get("question"), dict):
        return "the last look found failures"
    if not question["subject"] or last.get("subject") != question["subject"]:
        return "the last look was for another state of this release"
    changed = sorted(key for key in question if key != "subject" and last["question"].get(key) != question[key])
    if changed:
        return "the site now asks for something else: %s" % ", ".join(changed)
    return "" if accepted else "the release is not accepted yet, and nodes change"


def accepted(root: str, release: str, subject: str) -> bool:
    """Whether that state of the release has passed its acceptance.

    Raises:
        StackError: a record cannot be read.
    """
    return bool(subject) and standing(root, release, subject).state == "passed"


def conclude(
    files: Files, question: Mapping[str, Any], account: Account, output: str, started: str, seconds: float
) -> dict[str, Any]:
    """Judge a look that has ended, and write its record.

    Args:
        files: where the records are.
        question: what was asked: ``nodes``, ``expected``, ``thresholds``, ``subject`` and others.
        account: who looked.
        output: what the nodes printed.
        started: its begin in UTC.
        seconds: its length.

    Returns:
        The record, where no finding is a failure.

    Raises:
        StackError: one is.
        OSError: as the system reports it.
    """
    heard = hear(output)
    nodes, troubles = read(heard.messages.get("node", []), question)
    record = compose(
        nodes, [*_job(heard, len({node.facts["host"] for node in nodes}) < question["nodes"]), *troubles], question,
        account.name, started, seconds,
    )
    write_atomic(files.log, readable(output).encode("utf-8"))
    return kept(files, record, last_lines(output))


def kept(files: Files, record: dict[str, Any], lines: Sequence[str] = ()) -> dict[str, Any]:
    """Write a record.

    Args:
        files: where.
        record: from :func:`compose`.
        lines: the end of what the job itself printed.

    Returns:
        It, where no finding is a failure.

    Raises:
        StackError: one is, or it cannot be written.
    """
    with keeping_records(files):
        files.add(record)
    refuse(record, files, lines)
    return record


def refuse(record: Mapping[str, Any], files: Files, lines: Sequence[str] = ()) -> None:
    """Raise the failures of a record.

    Raises:
        StackError: there is one.
    """
    bad = [finding for finding in flat(record) if finding["severity"] == FAILURE]
    if not bad:
        return
    said = " ".join(sentence(finding) for finding in bad[:SENTENCES])
    more = " There are %d more." % (len(bad) - SENTENCES) if len(bad) > SENTENCES else ""
    raise StackError(
        "These nodes are not fit to accept release %s on. %s%s" % (os.path.basename(files.state), said, more),
        bad[0]["check"], "%s All findings are in %s." % (bad[0]["remedy"] or "Have them looked at.", files.record),
        **dict(described(record), changed=False, record=files.record, log=files.log,
               failures=[sentence(finding) for finding in bad], last_lines=list(lines)),
    )


def read(collected: Iterable[Any], question: Mapping[str, Any]) -> tuple[list[Node], list[Finding]]:
    """The nodes that have answered, judged, and findings about answers that cannot be read.

    Args:
        collected: what the program printed on each node.
        question: ``expected`` and ``thresholds``.
    """
    nodes, troubles = [], []
    for raw in collected:
        try:
            facts = health_facts.of(raw)
            judged = judge(facts, question["expected"], question["thresholds"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            host = raw.get("host", "") if isinstance(raw, dict) else ""
            troubles.append(failure(
                "collector", str(host) or "a node", "What the node answered cannot be read: %s." % error,
                remedy="Run the program of this very release of the collection there.",
            ))
        else:
            nodes.append(Node(facts, judged.findings, judged.not_seen))
    nodes.sort(key=lambda node: node.facts["host"])
    return nodes, troubles


def read_directory(path: str) -> list[Any]:
    """What the program has left in a directory, one file for each node.

    Raises:
        StackError: there is none, or one cannot be read.
    """
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(".json"))
        found = []
        for name in names:
            with open(os.path.join(path, name), encoding="utf-8") as stream:
                found.append(json.load(stream))
    except (OSError, ValueError) as error:
        raise StackError(
            "What was recorded of the nodes in %s cannot be read: %s." % (path, error), "recorded",
            "Give the directory with what the program printed on each node, one file .json each.", path,
        ) from error
    if not found:
        raise StackError(
            "There is no file .json in %s." % path, "recorded", "Run bin/node-health on each node first.", path
        )
    return found


def _job(heard: Heard, incomplete: bool) -> list[Finding]:
    """What went wrong with the job itself."""
    found = [
        failure("job", "job", "%s." % text.partition(" ")[2].rstrip("."), remedy="Correct the site's data for it.")
        for name, text in heard.events if name == "problem"
    ]
    if heard.event("timeout") is not None:
        found.append(failure("job", "job", "The look did not end within %s s." % heard.event("timeout"),
                             remedy="Where it waited in a queue, raise node_health_timeout."))
    status = heard.event("exit")
    if status != "0" and not found:
        said = "The launcher ended with %s." % ("exit status " + status if status is not None else "no exit status")
        found.append((failure if incomplete else warning)("job", "job", said, remedy="Look at the end of the log."))
    return found


def compose(
    nodes: Sequence[Node], troubles: Sequence[Finding], question: Mapping[str, Any], user: str, started: str,
    seconds: float,
) -> dict[str, Any]:
    """The record of one look.

    Args:
        nodes: those that have answered.
        troubles: findings about the look itself.
        question: what was asked.
        user: the account that looked.
        started: its begin in UTC.
        seconds: its length.
    """
    across = [*troubles, *judge_fleet([node.facts for node in nodes], question["nodes"], question["thresholds"])]
    everything = [*across, *(finding for node in nodes for finding in node.findings)]
    hosts = [node.facts["host"] for node in nodes]
    others = "Another job, that of the acceptance too, may get other nodes than %s." % _some(hosts, "these %d")
    return {
        "schema": 1, "passed": not any(finding.severity == FAILURE for finding in everything),
        "subject": question["subject"], "user": user,
        "nodes": [
            {"host": node.facts["host"], "facts": in_short(node.facts), "not_seen": node.not_seen,
             "findings": [finding._asdict() for finding in node.findings]}
            for node in nodes
        ],
        "findings": [finding._asdict() for finding in across], "not_checked": [others] if nodes else [],
        "question": {key: value for key, value in question.items() if key != "subject"},
        "started": started, "seconds": seconds,
    }


def in_short(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as the record keeps them: without the kernel's log and each link of each GPU."""
    log = {key: facts["log"][key] for key in ("source", "tried", "total", "left_out", "since")}
    gpus = []
    for gpu in facts["gpus"]:
        speeds = [link["speed"] for link in gpu["nvlinks"] if link["speed"] is not None]
        errors: dict[str, int] = {}
        for link in gpu["nvlinks"]:
            for name, count in link["errors"].items():
                errors[name] = errors.get(name, 0) + count
        slowest = min(speeds, default=None)
        links = {"links": len(gpu["nvlinks"]), "up": len(speeds), "slowest": slowest, "errors": errors}
        gpus.append(dict(gpu, nvlinks=links))
    pci = [device for device in facts["pci"] if device["kind"] in ("gpu", "fabric")]
    return dict(facts, gpus=gpus, pci=pci, log=dict(log, xids=len(facts["log"]["xids"])))


# --- what it says ----------------------------------------------------------------------------------------------------


def flat(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All findings of a record, the worst first, each with its ``host``, which is empty for those across nodes."""
    found = [dict(finding, host="") for finding in record["findings"]]
    found += [dict(finding, host=node["host"]) for node in record["nodes"] for finding in node["findings"]]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding["severity"]))


def sentence(finding: Mapping[str, Any]) -> str:
    """A finding in one sentence, with its node and its threshold."""
    place = " ".join(filter(None, (finding["host"], finding["subject"])))
    because = ""
    if finding["source"]:
        limit = "" if finding["threshold"] is None else "threshold %s: " % finding["threshold"]
        because = " (%s%s)" % (limit, finding["source"])
    return "%s: %s%s" % (place, finding["message"].rstrip("."), because + ".")


def gaps(record: Mapping[str, Any]) -> list[str]:
    """What a look cannot have noticed: of nodes, in short, and of all together."""
    hosts: dict[str, list[str]] = {}
    for node in record["nodes"]:
        for gap in node["not_seen"]:
            hosts.setdefault(gap, []).append(node["host"])
    return [*("On %s: %s" % (_some(names, "%d nodes"), gap) for gap, names in hosts.items()), *record["not_checked"]]


def _some(hosts: Sequence[str], many: str) -> str:
    return ", ".join(hosts) if len(hosts) < 5 else many % len(hosts)


def warnings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The warnings among findings, as :func:`flat` gives them, in sentences; the first ones of them."""
    found = [sentence(finding) for finding in findings if finding["severity"] == WARNING]
    more = len(found) - SENTENCES
    return found[:SENTENCES] + (["There are %d more warnings about these nodes." % more] if more > 0 else [])


def described(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a result says about a record."""
    if record is None:
        return {}
    findings = flat(record)
    count = len(record["nodes"])
    numbers = ", ".join(
        "%d %ss" % (sum(finding["severity"] == severity for finding in findings), severity)
        for severity in SEVERITIES
    )
    return {
        "passed": record["passed"], "table": table(record), "not_checked": gaps(record), "findings": findings,
        "summary": "%s: %d node%s looked at in %.1f s; %s." % (
            "Healthy" if record["passed"] else "Not healthy", count, "" if count == 1 else "s", record["seconds"],
            numbers),
    }


def table(record: Mapping[str, Any]) -> str:
    """The nodes as aligned text."""
    rows = [("node", "gpus", "model", "driver", "nvlinks", "log", *SEVERITIES)]
    for node in record["nodes"]:
        facts = node["facts"]
        models = sorted({gpu["name"] for gpu in facts["gpus"]})
        links = sorted({str(gpu["nvlinks"]["up"]) for gpu in facts["gpus"]})
        rows.append((
            node["host"], str(len(facts["gpus"]) or facts["counts"]["amd"]), "/".join(models) or "-",
            facts["nvidia"]["driver"] or facts["nvidia"]["kernel_driver"] or "-", "/".join(links) or "-",
            "seen" if facts["log"]["source"] else "not seen",
            *(str(sum(finding["severity"] == severity for finding in node["findings"])) for severity in SEVERITIES),
        ))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe a record of the nodes' health: findings as sentences, a summary, a table. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..acceptance.verdict import align
from .thresholds import SEVERITIES, WARNING

MAX_SENTENCES = 6
"""Failures in the message of a failed task, and warnings of a successful one; all are in the record."""


def list_findings(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List all findings of a record, the worst first, with ``host``, empty for those across nodes."""
    found = [dict(finding, host="") for finding in record["findings"]]
    found += [dict(finding, host=node["host"]) for node in record["nodes"] for finding in node["findings"]]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding["severity"]))


def format_finding(finding: Mapping[str, Any]) -> str:
    """Format a finding as one sentence, with its node and its threshold."""
    place = " ".join(filter(None, (finding["host"], finding["subject"])))
    because = ""
    if finding["source"]:
        limit = "" if finding["threshold"] is None else "threshold %s: " % finding["threshold"]
        because = " (%s%s)" % (limit, finding["source"])
    return "%s: %s%s" % (place, finding["message"].rstrip("."), because + ".")


def list_gaps(record: Mapping[str, Any]) -> list[str]:
    """List what a check cannot have noticed: of nodes, in short, and of all together."""
    hosts: dict[str, list[str]] = {}
    for node in record["nodes"]:
        for gap in node["not_seen"]:
            hosts.setdefault(gap, []).append(node["host"])
    of_nodes = ["On %s: %s" % (list_hosts(names, "%d nodes"), gap) for gap, names in hosts.items()]
    return [*of_nodes, *record["not_checked"]]


def list_hosts(hosts: Sequence[str], many: str) -> str:
    return ", ".join(hosts) if len(hosts) < 5 else many % len(hosts)


def list_warnings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the first warnings as sentences, of findings as :func:`list_findings` gives them."""
    found = [format_finding(finding) for finding in findings if finding["severity"] == WARNING]
    more = len(found) - MAX_SENTENCES
    return found[:MAX_SENTENCES] + (["There are %d more warnings about these nodes." % more] if more > 0 else [])


def describe_record(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe a record for a module's result."""
    if record is None:
        return {}
    findings = list_findings(record)
    count = len(record["nodes"])
    numbers = ", ".join(
        "%d %ss" % (sum(finding["severity"] == severity for finding in findings), severity) for severity in SEVERITIES)
    return {
        "passed": record["passed"], "table": format_table(record), "not_checked": list_gaps(record),
        "findings": findings,
        "summary": "%s: %d node%s looked at in %.1f s; %s." % (
            "Healthy" if record["passed"] else "Not healthy", count, "" if count == 1 else "s", record["seconds"],
            numbers),
    }


def format_table(record: Mapping[str, Any]) -> str:
    """Format the nodes as aligned text."""
    rows = [("node", "gpus", "model", "driver", "nvlinks", "log", *SEVERITIES)]
    for node in record["nodes"]:
        facts = node["facts"]
        models = sorted({gpu["name"] for gpu in facts["gpus"]})
        links = sorted({str(gpu["nvlinks"]["up"]) for gpu in facts["gpus"]})
        rows.append((
            node["host"], str(len(facts["gpus"]) or facts["counts"]["amd"]), "/".join(models) or "-",
            facts["nvidia"]["driver"] or facts["nvidia"]["kernel_driver"] or "-", "/".join(links) or "-",
            "seen" if facts["log"]["source"] else "not seen",
            *(str(sum(finding["severity"] == severity for finding in node["findings"])) for severity in SEVERITIES)))
    return align(rows)

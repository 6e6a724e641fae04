# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the pair sweep and the health of nodes for a report. Pure.

Bandwidths are in GB/s of 10^9 bytes, sizes in bytes.
"""

from __future__ import annotations

import collections
import statistics
from typing import Any, Mapping, Sequence

from ..core.lenient_json import (
    kept,
    mapping,
    mappings,
    number,
    sequence,
    shown,
    text,
    texts,
    whole,
)
from .acceptance import describe_run, select_texts

SEVERITIES = ("failure", "warning", "remark")
"""Severities of findings about nodes, the worst first."""

KEYS = ("severity", "check", "subject", "message", "value", "threshold", "source", "remedy")
"""Keys of a finding; findings that agree in all of them are one, of several nodes."""


def describe_sweep(record: object) -> dict[str, Any] | None:
    """Describe a pair sweep; None where there is no record.

    Returns:
        beside what the record says, ``pairs``: row i has the GB/s of node i + 1 with the nodes 0 to i, null where that
        pair was not measured; and for each node the median over its pairs.
    """
    if not isinstance(record, Mapping):
        return None
    hosts = texts(record.get("hosts"))
    pairs = _arrange_pairs(sequence(record.get("measured")), len(hosts))
    slow_nodes = [
        dict(_describe_slow(entry), host=text(entry.get("host"))) for entry in mappings(record.get("slow_nodes"))
    ]
    slow_links = [
        dict(_describe_slow(entry), hosts=texts(entry.get("hosts"))) for entry in mappings(record.get("slow_links"))
    ]
    return {
        **describe_run(record), **select_texts(record, "backend", "operation"), "bytes": whole(record.get("bytes")),
        "hosts": hosts,
        "rounds": _round_count(record.get("rounds")), "rounds_done": _round_count(record.get("rounds_done")),
        "complete": record.get("complete") is not False, "pairs": pairs, "nodes": _node_medians(hosts, pairs),
        "repeated": sequence(record.get("repeated")), "slow_nodes": slow_nodes, "slow_links": slow_links,
        "undecided": [_join_texts(entry) for entry in sequence(record.get("undecided"))],
        "not_checked": texts(record.get("not_checked")),
        "problems": [
            *(select_texts(entry, "message", "remedy")
              for entry in mappings(record.get("failures")) if not text(entry.get("check")).startswith("slow_")),
            *(_slow_problem("%s is a slow node" % entry["host"], entry) for entry in slow_nodes),
            *(_slow_problem("The link between %s is slow" % " and ".join(entry["hosts"]), entry)
              for entry in slow_links),
        ],
    }


def _arrange_pairs(measured: Sequence[Any], count: int) -> list[list[float | None]]:
    """Arrange the speeds in rows as in :func:`describe_sweep`; a repeated pair has its later one."""
    pairs: list[list[float | None]] = [[None] * later for later in range(1, count)]
    for entry in measured:
        found = [number(value) for value in sequence(entry)]
        if len(found) == 3 and None not in found:
            low, high = sorted(int(value) for value in found[:2] if value is not None)
            if 0 <= low < high < count:
                pairs[high - 1][low] = found[2]
    return pairs


def _describe_slow(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"ratio": number(entry.get("ratio")), "evidence": _join_texts(entry.get("evidence"))}


def _slow_problem(what: str, entry: Mapping[str, Any]) -> dict[str, str]:
    share = "" if entry["ratio"] is None else ": %.0f %% of the others" % (100 * entry["ratio"])
    return {"message": "%s%s." % (what, share), "remedy": entry["evidence"]}


def _round_count(value: object) -> int | None:
    """Read a number of rounds, whether the record counts or lists them."""
    return len(value) if isinstance(value, (list, tuple)) else whole(value)


def _join_texts(value: object) -> str:
    return "; ".join(texts(value)) or shown(value)


def _node_medians(hosts: Sequence[str], pairs: Sequence[Sequence[float | None]]) -> list[dict[str, Any]]:
    found: list[list[float]] = [[] for _host in hosts]
    for row, speeds in enumerate(pairs):
        for column, speed in enumerate(speeds):
            if speed is not None:
                found[row + 1].append(speed)
                found[column].append(speed)
    return [
        {"host": host, "pairs": len(speeds), "median": round(statistics.median(speeds), 4) if speeds else None,
         "slowest": min(speeds) if speeds else None}
        for host, speeds in zip(hosts, found)
    ]


def describe_health(record: object) -> dict[str, Any] | None:
    """Describe the health of the nodes, equal findings once with all their nodes; None where there is no record."""
    if not isinstance(record, Mapping):
        return None
    nodes = mappings(record.get("nodes"))
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for host, finding in [
        *((text(node.get("host")), finding) for node in nodes for finding in mappings(node.get("findings"))),
        *(("", finding) for finding in mappings(record.get("findings"))),
    ]:
        row = {key: shown(finding.get(key)) for key in KEYS}
        rows.setdefault(tuple(row.values()), dict(row, hosts=[]))["hosts"] += [host] if host else []
    findings = sorted(rows.values(), key=lambda row: (_severity_rank(row), row["check"], row["hosts"]))
    return {
        **describe_run(record), "nodes": [_describe_node(node) for node in nodes], "storage": _describe_storage(nodes),
        "findings": findings, "not_checked": texts(record.get("not_checked")),
        "problems": [
            kept({"message": _describe_finding(finding), "remedy": finding["remedy"]}, "message", "remedy")
            for finding in findings if finding["severity"] == "failure"
        ],
    }


def _describe_node(node: Mapping[str, Any]) -> dict[str, Any]:
    found = [text(finding.get("severity")) for finding in mappings(node.get("findings"))]
    facts = mapping(node.get("facts"))
    gpus = mappings(facts.get("gpus"))
    links = [mapping(gpu.get("nvlinks")) for gpu in gpus]
    models = collections.Counter(text(gpu.get("name")) for gpu in gpus)
    return {
        "host": text(node.get("host")), "not_seen": texts(node.get("not_seen")),
        "counts": {severity: found.count(severity) for severity in SEVERITIES},
        "gpus": ", ".join("%d %s" % (count, name) for name, count in sorted(models.items())),
        "driver": text(mapping(facts.get("nvidia")).get("driver")),
        "vbios": sorted({text(gpu.get("vbios")) for gpu in gpus} - {""}),
        "nvlinks": {key: sum(whole(link.get(key)) or 0 for link in links) for key in ("links", "up")},
        "kernel": text(mapping(facts.get("machine")).get("kernel")),
    }


def _describe_storage(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compute the milliseconds of small-file operations by directory: the median node and the slowest."""
    times: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for node in nodes:
        for place in mappings(mapping(node.get("facts")).get("storage")):
            for operation, taken in mapping(place.get("operations")).items():
                median = number(mapping(taken).get("median"))
                if median is not None:
                    key = (text(place.get("directory")), text(place.get("kind")), str(operation))
                    times.setdefault(key, []).append((median, text(node.get("host"))))
    return [
        {"directory": key[0], "kind": key[1], "operation": key[2],
         "median": round(statistics.median(median for median, _host in found), 4),
         "slowest": {"host": max(found)[1], "median": max(found)[0]}}
        for key, found in times.items()
    ]


def _severity_rank(row: Mapping[str, Any]) -> int:
    return SEVERITIES.index(row["severity"]) if row["severity"] in SEVERITIES else 1


def _describe_finding(finding: Mapping[str, Any]) -> str:
    hosts = finding["hosts"]
    where = "" if not hosts else "%s: " % (", ".join(hosts) if len(hosts) <= 3 else "%d nodes" % len(hosts))
    return "%s%s%s" % (where, finding["subject"] + ": " if finding["subject"] else "", finding["message"])

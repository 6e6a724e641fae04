# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare nodes that should be alike, and find those that have not answered. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from .thresholds import Finding, exceeded_limit, failure, limit_finding, warning

Facts = Mapping[str, Any]

MAX_NAMED = 6
"""Largest number of nodes or GPUs that are named in one sentence."""

COMPARED = {
    "driver": ("the driver of the GPUs", "driver_versions"), "kernel_version": ("the kernel", "kernel_versions"),
    "vbios": ("the VBIOS of %s", "vbios_versions"), "firmware": ("the firmware of adapters (%s)", "firmware_versions"),
}
"""What has to be the same, with a place for the kind of device, and its threshold."""


def compare_nodes(nodes: Sequence[Facts], asked: int, thresholds: Facts) -> list[Finding]:
    """Compare the nodes, of which so many should have answered (0: nobody said)."""
    return [*_check_answers(nodes, asked), *_compare_versions(nodes, thresholds), *_compare_gpu_counts(nodes)]


def _check_answers(nodes: Sequence[Facts], asked: int) -> Iterator[Finding]:
    hosts = [node["host"] for node in nodes]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        yield failure("nodes", "nodes", "%s answered more than once: the launcher has not started one process on each "
                      "node." % _list_names(twice), remedy="Correct node_health_launcher.")
    different = len(set(hosts))
    if different < asked:
        yield failure("nodes", "nodes", "%d of %d nodes have answered%s." % (
            different, asked, ": " + _list_names(sorted(set(hosts))) if hosts else ""),
            different, asked, "node_health_nodes",
            "Look at the end of the log: a node that does not answer is no node to accept a release on.")


def _compare_versions(nodes: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Compare versions that have to be the same, and name the nodes of each."""
    versions: dict[str, dict[str, dict[str, list[str]]]] = {check: {} for check in COMPARED}

    def add(check: str, kind: str, version: str, who: str) -> None:
        if version:
            versions[check].setdefault(kind, {}).setdefault(version, []).append(who)

    for node in nodes:
        host = node["host"]
        add("driver", "", node["nvidia"]["driver"] or node["nvidia"]["kernel_driver"], host)
        add("kernel_version", "", node["machine"].get("kernel"), host)
        for gpu in node["gpus"]:
            add("vbios", gpu["name"], gpu["vbios"].upper(), "%s gpu %d" % (host, gpu["index"]))
        for network in ("infiniband", "cxi"):
            for port in node["fabric"][network]:
                add("firmware", port.get("board") or network, port["firmware"], "%s %s" % (host, port["name"]))
    for check, (what, threshold) in COMPARED.items():
        for kind, found in sorted(versions[check].items()):
            limit = exceeded_limit(thresholds, threshold, len(found))
            if limit:
                # The most frequent version first: the others are suspect.
                ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
                said = "; ".join("%s on %s" % (version, _list_names(who)) for version, who in ordered)
                subject = what.replace("%s", kind)
                message = "There are %d versions of %s: %s." % (len(found), subject, said)
                yield limit_finding(limit, check, subject, message, len(found),
                                    "Have the nodes brought to the same version, or take others.")


def _compare_gpu_counts(nodes: Sequence[Facts]) -> Iterator[Finding]:
    """Compare the numbers of GPUs."""
    counts: dict[int, list[str]] = {}
    for node in nodes:
        counts.setdefault(len(node["gpus"]) or node["counts"]["amd"], []).append(node["host"])
    if len(counts) > 1:
        ordered = sorted(counts.items(), reverse=True)
        said = "; ".join("%d on %s" % (count, _list_names(hosts)) for count, hosts in ordered)
        yield warning("gpu_count", "gpus", "The nodes do not have the same number of GPUs: %s." % said,
                      remedy="Ask for nodes of one kind.")


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (" and %d more" % more if more > 0 else "")

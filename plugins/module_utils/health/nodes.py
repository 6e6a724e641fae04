# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What differs between nodes that should be alike, and which have not answered. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from .health_results import (
    Finding,
    failure,
    limited,
    warning,
)
from .thresholds import exceeded

Facts = Mapping[str, Any]

NAMES_SHOWN = 6
"""Of nodes or GPUs in one sentence."""


def judge_fleet(nodes: Sequence[Facts], asked: int, thresholds: Facts) -> list[Finding]:
    """Compare the nodes.

    Args:
        nodes: facts of each, from ``health_facts.of``.
        asked: how many nodes there should be; 0 where nobody said.
        thresholds: ``driver_versions``, ``vbios_versions``, ``firmware_versions``, ``kernel_versions``.
    """
    return [*_answers(nodes, asked), *_versions(nodes, thresholds), *_counts(nodes)]


def _answers(nodes: Sequence[Facts], asked: int) -> Iterator[Finding]:
    hosts = [node["host"] for node in nodes]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        yield failure("nodes", "nodes", "%s answered more than once: the launcher has not started one process on each "
                      "node." % _some(twice), remedy="Correct node_health_launcher.")
    different = len(set(hosts))
    if different < asked:
        yield failure("nodes", "nodes", "%d of %d nodes have answered%s." % (
            different, asked, ": " + _some(sorted(set(hosts))) if hosts else ""), different, asked, "node_health_nodes",
            "Look at the end of the log: a node that does not answer is no node to accept a release on.")


def _versions(nodes: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Versions that have to be the same, each by who has it."""
    drivers: dict[str, list[str]] = {}
    kernels: dict[str, list[str]] = {}
    vbios: dict[str, dict[str, list[str]]] = {}
    firmware: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        driver = node["nvidia"]["driver"] or node["nvidia"]["kernel_driver"]
        if driver:
            drivers.setdefault(driver, []).append(node["host"])
        if node["machine"].get("kernel"):
            kernels.setdefault(node["machine"]["kernel"], []).append(node["host"])
        for gpu in node["gpus"]:
            if gpu["vbios"]:
                vbios.setdefault(gpu["name"], {}).setdefault(gpu["vbios"].upper(), []).append(
                    "%s gpu %d" % (node["host"], gpu["index"]))
        for kind in ("infiniband", "cxi"):
            for port in node["fabric"][kind]:
                if port["firmware"]:
                    board = port.get("board") or kind
                    firmware.setdefault(board, {}).setdefault(port["firmware"], []).append(
                        "%s %s" % (node["host"], port["name"]))
    yield from _different("driver", "the driver of the GPUs", drivers, "driver_versions", thresholds)
    yield from _different("kernel_version", "the kernel", kernels, "kernel_versions", thresholds)
    for model, found in sorted(vbios.items()):
        yield from _different("vbios", "the VBIOS of %s" % model, found, "vbios_versions", thresholds)
    for board, found in sorted(firmware.items()):
        what = "the firmware of adapters (%s)" % board
        yield from _different("firmware", what, found, "firmware_versions", thresholds)


def _different(
    check: str, what: str, found: Mapping[str, Sequence[str]], name: str, thresholds: Facts
) -> Iterator[Finding]:
    limit = exceeded(thresholds, name, len(found))
    if limit:
        # The many first: the others are those to look at.
        ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
        said = "; ".join("%s on %s" % (version, _some(who)) for version, who in ordered)
        yield limited(limit, check, what, "There are %d versions of %s: %s." % (len(found), what, said), len(found),
                      "Have the nodes brought to the same version, or take others.")


def _counts(nodes: Sequence[Facts]) -> Iterator[Finding]:
    """Numbers of GPUs."""
    counts: dict[int, list[str]] = {}
    for node in nodes:
        counts.setdefault(len(node["gpus"]) or node["counts"]["amd"], []).append(node["host"])
    if len(counts) > 1:
        said = "; ".join("%d on %s" % (count, _some(hosts)) for count, hosts in sorted(counts.items(), reverse=True))
        yield warning("gpu_count", "gpus", "The nodes do not have the same number of GPUs: %s." % said,
                      remedy="Ask for nodes of one kind.")


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (" and %d more" % more if more > 0 else "")

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judge network, import time, bandwidth and NUMA nodes of the ranks, and list what was not checked. Pure."""

from __future__ import annotations

import fnmatch
import statistics
from typing import Any, Iterable, Mapping, Sequence

from ..ranks import thresholds
from ..ranks.placement import busy_hosts, parse_ranges
from .output import ENVIRONMENT, JobOutput, rank_name

MOST_BUSY = 3
"""Hosts with other work that are named."""

CHECKS_OF = {"gloo": ("torch_gloo",), "nccl": ("torch_nccl",), "mpi": ("torch_mpi", "mpi4py")}
"""The checks in which a backend is measured."""

Reports = Sequence[Mapping[str, Any]]


# --- the network -----------------------------------------------------------------------------------------------------


def list_transports(reports: Reports) -> list[dict[str, Any]]:
    """List how NCCL went on each rank that used it, as :func:`.nccl_log.parse` has read it.

    The variables that a rank was given are there where they are not those of the first one.
    """
    rows = []
    for report in reports:
        if report.get("transport") and "rank" in report:
            # Old versions of NCCL print their version elsewhere, and on one rank only.
            version = report["transport"]["version"] or report.get("versions", {}).get("nccl", "")
            rows.append(dict(report["transport"], rank=report["rank"], host=report["host"], version=version))
    for row in rows[1:]:
        if row.get("variables") == rows[0].get("variables"):
            row.pop("variables", None)
    return rows


def transport_problems(rule: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Find ranks whose NCCL uses another network than the site asks for, grouped by the sentence.

    Also where no byte left the node: the network that NCCL has chosen is the one that it would use on two of them.

    Args:
        rule: ``networks``, ``providers`` (of libfabric) and ``forbidden``: patterns as in a shell, letter case does not
            count; what is empty or missing is not asked for.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        text = _transport_problem(rule, row)
        if text:
            found.setdefault(text, []).append(row)
    return [
        "%s%s: %s" % (rank_name(dict(those[0])), " and %d more" % (len(those) - 1) if len(those) > 1 else "", text)
        for text, those in found.items()
    ]


def _transport_problem(rule: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    networks, providers, forbidden = (rule.get(key) or [] for key in ("networks", "providers", "forbidden"))
    ways = [channel.split("/")[1] for channel in row["channels"] if channel.startswith("NET/")]
    used = list(dict.fromkeys([*row["networks"], *ways]))
    if not used and (networks or forbidden):
        return "NCCL has not said by which network it goes"
    for network in used:
        if _matches(network, forbidden):
            return "NCCL goes by the network %s, which is forbidden here" % network
        if networks and not _matches(network, networks):
            return "NCCL goes by the network %s, and not by %s" % (network, " or ".join(networks))
    if providers and not _matches(row["provider"], providers):
        asked = " or ".join(providers)
        if not row["provider"]:
            return "NCCL's plugin has not said which provider of libfabric it takes, where it has to be %s" % asked
        return "NCCL's plugin takes libfabric's provider %s, and not %s" % (row["provider"], asked)
    return ""


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def transport_gaps(rule: Mapping[str, Any], rows: Sequence[Any], size: int) -> list[str]:
    """List what cannot be said about NCCL's network."""
    asked = any(rule.get(key) for key in ("networks", "providers", "forbidden"))
    if rows and not asked:
        return ["NCCL's network is recorded and not judged: nobody has said which one it has to be."]
    if asked and len(rows) < size:
        return ["NCCL's network was not judged on %d of %d ranks: NCCL did not run there." % (size - len(rows), size)]
    return []


# --- the import ------------------------------------------------------------------------------------------------------


def import_seconds(reports: Reports) -> dict[str, Any]:
    """Compute the median and the slowest rank of the import of each Python module."""
    taken: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for report in reports:
        for name, seconds in report.get("import_seconds", {}).items():
            taken.setdefault(name, []).append((seconds, report))
    summary = {}
    for name, all_of_them in taken.items():
        seconds, slowest = max(all_of_them, key=lambda one: one[0])
        summary[name] = {
            "median": round(statistics.median(one for one, _report in all_of_them), 3),
            "slowest": {"rank": slowest.get("rank", -1), "host": slowest["host"], "seconds": seconds},
        }
    return summary


def import_problems(ceiling: float, seconds: Mapping[str, Any], ranks: int) -> list[str]:
    """Describe the slowest rank's ``import torch`` if it took longer than the ceiling; 0 for none."""
    slowest = seconds.get("torch", {}).get("slowest")
    if not ceiling or not slowest or slowest["seconds"] <= ceiling:
        return []
    return ["%s took %.1f s to import torch, %d ranks at once; at most %g s are allowed" % (
        rank_name(slowest), slowest["seconds"], ranks, ceiling)]


# --- the speed -------------------------------------------------------------------------------------------------------


def read_measurements(reports: Reports) -> dict[str, list[Any]]:
    """Read ``measurements``, ``latency`` and ``left_out``, as rank 0 has kept them."""
    kept: Mapping[str, Any] = next((report.get("measured") or {} for report in reports if report.get("rank") == 0), {})
    return {key: list(kept.get(key, [])) for key in ("measurements", "latency", "left_out")}


def requested_floors(question: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Select the floors of the question, ``bandwidth`` and ``latency``; empty without any."""
    asked = (question.get("measure") or {}).get("floors") or {}
    return {kind: list(lines) for kind, lines in asked.items() if lines}


def bandwidth_problems(question: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Find what is below its floor or was not measured; also floors that could not be judged.

    Args:
        question: ``measure`` with its ``floors``, and ``checks``, those that have to run.
    """
    asked = requested_floors(question)
    here = {row["backend"] for row in (*found["measurements"], *found["latency"])}
    required = {backend for backend, checks in CHECKS_OF.items() if set(checks) & set(question["checks"])}
    judged = {kind: [floor for floor in asked[kind] if floor["backend"] in here | required] for kind in asked}
    idle = sorted({floor["backend"] for kind in asked for floor in asked[kind]} - here - required)
    gaps = ["The speed is recorded and not judged: there is no floor for it."] if here and not asked else []
    gaps += ["The floors of %s were not judged: it was not measured here." % backend for backend in idle]
    gaps += thresholds.find_unchecked(found["measurements"], judged)
    return thresholds.find_violations(found["measurements"], found["latency"], judged), gaps + found["left_out"]


# --- the place -------------------------------------------------------------------------------------------------------


def numa_remarks(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Find ranks whose cores are on another memory node than their GPU: no failure, but slower."""
    sentences = []
    for row in rows:
        facts = row["device_facts"]
        near, own = facts.get("gpu_numa"), facts.get("numa", "")
        if near is not None and own and near not in parse_ranges(own):
            sentences.append("Rank %d on %s runs on cores of NUMA node %s, and its GPU %s is at NUMA node %d." % (
                row["rank"], row["host"], own, facts.get("bus") or facts.get("index"), near))
    return sentences


def load_remarks(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Find hosts that had other work as the ranks began: what was measured there says little."""
    found = busy_hosts(rows)
    sentences = [
        "%s had other work as the ranks began, a load of %.1f on %d processor%s: what was measured says little." % (
            one.host, one.load, one.processors, "" if one.processors == 1 else "s") for one in found[:MOST_BUSY]]
    if len(found) > MOST_BUSY:
        sentences.append("So had %d more hosts." % (len(found) - MOST_BUSY))
    return sentences


# --- what was not checked --------------------------------------------------------------------------------------------


def list_gaps(job_output: JobOutput, rows: Sequence[dict[str, Any]], checks: Sequence[dict[str, Any]]) -> list[str]:
    """List what this acceptance cannot have noticed."""
    sentences = []
    if job_output.event("through") == ENVIRONMENT:
        sentences.append("Not through the module: %s." % (job_output.event("without_module") or "no reason was given"))
    devices = [row["device_facts"] for row in rows if row["device_facts"]]
    hosts = list(dict.fromkeys(row["host"] for row in rows))
    place = "this host" if len(hosts) == 1 else "these hosts"
    if any(device.get("gpus_unused") for device in devices):
        sentences.append("The release is for CPUs: the GPUs of %s were not used." % place)
    elif devices and all(device["kind"] == "cpu" for device in devices):
        sentences.append("No GPU on %s: devices are CPU cores." % place)
    if any(device["kind"] == "gpu" and not (device.get("uuid") or device.get("bus")) for device in devices):
        sentences.append("The GPUs are known by their index only: two ranks on one GPU may have gone unnoticed.")
    if len(hosts) == 1:
        sentences.append("All ranks ran on %s: nothing went from node to node." % hosts[0])
    sentences += [
        "%s could not check %s: %s." % (entry["name"], operation, text)
        for entry in checks for operation, text in sorted(entry["lacks"].items())
    ]
    sentences += [
        "%s did not run: %s." % (entry["name"], entry["note"]) for entry in checks if entry["status"] == "skipped"
    ]
    return sentences

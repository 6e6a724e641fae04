# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judge what the ranks of an acceptance have reported. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple, Sequence

from ..ranks.placement import find_shared_gpus
from . import evidence, reports
from .failures import Failure
from .output import JobOutput

CHECKS = ("imports", "devices", "horovod", "torch_gloo", "torch_nccl", "torch_mpi", "mpi4py", "cuda_graph_replay")
"""The checks that a site can ask for; the first two are done in any case."""


class Verdict(NamedTuple):
    """Hold the failures, and what the record keeps."""

    failures: list[Failure]
    ranks: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    not_checked: list[str]
    evidence: dict[str, Any]


def check_reports(question: dict[str, Any], job_output: JobOutput) -> Verdict:
    """Decide whether the release is accepted.

    Args:
        question: ``ranks``, ``checks``, ``where_possible``, ``imports``, ``module_system``; ``shared`` where the ranks
            are in a container; ``providers``, ``transport``, ``import_ceiling`` and ``measure`` where these are asked
            for.

    Returns:
        the failures, the one that explains most first; one row for each rank; one entry for each check that ran, with
        the seconds of the slowest rank; sentences about what this acceptance cannot have noticed; and what else the
        record keeps: ``measurements``, ``latency``, ``transports``, ``import_seconds``, ``remarks``.
    """
    rows = [rank_record(report) for report in job_output.reports if "rank" in report]
    failures = reports.job_failures(job_output, question["module_system"])
    failures += reports.rank_failures(job_output.reports, question["checks"])
    # A rank that has given a reason for leaving explains why the others timed out.
    failures.sort(key=lambda failure: failure.check == "timeout")
    if not failures:
        failures += reports.missing_ranks(job_output, question["ranks"])
    if not failures:
        failures += reports.missing_nodes(rows, question.get("nodes", 1))
    failures += [
        Failure("devices", "ranks %s use the same GPU %s" % (" and ".join(map(str, owners)), identity))
        for identity, owners in find_shared_gpus(dict(row, device=row["device_facts"]) for row in rows)
    ]
    failures += reports.foreign_imports(job_output.reports, question["imports"], question.get("shared"))
    failures += reports.library_failures(job_output.reports)
    failures += reports.misplaced_libraries(job_output.reports, question.get("providers") or [])
    rule, ceiling = question.get("transport") or {}, question.get("import_ceiling") or 0
    found = evidence.read_measurements(job_output.reports)
    ways = evidence.list_transports(job_output.reports)
    slow = evidence.import_seconds(job_output.reports)
    too_slow, gaps = evidence.bandwidth_problems(question, found)
    measured, floors = found["measurements"] or found["latency"], evidence.requested_floors(question)
    judged = {
        "transport": evidence.transport_problems(rule, ways) if rule and ways else None,
        "import_time": evidence.import_problems(ceiling, slow, len(rows)) if ceiling and slow else None,
        # Nothing more is expected of ranks that failed: the cause is reported already.
        "bandwidth": too_slow if (measured and (floors or too_slow)) or (not failures and too_slow) else None,
    }
    failures += [Failure(name, text) for name, problems in judged.items() for text in problems or []]
    status = job_output.event("exit")
    if not failures and status != "0":
        ending = "exit status %s" % status if status is not None else "no exit status"
        failures.append(Failure("job", "all ranks reported success, and the launcher ended with " + ending))
    checks = _summarise(job_output.reports)
    ran = [entry for entry in checks if entry["status"] != "skipped"]
    ran += [
        {"name": name, "status": "failed" if problems else "passed", "seconds": 0.0, "note": "", "lacks": {}}
        for name, problems in judged.items() if problems is not None
    ]
    gaps = evidence.list_gaps(job_output, rows, checks) + evidence.transport_gaps(rule, ways, len(rows)) + gaps
    if ceiling and "torch" not in slow:
        gaps.append("The time of the import of torch was not judged: no rank imported it.")
    recorded = {
        "measurements": found["measurements"], "latency": found["latency"], "transports": ways,
        "import_seconds": slow,
        "remarks": evidence.numa_remarks(rows) + (evidence.load_remarks(rows) if measured else []),
    }
    return Verdict(_without_repetitions(failures), rows, ran, gaps, recorded)


def _without_repetitions(failures: Iterable[Failure]) -> list[Failure]:
    """Remove repetitions: each rank that shares a GPU says so, and so does the job as a whole."""
    return list(dict.fromkeys(
        failure._replace(message=re.sub(r"^rank \d+ on \S+: (?=ranks )", "", failure.message)) for failure in failures))


def _summarise(rank_reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summarise each check that began: failed where one rank failed, with the seconds of the slowest."""
    summaries = []
    for name in CHECKS:
        found = [entry for report in rank_reports for entry in report["checks"] if entry["name"] == name]
        states = {entry["status"] for entry in found}
        if states:
            status = next(state for state in ("failed", "skipped", "passed") if state in states)
            notes = dict.fromkeys(entry["note"] for entry in found if entry["note"])
            summaries.append({
                "name": name, "status": status, "seconds": max(entry["seconds"] for entry in found),
                "note": "; ".join(notes),
                "lacks": {key: text for entry in found for key, text in entry.get("lacks", {}).items()}})
    return summaries


def rank_record(report: dict[str, Any]) -> dict[str, Any]:
    """Select what the record keeps of a rank."""
    keys = (
        "rank", "local_rank", "size", "source", "host", "pid", "uid", "executable", "python", "versions", "files",
        "libraries", "declared", "port")
    facts = report.get("device") or {}
    return dict({key: report[key] for key in keys if key in report}, device=device_text(facts), device_facts=facts)


def device_text(device: dict[str, Any]) -> str:
    """Format a device for the table."""
    if not device:
        return "?"
    if device["kind"] != "gpu":
        return "cpu"
    identity = " ".join(part for part in (device.get("bus"), device.get("uuid")) if part)
    return "gpu %s %s" % (device.get("index"), identity or device.get("name", ""))

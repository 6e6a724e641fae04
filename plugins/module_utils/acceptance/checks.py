# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the ranks of an acceptance reported, judged: data in, a verdict out; nothing is run here."""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple, Sequence

from . import evidence as acceptance_evidence
from . import reports as acceptance_reports
from .acceptance_failures import Failure
from .acceptance_gaps import gaps_of
from .acceptance_table import row_of
from .output import Heard

CHECKS = (
    "imports",
    "devices",
    "horovod",
    "torch_gloo",
    "torch_nccl",
    "torch_mpi",
    "mpi4py",
    "cuda_graph_replay",
)
"""The checks that a site can ask for; the first two are done in any case."""


class Verdict(NamedTuple):
    """What the reports amount to."""

    failures: list[Failure]
    ranks: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    not_checked: list[str]
    evidence: dict[str, Any]


def judge(question: dict[str, Any], heard: Heard) -> Verdict:
    """Whether the release is accepted.

    Args:
        question: ``ranks``, ``checks``, ``where_possible``, ``imports``, ``module_system``; ``shared`` where the ranks
            are in a container; ``transport``, ``import_ceiling`` and ``measure`` where these are asked for.
        heard: what came out of the job.

    Returns:
        the failures, the one that explains most first; one row for each rank; one entry for each check that ran, with
        the seconds of the slowest rank; sentences about what this acceptance cannot have noticed; and what else the
        record keeps: ``measurements``, ``latency``, ``transports``, ``import_seconds``, ``remarks``.
    """
    rows = [row_of(report) for report in heard.reports if "rank" in report]
    failures = acceptance_reports.job_failures(heard, question["module_system"])
    failures += acceptance_reports.rank_failures(heard.reports, question["checks"])
    # A rank that has said why it left explains why the others waited for it until the end.
    failures.sort(key=lambda failure: failure.check == "timeout")
    if not failures:
        failures += acceptance_reports.missing_ranks(heard, question["ranks"])
    if not failures:
        failures += acceptance_reports.missing_nodes(rows, question.get("nodes", 1))
    failures += [
        Failure("devices", "ranks %s use the same GPU %s" % (" and ".join(map(str, owners)), identity))
        for identity, owners in acceptance_reports.duplicate_devices(rows)
    ]
    failures += acceptance_reports.outside(heard.reports, question["imports"], question.get("shared"))
    failures += acceptance_reports.library_failures(heard.reports)
    rule, ceiling = question.get("transport") or {}, question.get("import_ceiling") or 0
    found = acceptance_evidence.measured(heard.reports)
    ways = acceptance_evidence.transports(heard.reports)
    slow = acceptance_evidence.import_seconds(heard.reports)
    too_slow, gaps = acceptance_evidence.floor_problems(question, found)
    measured, floors = found["measurements"] or found["latency"], acceptance_evidence.floors(question)
    judged = {
        "transport": acceptance_evidence.transport_problems(rule, ways) if rule and ways else None,
        "import_time": acceptance_evidence.import_problems(ceiling, slow, len(rows)) if ceiling and slow else None,
        # Of ranks that came to no end nothing is expected: what stopped them is said already.
        "bandwidth": too_slow if (measured and (floors or too_slow)) or (not failures and too_slow) else None,
    }
    failures += [Failure(name, text) for name, problems in judged.items() for text in problems or []]
    status = heard.event("exit")
    if not failures and status != "0":
        failures.append(Failure("job", "all ranks reported success, and the launcher ended with %s" % (
            "exit status %s" % status if status is not None else "no exit status"
        )))
    checks = _summaries(heard.reports)
    ran = [entry for entry in checks if entry["status"] != "skipped"]
    ran += [
        {"name": name, "status": "failed" if problems else "passed", "seconds": 0.0, "note": "", "lacks": {}}
        for name, problems in judged.items() if problems is not None
    ]
    gaps = gaps_of(heard, rows, checks) + acceptance_evidence.transport_gaps(rule, ways, len(rows)) + gaps
    if ceiling and "torch" not in slow:
        gaps.append("The time of the import of torch was not judged: no rank imported it.")
    evidence = {
        "measurements": found["measurements"], "latency": found["latency"], "transports": ways,
        "import_seconds": slow, "remarks": acceptance_evidence.remarks(rows),
    }
    return Verdict(_unique(failures), rows, ran, gaps, evidence)


def _unique(failures: Iterable[Failure]) -> list[Failure]:
    """Without repetitions: each rank that shares a GPU says so, and so does the job as a whole."""
    plain = [
        failure._replace(message=re.sub(r"^rank \d+ on \S+: (?=ranks )", "", failure.message)) for failure in failures
    ]
    return list(dict.fromkeys(plain))


def _summaries(reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each check that began: failed where one rank failed, the seconds those of the slowest rank."""
    summaries = []
    for name in CHECKS:
        found = [entry for report in reports for entry in report["checks"] if entry["name"] == name]
        states = {entry["status"] for entry in found}
        if states:
            status = next(state for state in ("failed", "skipped", "passed") if state in states)
            notes = list(dict.fromkeys(entry["note"] for entry in found if entry["note"]))
            seconds = max(entry["seconds"] for entry in found)
            lacks = {key: text for entry in found for key, text in entry.get("lacks", {}).items()}
            summaries.append({
                "name": name, "status": status, "seconds": seconds, "note": "; ".join(notes), "lacks": lacks,
            })
    return summaries

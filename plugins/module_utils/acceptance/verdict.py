# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the record of an acceptance, describe it, and decide whether it still answers."""

from __future__ import annotations

import hashlib
from typing import Any, Mapping, Sequence

from ..core.files import write_atomic
from ..ranks.units import counted
from . import checks
from .login import Account, account_gaps
from .output import (
    EM,
    ENVIRONMENT,
    LMOD,
    JobOutput,
    last_lines,
    parse_output,
    readable,
)
from .records import Files, changed_keys


def modulefile_digests(through: str, path: str) -> dict[str, str]:
    """Compute the sha256 of a modulefile by its kind, ``lmod`` or ``tcl``; empty if it cannot be read."""
    kinds = {LMOD: "lmod", EM: "tcl"}
    try:
        with open(path, "rb") as stream:
            return {kinds[through]: hashlib.sha256(stream.read()).hexdigest()}
    except (OSError, KeyError):
        return {}


def reason_to_run(last: dict[str, Any] | None, question: dict[str, Any], again: bool) -> str:
    """Explain why an acceptance has to run, as a sentence's end; empty where a record answers."""
    if last is None:
        return "there is no acceptance of this release yet"
    if again:
        return "it was asked for again"
    answered = last.get("question")
    if last.get("passed") is not True or not isinstance(answered, dict):
        return "the last acceptance did not pass"
    if last.get("subject") != question["subject"]:
        return "the last acceptance was of another state of this release"
    now = modulefile_digests(str(last.get("through", "")), str(last.get("modulefile", "")))
    if last.get("modulefiles", {}) != now:
        return "the modulefile has changed since the last acceptance"
    changed = changed_keys(answered, question, str(last.get("through")))
    return "the site now asks for something else: %s" % ", ".join(changed) if changed else ""


def conclude(
    files: Files, question: Mapping[str, Any], account: Account, output: str, started: str, seconds: float,
) -> dict[str, Any]:
    """Judge an acceptance that has ended, write its record, and return it where it has passed."""
    job_output = parse_output(output)
    verdict = checks.check_reports(dict(question), job_output)
    record = _make_record(question, job_output, verdict, account, started, seconds)
    write_atomic(files.log, readable(output).encode("utf-8"))
    files.add(record)
    if verdict.failures:
        raise files.error(
            "acceptance of", verdict.failures, passed=False, table=describe_record(record)["table"],
            not_checked=record["not_checked"], last_lines=last_lines(output))
    return record


def _make_record(
    question: Mapping[str, Any], job_output: JobOutput, verdict: checks.Verdict, account: Account, started: str,
    seconds: float,
) -> dict[str, Any]:
    """Make the record of one run."""
    through, modulefile = job_output.event("through") or "", job_output.event("modulefile") or ""
    return {
        "schema": 2, "passed": not verdict.failures, "subject": question["subject"], "user": account.name,
        "ordinary_user": account.other, "through": through, "module": question["module"], "modulefile": modulefile,
        "modulefiles": modulefile_digests(through, modulefile), "launcher": question["launcher"],
        "launcher_path": job_output.event("launcher") or "", "ranks": verdict.ranks, "checks": verdict.checks,
        "failures": [failure.as_record() for failure in verdict.failures],
        "not_checked": account_gaps(account) + verdict.not_checked, **verdict.evidence,
        "question": {key: value for key, value in question.items() if key != "subject"}, "started": started,
        "seconds": seconds,
    }


def describe_record(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe a record for a module's result."""
    if record is None:
        return {}
    hosts = {row["host"] for row in record["ranks"]}
    counts = "%s on %s" % (counted(len(record["ranks"]), "rank"), counted(len(hosts), "host"))
    who = record["user"] if record["ordinary_user"] else "the rollout account %s itself" % record["user"]
    how = "through %s" % record["through"] if record["through"] else "before any module was loaded"
    if record["through"] == ENVIRONMENT:
        how = "not through the module"
    summary = "%s: %s as %s, %s, in %.1f s." % (
        "Accepted" if record["passed"] else "Not accepted", counts, who, how, record["seconds"])
    return {
        "passed": record["passed"], "summary": summary, "table": format_rank_table(record["ranks"]),
        "not_checked": record["not_checked"], "acceptance": dict(record)}


def format_rank_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format rank, host and device of each rank as aligned text; empty without ranks.

    The memory nodes are those of the cores, and where the kernel tells it the one that the GPU is at.
    """
    if not rows:
        return ""
    cells: list[tuple[str, ...]] = [("rank", "local", "host", "pid", "device", "cores", "numa", "gpu at")]
    for row in rows:
        facts = row["device_facts"]
        near = facts.get("gpu_numa")
        cells.append((
            str(row["rank"]), str(row["local_rank"]), row["host"], str(row["pid"]), row["device"],
            facts.get("cpus") or "?", facts.get("numa") or "?", "?" if near is None else str(near)))
    if all(line[-1] == "?" for line in cells[1:]):
        cells = [line[:-1] for line in cells]
    return align(cells)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of cells as aligned text."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find failures in the reports of an acceptance's ranks, and in what its job said. Pure."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Sequence

from ..ranks.libraries import is_named
from ..verify.rule_globs import Paths, rule_path_glob
from .failures import ELSEWHERE, Failure, start_advice
from .output import EM, LMOD, JobOutput, rank_name

NAMED = 8
"""Largest number of ranks that are named one by one in a sentence."""


def library_failures(reports: Sequence[dict[str, Any]]) -> list[Failure]:
    """Find libraries that a rank has from two files, or that differ between ranks.

    Files are compared by path and size, so that node images which differ behind one path are noticed, too. Each report
    has ``libraries``: stem of the file's name -> list of [path, size in bytes].
    """
    failures = []
    for report in reports:
        for stem, found in sorted(report["libraries"].items()):
            if len(found) > 1:
                paths = " and ".join(path for path, _size in found)
                failures.append(Failure("libraries", "%s has %s from two files: %s" % (rank_name(report), stem, paths)))
    for stem in sorted({stem for report in reports for stem in report["libraries"]}):
        expected = reports[0]["libraries"].get(stem, [])
        for report in reports[1:]:
            found = report["libraries"].get(stem, [])
            if found != expected:
                failures.append(Failure("libraries", "%s has %s from %s, %s from %s" % (
                    rank_name(reports[0]), stem, _format_files(expected), rank_name(report), _format_files(found))))
                break
    return failures


def misplaced_libraries(reports: Sequence[dict[str, Any]], providers: Sequence[Mapping[str, str]]) -> list[Failure]:
    """Find libraries that a rank has mapped from elsewhere than the release says, one failure for each file.

    Args:
        providers: the rules, each with ``name`` (a glob over sonames), ``path`` (over absolute paths) and ``reason``.
    """
    paths = Paths()
    rules = [(rule, rule_path_glob("providers", rule["path"], failed_step="libraries")) for rule in providers]
    found: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        for path in report.get("declared", ()):
            of_it = [glob for rule, glob in rules if is_named(path, rule["name"])]
            if of_it and not any(paths.match(glob, os.fsencode(path)) for glob in of_it):
                found.setdefault(path, []).append(report)
    return [_misplaced(path, those, providers) for path, those in sorted(found.items())]


def _misplaced(path: str, those: Sequence[dict[str, Any]], providers: Sequence[Mapping[str, str]]) -> Failure:
    of_it = [rule for rule in providers if is_named(path, rule["name"])]
    who = rank_name(those[0]) + (" and %d more" % (len(those) - 1) if those[1:] else "")
    directory = os.path.dirname(path)
    entries = [os.path.realpath(entry) for entry in those[0]["library_path"].split(":") if entry]
    first = os.path.realpath(directory) in entries
    reasons = "; ".join(rule["reason"].rstrip(".") for rule in of_it if rule.get("reason"))
    return Failure(
        "libraries",
        "%s has %s mapped from %s%s, and not from %s%s" % (
            who, os.path.basename(path), directory, ", which is in its LD_LIBRARY_PATH" if first else "",
            " or ".join(rule["path"] for rule in of_it), " (%s)" % reasons if reasons else ""),
        "Take %s out of LD_LIBRARY_PATH where a login or another module sets it. An object of the release with an "
        "RPATH would not go by it: name the library under verification.libraries.sealed to see which one has none."
        % directory if first else "")


def _format_files(found: Sequence[Sequence[Any]]) -> str:
    """Format library files for a sentence."""
    return ", ".join("%s (%s bytes)" % (path, size) for path, size in found) or "nowhere"


def foreign_imports(
    reports: Sequence[dict[str, Any]], imports: Sequence[str], shared: Sequence[str] | None = None
) -> list[Failure]:
    """Find Python modules of the release that a rank has imported from elsewhere.

    Args:
        shared: of ranks in a container, the directories of the machine that they see, apart from the home; the release
            is all that they do not see of it.
    """
    failures = []
    for report in reports:
        foreign = None if shared is None else [*shared, report["home"]]
        where = "the release in %s" % report["prefix"] if foreign is None else "the image"
        for name in imports:
            path = report["files"].get(name)
            if path is None:
                continue
            if foreign is None:
                own = _is_below(path, [report["prefix"]])
            else:
                own = bool(path) and not _is_below(path, foreign)
            if not own:
                message = "%s imports %s from %s, not from %s" % (rank_name(report), name, path or "no file", where)
                failures.append(Failure("imports", message))
    return failures


def _is_below(path: str, directories: Sequence[str]) -> bool:
    return any(path.startswith(directory.rstrip("/") + "/") for directory in directories)


def rank_failures(reports: Sequence[dict[str, Any]], required: Sequence[str]) -> list[Failure]:
    """Collect what the ranks found wrong; exceptions, after which a rank leaves, before wrong values.

    A check that is required and could not run counts where nothing else failed that may be the reason.
    """
    failures, refused = [], []
    for report in sorted(reports, key=lambda report: report["stage"] == "end"):
        for entry in report["checks"]:
            if entry["status"] == "failed":
                failures += [
                    Failure(entry["name"], "%s: %s" % (rank_name(report), text),
                            start_advice(text) if entry["name"] == "start" else "")
                    for text in entry["problems"]]
            elif entry["status"] == "skipped" and entry["name"] in required:
                message = "%s could not run it: %s" % (rank_name(report), entry["note"])
                refused.append(Failure(entry["name"], message, ELSEWHERE))
    return failures or refused


def missing_ranks(job_output: JobOutput, asked: int) -> list[Failure]:
    """Find ranks that did not report, or are not those that were asked for."""
    reported = len(job_output.reports)
    numbers = [report.get("rank", -1) for report in job_output.reports]
    if reported > 1 and all(report.get("size") == 1 for report in job_output.reports):
        return [Failure("start", "%d processes started, and each believes to be alone" % reported)]
    if numbers == list(range(asked)):
        return []
    known = {(report["host"], report["pid"]) for report in job_output.reports}
    unknown = [stage for stage in job_output.stages.values() if (stage["host"], stage["pid"]) not in known]
    text = "%d ranks were asked for, %d reported" % (asked, reported)
    if job_output.broken:
        text += ", %d more incompletely" % job_output.broken
    return [Failure("ranks", "; ".join([text, *_describe_stages(unknown, "last in")]))]


def missing_nodes(rows: Sequence[dict[str, Any]], asked: int) -> list[Failure]:
    """Find ranks on other than so many nodes (1: any number), which say nothing about the network."""
    hosts = list(dict.fromkeys(row["host"] for row in rows))
    if asked == 1 or len(hosts) == asked:
        return []
    return [Failure("nodes", "%d nodes were asked for, and the ranks ran on %d: %s" % (
        asked, len(hosts), ", ".join(hosts)))]


def job_failures(job_output: JobOutput, wanted_system: str) -> list[Failure]:
    """Find what stopped the job before or beside the ranks.

    Args:
        wanted_system: the module system that a login has to offer; only :data:`LMOD` and :data:`EM` are held to it.
    """
    failures = [Failure(*problem) for problem in job_output.problems]
    if job_output.event("timeout") is not None:
        where = ", ".join(_describe_stages(job_output.stages.values(), "in"))
        failures.append(Failure("timeout", "it did not finish within %s s: %s" % (
            job_output.event("timeout"), where or "no rank had begun")))
    if job_output.event("unkillable"):
        failures.append(Failure("job", "these processes could not be ended: %s" % job_output.event("unkillable")))
    through = job_output.event("through")
    if wanted_system in (LMOD, EM) and through not in (None, wanted_system):
        failures.append(Failure("module", "the module system is %s, not %s" % (through, wanted_system)))
    return failures


def _describe_stages(stages: Iterable[dict[str, Any]], word: str) -> list[str]:
    """Describe where ranks were: a few one by one, many by their stage."""
    ordered = sorted(stages, key=lambda stage: (stage.get("rank", -1), stage["host"], stage["pid"]))
    if len(ordered) <= NAMED:
        return ["%s was %s %s" % (rank_name(stage), word, stage["stage"]) for stage in ordered]
    groups: dict[str, list[dict[str, Any]]] = {}
    for stage in ordered:
        groups.setdefault(stage["stage"], []).append(stage)
    return [
        "%s and %d more were %s %s" % (rank_name(those[0]), len(those) - 1, word, name) if those[1:]
        else "%s was %s %s" % (rank_name(those[0]), word, name)
        for name, those in groups.items()
    ]

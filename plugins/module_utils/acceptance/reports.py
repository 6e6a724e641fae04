# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong by the reports of an acceptance's ranks and by what its job said. Pure."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from ..ranks.placement import shared_gpus
from .acceptance_failures import ELSEWHERE, Failure
from .output import EM, LMOD, Heard, who

NAMED = 8
"""So many ranks are named one by one in a sentence."""


def duplicate_devices(ranks: Iterable[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """GPUs that more than one rank uses, with these ranks.

    A GPU is named by its UUID, where there is none by host and bus address, else by host and index. Cores are not
    devices in this sense: ranks may share them.

    Args:
        ranks: rows with ``rank``, ``host`` and ``device_facts``.
    """
    return shared_gpus(dict(row, device=row["device_facts"]) for row in ranks)


def library_failures(reports: Sequence[dict[str, Any]]) -> list[Failure]:
    """Libraries that one rank has from two files, or two ranks have from different ones.

    Files are compared by path and size, so that node images which differ behind one path are noticed, too.

    Args:
        reports: reports of ranks with ``libraries``: stem of the file's name -> list of [path, size in bytes].
    """
    failures = []
    for report in reports:
        for stem, found in sorted(report["libraries"].items()):
            if len(found) > 1:
                paths = " and ".join(path for path, _size in found)
                failures.append(Failure("libraries", "%s has %s from two files: %s" % (who(report), stem, paths)))
    for stem in sorted({stem for report in reports for stem in report["libraries"]}):
        expected = reports[0]["libraries"].get(stem, [])
        for report in reports[1:]:
            found = report["libraries"].get(stem, [])
            if found != expected:
                failures.append(Failure("libraries", "%s has %s from %s, %s from %s" % (
                    who(reports[0]), stem, _files(expected), who(report), _files(found)
                )))
                break
    return failures


def _files(found: Sequence[Sequence[Any]]) -> str:
    """Library files in a sentence."""
    return ", ".join("%s (%s bytes)" % (path, size) for path, size in found) or "nowhere"


def outside(
    reports: Sequence[dict[str, Any]], imports: Sequence[str], shared: Sequence[str] | None = None
) -> list[Failure]:
    """Python modules of the release that a rank took from elsewhere.

    Args:
        reports: reports of ranks with ``files`` and ``prefix``, both as real paths, and ``home``.
        imports: names of the Python modules that the release has to provide.
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
            own = _below(path, [report["prefix"]]) if foreign is None else bool(path) and not _below(path, foreign)
            if not own:
                message = "%s imports %s from %s, not from %s" % (who(report), name, path or "no file", where)
                failures.append(Failure("imports", message))
    return failures


def _below(path: str, directories: Sequence[str]) -> bool:
    return any(path.startswith(directory.rstrip("/") + "/") for directory in directories)


def rank_failures(reports: Sequence[dict[str, Any]], required: Sequence[str]) -> list[Failure]:
    """What the ranks themselves found wrong, exceptions (after which a rank leaves) before wrong values.

    A check that had to run and could not counts where nothing else failed that may be the reason.

    Args:
        reports: reports of ranks with ``stage`` and ``checks``.
        required: names of the checks that had to run.
    """
    failures = []
    refused = []
    for report in sorted(reports, key=lambda report: report["stage"] == "end"):
        for entry in report["checks"]:
            if entry["status"] == "failed":
                failures += [Failure(entry["name"], "%s: %s" % (who(report), text)) for text in entry["problems"]]
            elif entry["status"] == "skipped" and entry["name"] in required:
                message = "%s could not run it: %s" % (who(report), entry["note"])
                refused.append(Failure(entry["name"], message, ELSEWHERE))
    return failures or refused


def missing_ranks(heard: Heard, asked: int) -> list[Failure]:
    """Ranks that were asked for and did not report, or are not what was asked for.

    Args:
        heard: what came out of the job.
        asked: how many ranks there have to be.
    """
    reported = len(heard.reports)
    numbers = [report.get("rank", -1) for report in heard.reports]
    if reported > 1 and all(report.get("size") == 1 for report in heard.reports):
        return [Failure("start", "%d processes started, and each believes to be alone" % reported)]
    if numbers == list(range(asked)):
        return []
    known = {(report["host"], report["pid"]) for report in heard.reports}
    silent = _where(
        [stage for stage in heard.stages.values() if (stage["host"], stage["pid"]) not in known], "last in"
    )
    text = "%d ranks were asked for, %d reported" % (asked, reported)
    if heard.broken:
        text += ", %d more incompletely" % heard.broken
    return [Failure("ranks", "; ".join([text, *silent]))]


def missing_nodes(rows: Sequence[dict[str, Any]], asked: int) -> list[Failure]:
    """Ranks on other than the nodes that were asked for: what then passed says nothing about the network.

    Args:
        rows: from :func:`.acceptance_table.row_of`.
        asked: how many nodes there have to be; 1 for any number.
    """
    hosts = list(dict.fromkeys(row["host"] for row in rows))
    if asked == 1 or len(hosts) == asked:
        return []
    return [Failure("nodes", "%d nodes were asked for, and the ranks ran on %d: %s" % (
        asked, len(hosts), ", ".join(hosts)))]


def job_failures(heard: Heard, wanted_system: str) -> list[Failure]:
    """What stopped the job before or beside the ranks.

    Args:
        heard: what came out of the job.
        wanted_system: the module system that a login has to offer; only :data:`LMOD` and :data:`EM` are held to it.
    """
    failures = []
    for name, text in heard.events:
        if name == "problem":
            check, _space, message = text.partition(" ")
            failures.append(Failure(check, message))
    if heard.event("timeout") is not None:
        where = ", ".join(_where(heard.stages.values(), "in"))
        failures.append(Failure("timeout", "it did not finish within %s s: %s" % (
            heard.event("timeout"), where or "no rank had begun"
        )))
    if heard.event("unkillable"):
        failures.append(Failure("job", "these processes could not be ended: %s" % heard.event("unkillable")))
    if wanted_system in (LMOD, EM) and heard.event("through") not in (None, wanted_system):
        failures.append(Failure("module", "the module system is %s, not %s" % (heard.event("through"), wanted_system)))
    return failures


def _in_order(stages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(stages, key=lambda stage: (stage.get("rank", -1), stage["host"], stage["pid"]))


def _where(stages: Iterable[dict[str, Any]], word: str) -> list[str]:
    """Where ranks were, each of a few by itself, of many by what they were in."""
    ordered = _in_order(stages)
    if len(ordered) <= NAMED:
        return ["%s was %s %s" % (who(stage), word, stage["stage"]) for stage in ordered]
    groups: dict[str, list[dict[str, Any]]] = {}
    for stage in ordered:
        groups.setdefault(stage["stage"], []).append(stage)
    return [
        "%s and %d more were %s %s" % (who(those[0]), len(those) - 1, word, name) if those[1:]
        else "%s was %s %s" % (who(those[0]), word, name)
        for name, those in groups.items()
    ]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the ranks of an acceptance reported, judged: data in, a verdict out; nothing is run here."""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils import acceptance_evidence
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_output import Heard, who
from ansible_collections.hpcml.torchstack.plugins.module_utils.rank_place import shared_gpus

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

LMOD, EM, NONE, ENVIRONMENT = "lmod", "environment-modules", "none", "environment"

REMEDIES = {
    "module": "Load it by hand in a fresh login of that user to see why; correct the module or acceptance_module_*.",
    "launcher": "Correct acceptance_launcher, or have the modulefile put it on PATH.",
    "python": "Correct acceptance_python, or have the modulefile put it on PATH.",
    "timeout": "The log has the stacks of the ranks; if the job only waited in a queue, raise acceptance_timeout, and "
               "if it was still measuring, lower seconds or largest of acceptance_measure.",
    "ranks": "Look into the log, and at acceptance_launcher: it has to start exactly acceptance_ranks processes.",
    "nodes": "Have acceptance_launcher spread the ranks with {nodes} and {per_node}, in a job of that many nodes.",
    "placement": "Use the launcher that belongs to the MPI of this release (acceptance_launcher).",
    "start": "Use the launcher that belongs to the MPI of this release (acceptance_launcher).",
    "devices": "Bind the ranks, so that each has a GPU of its own (acceptance_launcher).",
    "imports": "Look for user packages or another module on PYTHONPATH, and run the verification of this release.",
    "libraries": "Compare the nodes' module environments and images, and run the verification of this release.",
    "job": "Look into the log.",
    "transport": "Look in the log for why NCCL has not loaded its plugin, and at NCCL_NET, NCCL_NET_PLUGIN and "
                 "FI_PROVIDER as the module sets them; the record has what every rank was given.",
    "import_time": "Look at the file system of the release under load, or copy the release to the nodes before jobs; "
                   "raise acceptance_import_ceiling if this is what the site can do.",
    "bandwidth": "Look at the health of the nodes and find slow ones by the pair sweep; correct the floor in "
                 "acceptance_measure if it is wrong.",
}
"""What to do next, by what failed; for a check that is not here, :data:`VALUES`."""

NAMED = 8
"""So many ranks are named one by one in a sentence."""

ELSEWHERE = "Run the acceptance where it can run (acceptance_launcher), or move it to acceptance_where_possible."

VALUES = "Do not publish this release; look into the log, and run the library verification of this release."


class Failure(NamedTuple):
    """Something that is wrong: in which check, one sentence, and what to do where that is not the check's usual."""

    check: str
    message: str
    advice: str = ""

    @property
    def remedy(self) -> str:
        """What to do next."""
        return self.advice or REMEDIES.get(self.check, VALUES)


class Verdict(NamedTuple):
    """What the reports amount to."""

    failures: list[Failure]
    ranks: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    not_checked: list[str]
    evidence: dict[str, Any]


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


def _rank_failures(reports: Sequence[dict[str, Any]], required: Sequence[str]) -> list[Failure]:
    """What the ranks themselves found wrong, exceptions (after which a rank leaves) before wrong values.

    A check that had to run and could not counts where nothing else failed that may be the reason.
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


def _missing_ranks(heard: Heard, asked: int) -> list[Failure]:
    """Ranks that were asked for and did not report, or are not what was asked for."""
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


def _missing_nodes(rows: Sequence[dict[str, Any]], asked: int) -> list[Failure]:
    """Ranks on other than the nodes that were asked for: what then passed says nothing about the network."""
    hosts = list(dict.fromkeys(row["host"] for row in rows))
    if asked == 1 or len(hosts) == asked:
        return []
    return [Failure("nodes", "%d nodes were asked for, and the ranks ran on %d: %s" % (
        asked, len(hosts), ", ".join(hosts)))]


def _job_failures(heard: Heard, wanted_system: str) -> list[Failure]:
    """What stopped the job before or beside the ranks."""
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
    rows = [_row(report) for report in heard.reports if "rank" in report]
    failures = _job_failures(heard, question["module_system"]) + _rank_failures(heard.reports, question["checks"])
    # A rank that has said why it left explains why the others waited for it until the end.
    failures.sort(key=lambda failure: failure.check == "timeout")
    if not failures:
        failures += _missing_ranks(heard, question["ranks"]) or _missing_nodes(rows, question.get("nodes", 1))
    failures += [
        Failure("devices", "ranks %s use the same GPU %s" % (" and ".join(map(str, owners)), identity))
        for identity, owners in duplicate_devices(rows)
    ]
    failures += outside(heard.reports, question["imports"], question.get("shared"))
    failures += library_failures(heard.reports)
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
    gaps = _gaps(heard, rows, checks) + acceptance_evidence.transport_gaps(rule, ways, len(rows)) + gaps
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


def _row(report: dict[str, Any]) -> dict[str, Any]:
    """What the record keeps of a rank."""
    keys = (
        "rank", "local_rank", "size", "source", "host", "pid", "uid", "executable", "python", "versions", "files",
        "libraries", "port",
    )
    facts = report.get("device") or {}
    return dict({key: report[key] for key in keys if key in report}, device=device_text(facts), device_facts=facts)


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


def _gaps(heard: Heard, rows: Sequence[dict[str, Any]], checks: Sequence[dict[str, Any]]) -> list[str]:
    """What this acceptance cannot have noticed."""
    sentences = []
    if heard.event("through") == ENVIRONMENT:
        sentences.append("Not through the module: %s." % (heard.event("without_module") or "no reason was given"))
    devices = [row["device_facts"] for row in rows if row["device_facts"]]
    hosts = list(dict.fromkeys(row["host"] for row in rows))
    if devices and all(device["kind"] == "cpu" for device in devices):
        sentences.append("No GPU on %s: devices are CPU cores." % ("this host" if len(hosts) == 1 else "these hosts"))
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


def own_account_gaps(user: str, uid: int, other: str) -> list[str]:
    """What the account hides under which the acceptance runs.

    Args:
        user: name of the rollout account.
        uid: its number.
        other: the ordinary user that runs the ranks; empty for the rollout account itself.
    """
    if other:
        return []
    sentences = [
        "Not as an ordinary user: as the rollout account %s itself, which can read files that others cannot." % user
    ]
    if uid == 0:
        sentences.append(
            "As root, which passes every permission check: unreadable files, unwritable caches and the limits of "
            "users stay hidden."
        )
    return sentences


def device_text(device: dict[str, Any]) -> str:
    """A device in the table."""
    if not device:
        return "?"
    if device["kind"] != "gpu":
        return "cpu"
    identity = " ".join(part for part in (device.get("bus"), device.get("uuid")) if part)
    return "gpu %s %s" % (device.get("index"), identity or device.get("name", ""))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rank, host and device of each rank as aligned plain text; empty without ranks.

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
            facts.get("cpus") or "?", facts.get("numa") or "?", "?" if near is None else str(near),
        ))
    if all(line[-1] == "?" for line in cells[1:]):
        cells = [line[:-1] for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    return "\n".join(lines)


def reason_to_run(
    record: dict[str, Any] | None, question: dict[str, Any], again: bool, modulefiles: dict[str, str]
) -> str:
    """Why an acceptance has to run, as a sentence's end; empty where a record answers the question.

    Args:
        record: the last record, or None.
        question: what would be asked now, with ``subject``.
        again: whether the operator wants it in any case.
        modulefiles: digest of the modulefile that the record's ranks had loaded, as it is now, by its kind.
    """
    if record is None:
        return "there is no acceptance of this release yet"
    if again:
        return "it was asked for again"
    answered = record.get("question")
    if record.get("passed") is not True or not isinstance(answered, dict):
        return "the last acceptance did not pass"
    if record.get("subject") != question["subject"]:
        return "the last acceptance was of another state of this release"
    if record.get("modulefiles", {}) != modulefiles:
        return "the modulefile has changed since the last acceptance"
    changed = sorted(key for key in question if key != "subject" and answered.get(key) != question[key])
    return "the site now asks for something else: %s" % ", ".join(changed) if changed else ""


def failure_sentence(release: str, failures: Sequence[Failure], record: str, log: str) -> tuple[str, str]:
    """What the play says when an acceptance fails: one sentence what is wrong, one what to do.

    Args:
        release: its name.
        failures: at least one; the first one is the one that explains most.
        record: path of the record.
        log: path of the log.
    """
    first = failures[0]
    more = " (and %d more in the record)" % (len(failures) - 1) if len(failures) > 1 else ""
    message = "The acceptance of %s failed at %s: %s%s." % (release, first.check, first.message.rstrip("."), more)
    return message, "%s Record: %s, log: %s." % (first.remedy, record, log)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the facts of one node mean: findings, each with its threshold, source and remedy, and what was not seen. Pure.

Facts come from health_facts.py, thresholds and expectations are data (see health_thresholds.py).
"""

from __future__ import annotations

import fnmatch
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .gpu import REPLACE, judge_gpu, subject_of
from .health_results import (
    Finding,
    failure,
    limited,
    remark,
    warning,
)
from .kernel_log import judge_log
from .network import judge_fabric, judge_storage
from .thresholds import exceeded

Facts = Mapping[str, Any]

ALL, ROWS = "nvidia-smi -q -x", "nvidia-smi --query-remapped-rows"
"""The program that tells nearly everything, and the one for drivers whose XML lacks the rows."""

SAID = {
    "missing": "is not there", "denied": "may not be run by this account", "hung": "did not end within its time",
    "failed": "failed", "endless": "printed without end", "garbage": "printed what cannot be read",
}
"""How a program ended, for a sentence."""


class Judged(NamedTuple):
    """The findings about a node, and sentences about what this look cannot have seen."""

    findings: list[Finding]
    not_seen: list[str]


def judge(facts: Facts, expected: Facts, thresholds: Facts) -> Judged:
    """Judge one node by itself.

    Args:
        facts: from ``health_facts.of``.
        expected: what a node of this site has.
        thresholds: from where on facts are findings.
    """
    log_findings, log_gaps = judge_log(facts["log"], facts["pci"], thresholds)
    findings = [
        *_parts(facts), *_driver(facts, expected), *_count(facts, expected),
        *(finding for gpu in facts["gpus"] for finding in judge_gpu(gpu, expected, thresholds)),
        *_alike(facts["gpus"]), *_buses(facts["pci"], thresholds), *log_findings,
        *judge_fabric(facts["fabric"], expected.get("fabric") or [], thresholds),
        *judge_storage(facts["storage"], thresholds),
    ]
    return Judged(findings, [*_gaps(facts), *log_gaps])


def _parts(facts: Facts) -> Iterator[Finding]:
    """Looks that brought nothing at all."""
    for name, problem in facts["problems"].items():
        if name.startswith("storage "):
            continue
        yield failure(
            "collector", name, "Looking at %s brought nothing: %s." % (name, problem.rstrip(".")),
            remedy="Look at the node: what hangs here hangs a job too.",
        )


# --- the GPUs together -----------------------------------------------------------------------------------------------


def _has_nvidia(facts: Facts, expected: Facts) -> bool:
    """Whether there should be something that nvidia-smi can tell of."""
    counts = facts["counts"]
    wanted = (expected.get("gpus") or 0) > 0 and not counts["amd"]
    return bool(counts["pci"] or counts["driver"] or counts["nvidia_smi"] or facts["nvidia"]["kernel_driver"] or wanted)


def _driver(facts: Facts, expected: Facts) -> Iterator[Finding]:
    """Whether the driver answers, and which one it is."""
    nvidia = facts["nvidia"]
    if not _has_nvidia(facts, expected):
        return
    for command, status, said in nvidia["problems"]:
        words = "%s %s%s." % (command, SAID.get(status, status), ": " + said.rstrip(".") if said else "")
        if command != ALL:
            if _is_missed(command, facts, expected):
                yield warning("nvidia_smi", command, words, status, remedy="Run it by hand on the node.")
        elif _may_be_without(facts, expected, said):
            yield remark("nvidia_smi", command, words, status, remedy="Where the release is for GPUs, say how many as "
                         "node_health_expected.gpus, and have the job ask for them.")
        else:
            yield failure("nvidia_smi", command, words, status, remedy="Without it nobody can say whether the GPUs are "
                          "well: drain the node, look at its driver (dmesg), and reboot it.")
    if nvidia["inforom"]:
        yield warning("inforom", "nvidia-smi", nvidia["inforom"].rstrip(".") + ".", remedy=REPLACE)
    found, kernel = nvidia["driver"], nvidia["kernel_driver"]
    if found and kernel and found != kernel:
        yield failure(
            "driver", "driver", "The driver in the kernel is %s, and nvidia-smi speaks of %s." % (kernel, found), found,
            remedy="Reboot the node: the driver was replaced under a running system.",
        )
    wanted = expected.get("driver")
    if wanted and (found or kernel) and not fnmatch.fnmatchcase(found or kernel, wanted):
        yield failure("driver", "driver", "The driver is %s." % (found or kernel), found or kernel, wanted,
                      "node_health_expected.driver", "Have the node's image renewed, or correct what is expected.")


def _may_be_without(facts: Facts, expected: Facts, said: str) -> bool:
    """Whether nvidia-smi may have nothing to tell, because no GPU is expected and none is for us.

    Batch systems hide the GPUs that a job has not asked for; and a card without NVIDIA's driver computes nothing.
    """
    if expected.get("gpus"):
        return False
    loaded = facts["counts"]["driver"] or facts["nvidia"]["kernel_driver"]
    return expected.get("gpus") == 0 or not loaded or "No devices were found" in said


def _is_missed(command: str, facts: Facts, expected: Facts) -> bool:
    """Whether anybody needs what a program has not told: drivers and GPUs that do not know it are many."""
    if command.startswith(ROWS):
        return any(gpu["remapped"] is None and gpu["retired"] is None for gpu in facts["gpus"])
    return expected.get("nvlinks") is not None


def _count(facts: Facts, expected: Facts) -> Iterator[Finding]:
    """How many GPUs there are, on the bus, for the driver and for this job."""
    counts, wanted = facts["counts"], expected.get("gpus")
    if counts["amd"] and not counts["pci"]:
        seen, by = counts["amd"], "on the PCI bus"
    else:
        seen, by = counts["nvidia_smi"] or 0, "by nvidia-smi"
    there = max(counts["pci"], counts["driver"])
    if wanted is None:
        if there > seen > 0:
            yield remark("gpu_count", "gpus", "nvidia-smi shows %d of the %d GPUs that the node has: the job has not "
                         "asked for all, or one is lost." % (seen, there), seen, there)
        return
    subject, source = "gpus", "node_health_expected.gpus"
    if seen < wanted:
        if counts["nvidia_smi"] is None and not counts["amd"]:
            # Why is said by _driver, where nvidia-smi was asked at all.
            note = "" if counts["pci"] else ", and none is on the PCI bus"
            said = "No GPU can be seen where %d are expected%s." % (wanted, note)
            yield failure("gpu_count", subject, said, 0, wanted, source,
                          "Take another node, or correct what is expected.")
        elif there >= wanted:
            yield failure(
                "gpu_count", subject, "%d GPUs are seen %s of the %d that are expected; on the bus are %d." % (
                    seen, by, wanted, there), seen, wanted, source,
                "Have the job ask for all GPUs of the node (torchstack_jobs.options.gpus); where it does, one is lost: "
                "drain the node.")
        else:
            yield failure("gpu_count", subject, "%d GPUs are seen %s where %d are expected; on the bus are %d." % (
                seen, by, wanted, there), seen, wanted, source, "Drain the node: a GPU has fallen off the bus.")
    elif seen > wanted:
        said = "%d GPUs are seen %s where %d are expected." % (seen, by, wanted)
        yield warning("gpu_count", subject, said, seen, wanted, source,
                      "Correct what is expected, or ask for nodes of the kind that is.")


def _alike(gpus: Sequence[Facts]) -> Iterator[Finding]:
    """GPUs of one model that differ where they should not."""
    for model in sorted({gpu["name"] for gpu in gpus}):
        same = [gpu for gpu in gpus if gpu["name"] == model]
        active = {gpu["index"]: sum(link["speed"] is not None for link in gpu["nvlinks"]) for gpu in same}
        most = max(active.values())
        for gpu in same:
            if active[gpu["index"]] < most:
                own = active[gpu["index"]]
                said = "%d links of NVLink are up, and %d on another %s of this node." % (own, most, model)
                # One without any is a card without a bridge, perhaps; one that has lost some is not.
                severity = failure if gpu["nvlinks"] else warning
                yield severity("nvlink", subject_of(gpu), said, own, most, "the node's other GPUs", REPLACE)
        for key, words in (("ecc", "ECC"), ("mig", "MIG mode")):
            values = {gpu[key] for gpu in same}
            if len(values) > 1:
                yield warning(key, model, "%s is on with some of the GPUs and off with others." % words,
                              remedy="Set them alike: jobs that use all of them see different GPUs.")


# --- the bus ---------------------------------------------------------------------------------------------------------


def _buses(devices: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Links of devices that nvidia-smi does not tell of, and errors that the kernel counts of all."""
    for device in devices:
        if device["kind"] not in ("gpu", "fabric"):
            continue
        subject = "%s (%s)" % ("gpu" if device["kind"] == "gpu" else device["driver"] or "adapter", device["address"])
        if device["kind"] == "fabric" or device["vendor"] != "0x10de":
            for key, words, unit in (("width", "lanes of PCIe", ""), ("speed", "GT/s", "")):
                value, best = device[key], device[key + "_max"]
                idle = key == "speed" and device["kind"] == "gpu"
                if value and best and value < best and not idle:
                    yield warning("pcie", subject, "It uses %g %s of %g%s." % (value, words, best, unit), value, best,
                                  "what the device can do (sysfs)", "Have the card seated anew, or look at its slot.")
        bad = sum(device["errors"][name] or 0 for name in ("nonfatal", "fatal"))
        limit = exceeded(thresholds, "pcie_uncorrected", bad)
        if limit:
            yield limited(limit, "pcie", subject, "PCIe has reported %d errors that were not corrected." % bad, bad,
                          "Have the card seated anew; where it comes back, have it replaced.")


def _gaps(facts: Facts) -> Iterator[str]:
    """What this look cannot have seen of the GPUs."""
    if facts["counts"]["amd"]:
        yield ("GPUs of AMD were counted, and their PCIe links and the kernel's log looked at; rocm-smi was not asked, "
               "as nobody has recorded its answers for this collection.")
    linked = [gpu for gpu in facts["gpus"] if gpu["nvlinks"]]
    if facts["gpus"] and not linked:
        yield "nvidia-smi tells of no NVLink: these GPUs have none, or none that is connected."
    if facts["gpus"] and all(count is None for gpu in facts["gpus"] for count in gpu["errors"]["volatile"].values()):
        yield "The driver tells of no errors of memory: ECC is off, or these GPUs have none."

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the facts of one node (see facts.py) by thresholds and expectations; list what was not seen. Pure."""

from __future__ import annotations

import fnmatch
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .gpu import REPLACE, check_gpu, gpu_subject
from .kernel_log import check_log
from .network import check_fabric, check_storage
from .thresholds import Finding, exceeding, failure, remark, warning

Facts = Mapping[str, Any]

QUERY_ALL, QUERY_ROWS = "nvidia-smi -q -x", "nvidia-smi --query-remapped-rows"
"""The program that tells nearly everything, and the one for drivers whose XML lacks the rows."""

STATUS_TEXT = {
    "missing": "is not there", "denied": "may not be run by this account", "hung": "did not end within its time",
    "failed": "failed", "endless": "printed without end", "garbage": "printed what cannot be read",
}
"""How a program ended, for a sentence."""


class NodeFindings(NamedTuple):
    """Hold the findings about a node, and sentences about what was not seen."""

    findings: list[Finding]
    not_seen: list[str]


def check_node(facts: Facts, expected: Facts, thresholds: Facts) -> NodeFindings:
    """Check one node by itself."""
    log_findings, log_gaps = check_log(facts["log"], facts["pci"], thresholds)
    findings = [
        *_uncollected_parts(facts), *_check_driver(facts, expected), *_check_gpu_count(facts, expected),
        *(finding for gpu in facts["gpus"] for finding in check_gpu(gpu, expected, thresholds)),
        *_compare_gpus(facts["gpus"]), *_check_pci(facts["pci"], thresholds), *log_findings,
        *check_fabric(facts["fabric"], expected.get("fabric") or [], thresholds),
        *check_storage(facts["storage"], thresholds),
    ]
    return NodeFindings(findings, [*_list_gaps(facts), *log_gaps])


def _uncollected_parts(facts: Facts) -> Iterator[Finding]:
    """Report parts that could not be collected at all."""
    for name, problem in facts["problems"].items():
        if not name.startswith("storage "):
            yield failure("collector", name, "Looking at %s brought nothing: %s." % (name, problem.rstrip(".")),
                          remedy="Look at the node: what hangs here hangs a job too.")


# --- the GPUs together -----------------------------------------------------------------------------------------------


def _has_nvidia(facts: Facts, expected: Facts) -> bool:
    """Tell whether there should be something that nvidia-smi can report."""
    counts = facts["counts"]
    wanted = (expected.get("gpus") or 0) > 0 and not counts["amd"]
    return bool(counts["pci"] or counts["driver"] or counts["nvidia_smi"] or facts["nvidia"]["kernel_driver"] or wanted)


def _check_driver(facts: Facts, expected: Facts) -> Iterator[Finding]:
    """Check whether the driver answers, and which one it is."""
    nvidia = facts["nvidia"]
    if not _has_nvidia(facts, expected):
        return
    for command, status, said in nvidia["problems"]:
        words = "%s %s%s." % (command, STATUS_TEXT.get(status, status), ": " + said.rstrip(".") if said else "")
        if command != QUERY_ALL:
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
        said = "The driver in the kernel is %s, and nvidia-smi speaks of %s." % (kernel, found)
        yield failure("driver", "driver", said, found,
                      remedy="Reboot the node: the driver was replaced under a running system.")
    wanted = expected.get("driver")
    if wanted and (found or kernel) and not fnmatch.fnmatchcase(found or kernel, wanted):
        yield failure("driver", "driver", "The driver is %s." % (found or kernel), found or kernel, wanted,
                      "node_health_expected.driver", "Have the node's image renewed, or correct what is expected.")


def _may_be_without(facts: Facts, expected: Facts, said: str) -> bool:
    """Tell whether nvidia-smi may report nothing, because no GPU is expected and none is for this job.

    Batch systems hide the GPUs that a job has not asked for; and a card without NVIDIA's driver computes nothing.
    """
    if expected.get("gpus"):
        return False
    loaded = facts["counts"]["driver"] or facts["nvidia"]["kernel_driver"]
    return expected.get("gpus") == 0 or not loaded or "No devices were found" in said


def _is_missed(command: str, facts: Facts, expected: Facts) -> bool:
    """Tell whether a program's missing answer matters: many drivers and GPUs do not know it."""
    if command.startswith(QUERY_ROWS):
        return any(gpu["remapped"] is None and gpu["retired"] is None for gpu in facts["gpus"])
    return expected.get("nvlinks") is not None


def _check_gpu_count(facts: Facts, expected: Facts) -> Iterator[Finding]:
    """Check the number of GPUs: on the bus, for the driver and for this job."""
    counts, wanted = facts["counts"], expected.get("gpus")
    seen, by = counts["nvidia_smi"] or 0, "by nvidia-smi"
    if counts["amd"] and not counts["pci"]:
        seen, by = counts["amd"], "on the PCI bus"
    there = max(counts["pci"], counts["driver"])
    if wanted is None:
        if there > seen > 0:
            yield remark("gpu_count", "gpus", "nvidia-smi shows %d of the %d GPUs that the node has: the job has not "
                         "asked for all, or one is lost." % (seen, there), seen, there)
        return
    subject, source = "gpus", "node_health_expected.gpus"
    if seen < wanted:
        if counts["nvidia_smi"] is None and not counts["amd"]:
            # _driver reports why, where nvidia-smi was run at all.
            note = "" if counts["pci"] else ", and none is on the PCI bus"
            said = "No GPU can be seen where %d are expected%s." % (wanted, note)
            yield failure("gpu_count", subject, said, 0, wanted, source,
                          "Take another node, or correct what is expected.")
        elif there >= wanted:
            said = "%d GPUs are seen %s of the %d that are expected; on the bus are %d." % (seen, by, wanted, there)
            yield failure("gpu_count", subject, said, seen, wanted, source, "Have the job ask for all GPUs of the node "
                          "(torchstack_jobs.options.gpus); where it does, one is lost: drain the node.")
        else:
            said = "%d GPUs are seen %s where %d are expected; on the bus are %d." % (seen, by, wanted, there)
            yield failure("gpu_count", subject, said, seen, wanted, source,
                          "Drain the node: a GPU has fallen off the bus.")
    elif seen > wanted:
        said = "%d GPUs are seen %s where %d are expected." % (seen, by, wanted)
        yield warning("gpu_count", subject, said, seen, wanted, source,
                      "Correct what is expected, or ask for nodes of the kind that is.")


def _compare_gpus(gpus: Sequence[Facts]) -> Iterator[Finding]:
    """Compare GPUs of one model that should not differ."""
    for model in sorted({gpu["name"] for gpu in gpus}):
        same = [gpu for gpu in gpus if gpu["name"] == model]
        active = {gpu["index"]: sum(link["speed"] is not None for link in gpu["nvlinks"]) for gpu in same}
        most = max(active.values())
        for gpu in same:
            own = active[gpu["index"]]
            if own < most:
                said = "%d links of NVLink are up, and %d on another %s of this node." % (own, most, model)
                # A card without any link may lack a bridge; one with fewer links has lost some.
                severity = failure if gpu["nvlinks"] else warning
                yield severity("nvlink", gpu_subject(gpu), said, own, most, "the node's other GPUs", REPLACE)
        for key, words in (("ecc", "ECC"), ("mig", "MIG mode")):
            values = {gpu[key] for gpu in same}
            if len(values) > 1:
                yield warning(key, model, "%s is on with some of the GPUs and off with others." % words,
                              remedy="Set them alike: jobs that use all of them see different GPUs.")


# --- the bus ---------------------------------------------------------------------------------------------------------


def _check_pci(devices: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Check links of devices that nvidia-smi does not report, and PCIe errors of all."""
    for device in devices:
        if device["kind"] not in ("gpu", "fabric"):
            continue
        subject = "%s (%s)" % ("gpu" if device["kind"] == "gpu" else device["driver"] or "adapter", device["address"])
        if device["kind"] == "fabric" or device["vendor"] != "0x10de":
            for key, words in (("width", "lanes of PCIe"), ("speed", "GT/s")):
                value, best = device[key], device[key + "_max"]
                idle = key == "speed" and device["kind"] == "gpu"
                if value and best and value < best and not idle:
                    yield warning("pcie", subject, "It uses %g %s of %g." % (value, words, best), value, best,
                                  "what the device can do (sysfs)", "Have the card seated anew, or look at its slot.")
        yield from exceeding(
            thresholds, "pcie_uncorrected", sum(device["errors"][name] or 0 for name in ("nonfatal", "fatal")), "pcie",
            subject, "PCIe has reported %d errors that were not corrected.",
            "Have the card seated anew; where it comes back, have it replaced.")


def _list_gaps(facts: Facts) -> Iterator[str]:
    """List what was not seen of the GPUs."""
    if facts["counts"]["amd"]:
        yield ("GPUs of AMD were counted, and their PCIe links and the kernel's log looked at; rocm-smi was not asked, "
               "as nobody has recorded its answers for this collection.")
    linked = [gpu for gpu in facts["gpus"] if gpu["nvlinks"]]
    if facts["gpus"] and not linked:
        yield "nvidia-smi tells of no NVLink: these GPUs have none, or none that is connected."
    if facts["gpus"] and all(count is None for gpu in facts["gpus"] for count in gpu["errors"]["volatile"].values()):
        yield "The driver tells of no errors of memory: ECC is off, or these GPUs have none."

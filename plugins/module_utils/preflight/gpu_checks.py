# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the GPUs of a compute node and their driver against the site's data. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.findings import Finding, error, note, warning

Facts = Mapping[str, Any]

DRIVERS = {10: (440, 33), 11: (450,), 12: (525,), 13: (580,)}
"""The oldest driver for Linux that runs programs of any toolkit of a major version; of 10, those of the last one.

NVIDIA, CUDA Compatibility, "Minor Version Compatibility", tables 1 and 2.
"""

FIRST_MINOR_COMPATIBLE = 11
"""From this major version on, programs of a newer minor version run on the driver of an older one, with limits."""


def judge_gpus(facts: Facts, host: str, toolkit: str, expected: int) -> list[Finding]:
    """Check whether as many GPUs as expected are there, and their driver runs what the toolkit (empty: none) makes."""
    check = "compute.gpus"
    if not toolkit and not expected:
        return [note(check, "GPUs and their driver were not checked: the site's data speaks of none.")]
    if facts["cuda"] is None and not facts["driver"]:
        text = "%s has no driver of NVIDIA%s" % (host, ": " + facts["problem"] if facts["problem"] else "")
        if toolkit:
            return [error(check, text + ".",
                          "Ask for a node with GPUs (torchstack_jobs.options), or take node.cuda out.")]
        return [warning(check, text + "; its GPUs were not looked at.",
                        "Name the toolkit as torchstack_jobs.node.cuda, unless the GPUs are another maker's.")]
    findings = [] if not facts["problem"] else [
        error(check, "The driver on %s is not usable: %s." % (host, facts["problem"]),
              "Have the site's staff look at that node, or ask for another one.")]
    count = facts["count"]
    if expected and count is not None and count < expected:
        findings.append(error(check, "A job sees %d GPUs on %s, and asks for %d." % (count, host, expected),
                              "Correct torchstack_jobs.options, where the batch system wants other words for them."))
    return findings + (judge_driver(facts, host, toolkit) if toolkit else []) or [
        note(check, "%s has %s." % (host, _describe_gpus(facts)))]


def judge_driver(facts: Facts, host: str, toolkit: str) -> list[Finding]:
    """Check whether a driver runs the programs of a CUDA toolkit."""
    check = "compute.driver"
    major, minor = (int(part) for part in toolkit.split(".")[:2])
    driver = "the driver %s on %s" % (facts["driver"] or "of unknown version", host)
    remedy = "Build with an older toolkit, have the driver renewed, or load NVIDIA's forward compatibility package."
    if facts["cuda"] is not None:
        speaks = (facts["cuda"] // 1000, facts["cuda"] % 1000 // 10)
        what = "%s speaks CUDA %d.%d" % (driver[0].upper() + driver[1:], *speaks)
        if speaks >= (major, minor):
            return [note(check, "%s, which runs programs of CUDA %s." % (what, toolkit))]
        if speaks[0] == major >= FIRST_MINOR_COMPATIBLE:
            return [warning(
                check, "%s, and the toolkit is %s: programs run, but the driver cannot compile the toolkit's PTX for a "
                "GPU that they were not built for." % (what, toolkit),
                "Name every architecture of the site's GPUs in the build (TORCH_CUDA_ARCH_LIST).")]
        return [error(check, "%s, which does not run programs of CUDA %s." % (what, toolkit), remedy)]
    oldest = DRIVERS.get(major)
    found = tuple(int(part) for part in facts["driver"].split(".") if part.isdigit())
    if not oldest or not found:
        return [note(check, "It is not known whether %s runs programs of CUDA %s." % (driver, toolkit))]
    if found < oldest:
        return [error(check, "%s does not run programs of CUDA %s, which needs %s or newer." % (
            driver[0].upper() + driver[1:], toolkit, ".".join(map(str, oldest))), remedy)]
    return [note(check, "%s runs programs of CUDA %d." % (driver[0].upper() + driver[1:], major))]


def _describe_gpus(facts: Facts) -> str:
    names = list(dict.fromkeys(facts["names"]))
    count = "GPUs" if facts["count"] is None else "%d GPU%s" % (facts["count"], "" if facts["count"] == 1 else "s")
    return count + (" (%s)" % ", ".join(names) if names else "")

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check one GPU of NVIDIA: its memory, its links, its clocks and its modes. Pure."""

from __future__ import annotations

import fnmatch
from typing import Any, Iterator, Mapping

from .thresholds import (
    Finding,
    exceeded_limit,
    exceeding,
    failure,
    limit_finding,
    listed_limit,
    remark,
    warning,
)

Facts = Mapping[str, Any]

RESET = "Drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot; where it comes back, have it replaced."
ACTIONS = ("Reset", "Reboot", "Drain P2P", "Drain and Reset")
"""What the driver may ask for (nvidia-smi(1), "GPU Recovery Action")."""

REPLACE = "Drain the node and have the GPU looked at by the vendor."

SINCE = {"volatile": ("since the driver was loaded", RESET), "aggregate": ("in its life", REPLACE)}
"""From when on errors of memory are counted, and what helps."""


def gpu_subject(gpu: Facts) -> str:
    """Name a GPU for a sentence."""
    return "gpu %d (%s)" % (gpu["index"], gpu["address"])


def check_gpu(gpu: Facts, expected: Facts, thresholds: Facts) -> Iterator[Finding]:
    """Check one GPU."""
    subject = gpu_subject(gpu)
    if gpu["broken"]:
        yield failure("gpu", subject, "The driver says of it: %s." % gpu["broken"], gpu["broken"], remedy=RESET)
    model = expected.get("gpu_model")
    if model and not fnmatch.fnmatch(gpu["name"].lower(), model.lower()):
        yield failure("gpu_model", subject, "It is a %s." % (gpu["name"] or "GPU without a name"), gpu["name"], model,
                      "node_health_expected.gpu_model", "Ask for nodes of the kind that is expected, or correct that.")
    if expected.get("vbios") and gpu["vbios"] not in expected["vbios"]:
        yield failure("vbios", subject, "Its VBIOS is %s." % gpu["vbios"], gpu["vbios"], ", ".join(expected["vbios"]),
                      "node_health_expected.vbios", "Have it flashed, or correct what is expected.")
    yield from _check_memory(gpu, subject, thresholds)
    yield from _check_rows(gpu, subject, thresholds)
    yield from _check_nvlinks(gpu, subject, expected, thresholds)
    yield from _check_pcie(gpu, subject, expected, thresholds)
    for reason in gpu["throttled"]:
        limit = listed_limit(thresholds, "throttling", reason)
        if limit:
            said = "Its clocks are lowered: %s." % reason.replace("_", " ")
            degrees = "" if gpu["temperature"] is None else " (%d C)" % gpu["temperature"]
            yield limit_finding(limit, "throttling", subject, said, reason,
                                "Look at temperature%s, power supply and cooling of the node." % degrees)
    yield from _check_modes(gpu, subject, expected)


def _check_memory(gpu: Facts, subject: str, thresholds: Facts) -> Iterator[Finding]:
    """Check errors of its memory."""
    for period, counts in gpu["errors"].items():
        for name, value in counts.items():
            memory, kind = name.split("_")
            threshold = "ecc_%s_corrected" % memory if kind == "corrected" else "ecc_%s_%s" % (name, period)
            since, remedy = SINCE[period]
            said = "%%d errors in %s were %s %s." % (memory.upper(), kind, since)
            yield from exceeding(thresholds, threshold, value, "ecc", subject, said, remedy)
    if gpu["sram_threshold_exceeded"]:
        yield failure("ecc", subject, "It says itself that its SRAM has had too many errors.", True, remedy=REPLACE)
    if gpu["unrepairable_memory"]:
        yield failure("ecc", subject, "It has memory that cannot be repaired.", True, remedy=REPLACE)
    for kind in gpu["repair_pending"]:
        yield failure("ecc", subject, "A repair (%s) waits for a reset." % kind, kind, remedy=RESET)
    if gpu["recovery_action"]:
        grade = failure if gpu["recovery_action"] in ACTIONS else remark
        yield grade("recovery", subject, "The driver asks for: %s." % gpu["recovery_action"], gpu["recovery_action"],
                    remedy=RESET)


def _check_rows(gpu: Facts, subject: str, thresholds: Facts) -> Iterator[Finding]:
    """Check remapped rows, on Ampere and later, and retired pages, before."""
    rows, pages = gpu["remapped"], gpu["retired"]
    if rows:
        for key, message, remedy in (
            ("pending", "Remapped rows wait for a reset of the GPU.", RESET),
            ("failure", "A row could not be remapped.", REPLACE),
        ):
            limit = exceeded_limit(thresholds, "remapped_rows_" + key, None if rows[key] is None else int(rows[key]))
            if limit:
                yield limit_finding(limit, "remapped_rows", subject, message, True, remedy)
        yield from exceeding(
            thresholds, "remapped_rows_uncorrectable", rows["uncorrectable"], "remapped_rows", subject,
            "%d rows were remapped for errors that could not be corrected.", REPLACE)
    if pages:
        yield from exceeding(
            thresholds, "retired_pages", (pages["single_bit"] or 0) + (pages["double_bit"] or 0), "retired_pages",
            subject, "%d pages of its memory are retired.", REPLACE)
        limit = exceeded_limit(thresholds, "retired_pages_pending", int(bool(pages["pending"])))
        if limit:
            yield limit_finding(limit, "retired_pages", subject, "Pages wait to be retired.", True, RESET)


def _check_nvlinks(gpu: Facts, subject: str, expected: Facts, thresholds: Facts) -> Iterator[Finding]:
    """Check its NVLinks: how many are up, how fast, and their errors."""
    up = [link for link in gpu["nvlinks"] if link["speed"] is not None]
    wanted = expected.get("nvlinks")
    if wanted is not None and len(up) < wanted:
        down = ", ".join(str(link["link"]) for link in gpu["nvlinks"] if link["speed"] is None)
        yield failure("nvlink", subject, "%d links of NVLink are up%s." % (
            len(up), ", and these are not: " + down if down else ""), len(up), wanted, "node_health_expected.nvlinks",
            "Drain the node; look at its fabric manager and at Xid 74 in its log.")
    speed = expected.get("nvlink_speed")
    slow = [link for link in up if speed is not None and link["speed"] < speed]
    if slow:
        yield failure("nvlink", subject, "%d links of NVLink are slow, the first of them, %d, has %g GB/s." % (
            len(slow), slow[0]["link"], slow[0]["speed"]), slow[0]["speed"], speed, "node_health_expected.nvlink_speed",
            "Drain the node and have it looked at.")
    for name in sorted({name for link in gpu["nvlinks"] for name in link["errors"]}):
        counted = {link["link"]: link["errors"].get(name, 0) for link in gpu["nvlinks"]}
        worst = max(counted, key=lambda link: counted[link])
        known = name.lower() in ("replay", "recovery", "crc")
        limit = exceeded_limit(thresholds, "nvlink_" + (name.lower() if known else "other"), counted[worst])
        # NVLink 5 also counts links that were retrained successfully.
        if limit and "successful" not in name:
            said = "Link %d of NVLink has counted %d (%s), all of its links %d." % (
                worst, counted[worst], name, sum(counted.values()))
            yield limit_finding(
                limit, "nvlink_errors", subject, said, counted[worst],
                "Have the counters cleared; where they grow again, drain the node and have the link looked at.")
    for name, good in (("state", "Completed"), ("status", "Success")):
        found = gpu["fabric_" + name]
        if found and found.lower() not in (good.lower(), "not supported"):
            yield failure("nvlink_fabric", subject, "The fabric manager's %s is %s." % (name, found), found, good,
                          "nvidia-smi(1)", "Look at nvidia-fabricmanager on the node.")


def _check_pcie(gpu: Facts, subject: str, expected: Facts, thresholds: Facts) -> Iterator[Finding]:
    """Check its link to the host; an idle GPU lowers the generation, so only the possible one is judged."""
    link = gpu["pcie"]
    wanted, width = expected.get("pcie_width"), link["width"]
    if width is not None and wanted is not None and width < wanted:
        yield failure("pcie", subject, "It has %d lanes of PCIe." % width, width, wanted,
                      "node_health_expected.pcie_width", "Have the card seated anew, or the riser looked at.")
    elif width is not None and wanted is None and width < (link["width_max"] or 0):
        yield warning("pcie", subject, "It uses %d lanes of PCIe of %d." % (width, link["width_max"]), width,
                      link["width_max"], "what the card and its slot can do", "Have the card seated anew.")
    generation, best = expected.get("pcie_generation"), link["generation_max"]
    if generation is not None and best is not None and best < generation:
        yield failure("pcie", subject, "Its link cannot do more than generation %d of PCIe." % best, best, generation,
                      "node_health_expected.pcie_generation", "Look at the settings of the node's firmware.")
    yield from exceeding(thresholds, "pcie_replays", link["replays"], "pcie", subject,
                         "%d packets of PCIe were sent again.", "Where it grows, have the card seated anew.")


def _check_modes(gpu: Facts, subject: str, expected: Facts) -> Iterator[Finding]:
    """Check how it is set up: a remark, unless no rank could use it."""
    if gpu["compute_mode"] == "Prohibited":
        yield failure("compute_mode", subject, "No program may compute on it (compute mode Prohibited).", "Prohibited",
                      remedy="Set the compute mode to Default.")
    elif gpu["compute_mode"] not in ("", "Default"):
        yield remark("compute_mode", subject, "Its compute mode is %s." % gpu["compute_mode"], gpu["compute_mode"])
    if gpu["mig"] is not None and expected.get("mig") is not None and gpu["mig"] != expected["mig"]:
        yield failure("mig", subject, "MIG is %s." % ("on" if gpu["mig"] else "off"), gpu["mig"], expected["mig"],
                      "node_health_expected.mig", "Set it as the site wants it, with a reset of the GPU.")
    elif gpu["mig"] and expected.get("mig") is None:
        yield remark("mig", subject, "It is divided (MIG): NCCL does not join instances of one GPU.", True)
    if gpu["persistence"] is False:
        yield remark("persistence", subject, "Persistence mode is off: the first program on an idle GPU waits for it.",
                     False, remedy="Run nvidia-persistenced on the nodes.")
    if gpu["ecc"] is False:
        yield remark("ecc", subject, "ECC is off: wrong bits in its memory are not noticed.", False)
    if gpu["ecc_pending"] is not None and gpu["ecc"] is not None and gpu["ecc_pending"] != gpu["ecc"]:
        yield remark("ecc", subject, "ECC will be %s after a reset." % ("on" if gpu["ecc_pending"] else "off"))
    if gpu["processes"]:
        yield remark("processes", subject, "%d processes use it already." % gpu["processes"], gpu["processes"])

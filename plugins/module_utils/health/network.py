# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check network adapters and file systems of a node. Pure."""

from __future__ import annotations

import fnmatch
from typing import Any, Iterator, Mapping, Sequence

from .thresholds import (
    SEVERITIES,
    Finding,
    Limit,
    exceeded_limit,
    exceeding,
    failure,
    limit_finding,
    remark,
    warning,
)

Facts = Mapping[str, Any]

UP = {"infiniband": "ACTIVE", "cxi": "up", "net": "up"}
"""State of a port that works, by kind; that of Slingshot as HPE's cxi_stat shows it (unverified on a machine)."""

REFUSED = ("Read-only file system", "Permission denied")
"""Errors that say nothing about a file system's health: software is often mounted read-only on compute nodes."""

_SOURCE = "node_health_expected.fabric"


def check_fabric(fabric: Facts, expected: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Check the ports that are expected, and the counters of all.

    Args:
        expected: entries with ``kind``, and any of ``devices``, ``name`` (a glob), ``rate`` (Gb/s), ``mtu``.
    """
    for entry in expected:
        yield from _check_expected(fabric, entry)
    for port in fabric["infiniband"]:
        yield from _check_counters(port, thresholds)
    wanted = {entry["kind"] for entry in expected}
    for kind in ("infiniband", "cxi"):
        for port in fabric[kind]:
            if not _is_up(kind, port) and kind not in wanted:
                yield remark("fabric", port["name"], "Its port is %s." % (port["state"] or "in an unknown state"),
                             port["state"], UP[kind])
    for device in fabric["cxi"]:
        yield from exceeding(
            thresholds, "cxi_uncorrected", device["counters"].get("hni_pcs_uncorrected_cw", 0), "fabric_counters",
            device["name"], "%d codewords could not be corrected since it was started.",
            "Have the rate looked at (cxi_stat --rates).")


def _is_up(kind: str, port: Facts) -> bool:
    return port["state"].lower() == UP[kind].lower()


def _check_expected(fabric: Facts, entry: Facts) -> Iterator[Finding]:
    kind, name = entry["kind"], entry.get("name") or "*"
    ports = [port for port in fabric[kind] if fnmatch.fnmatchcase(port["name"], name)]
    up = [port for port in ports if _is_up(kind, port)]
    unknown = [port for port in ports if not port["state"]]
    words = "%s%s" % (kind, "" if name == "*" else " " + name)
    count = entry.get("devices")
    for port in unknown:
        yield warning("fabric", port["name"], "The kernel does not say whether its port is up.", None, UP[kind],
                      _SOURCE, "Look at the adapter by the vendor's own program.")
    down = [port for port in ports if port not in up and port not in unknown]
    if count is not None and len(up) + len(unknown) < count:
        bad = ", ".join("%s is %s" % (port["name"], port["state"]) for port in down)
        said = "%d ports of %s are up%s." % (len(up), words, "; " + bad if bad else "")
        yield failure("fabric", words, said, len(up), count, _SOURCE,
                      "Drain the node, and look at its adapters and cables.")
    elif count is None:
        for port in down:
            yield failure("fabric", port["name"], "Its port is %s." % port["state"], port["state"], UP[kind],
                          _SOURCE, "Look at the adapter and its cable.")
    for port in up:
        # The speed of Slingshot is a word, such as BS_200G.
        digits = "".join(filter(str.isdigit, str(port.get("speed") or "")))
        rate = port.get("rate") if kind == "infiniband" else _gigabits(kind, port, digits)
        if entry.get("rate") is not None and rate is not None and rate < entry["rate"]:
            yield failure("fabric", port["name"], "Its rate is %g Gb/s." % rate, rate, entry["rate"], _SOURCE,
                          "Look at the adapter and its cable: the link was trained to less than it can do.")
        if entry.get("mtu") is not None and port.get("mtu") is not None and port["mtu"] != entry["mtu"]:
            yield warning("fabric", port["name"], "Its MTU is %d." % port["mtu"], port["mtu"], entry["mtu"], _SOURCE,
                          "Have it set alike on all nodes.")


def _gigabits(kind: str, port: Facts, digits: str) -> float | None:
    """Compute Gb/s of a port; an interface says Mb/s, and -1 where it does not know."""
    if not digits:
        return None
    if kind == "net":
        return port["speed"] / 1000 if port["speed"] > 0 else None
    return float(digits)


def _check_counters(port: Facts, thresholds: Facts) -> Iterator[Finding]:
    rule = thresholds.get("infiniband_counters") or {}
    for name, value in sorted(port["counters"].items()):
        for severity in SEVERITIES:
            limit = (rule.get(severity) or {}).get(name)
            if limit is not None and value > limit:
                yield limit_finding(
                    Limit(severity, limit, rule["source"]), "fabric_counters", port["name"],
                    "%s has counted %d since it was cleared." % (name, value), value,
                    "Have the counter cleared; where it grows again, look at the cable and at the switch's port.")
                break


def check_storage(tried: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Check how long file systems take for small files."""
    for place in tried:
        where = "%s (%s)" % (place["directory"], place["kind"] or "unknown file system")
        if place["problem"] in REFUSED:
            yield remark("storage", where, "Small files could not be tried out there: %s." % place["problem"],
                         remedy="Name a directory in node_health_directories that jobs may write to.")
            continue
        if place["problem"]:
            said = "Small files could not be tried out there: %s." % place["problem"].rstrip(".")
            yield failure("storage", where, said,
                          remedy="Where jobs write there, mount it on the node; else leave it out of "
                          "node_health_directories.")
            continue
        for operation, times in place["operations"].items():
            limit = exceeded_limit(thresholds, "metadata_" + operation, times["median"])
            if limit:
                said = "To %s a small file takes %.3g ms (median of %d; p99 %.3g)." % (
                    operation, times["median"], place["files"], times["p99"])
                yield limit_finding(
                    limit, "storage", where, said, times["median"],
                    "Keep software and small files on a file system made for them; data sets as few large files.")

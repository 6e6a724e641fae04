# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check a node's kernel log for Xid of NVIDIA's driver, and messages that the thresholds name. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

from .nvidia_smi import pci_address
from .thresholds import FAILURE, REMARK, WARNING, Finding, listed_limit

Facts = Mapping[str, Any]

START_SECONDS = 60.0
"""A log whose first line is of the first minute after the boot has lost none."""

_XID_REMEDY = ("Look the number up in NVIDIA's list of Xid errors; what is a failure here wants a reset of the GPU, "
               "and where it comes back, another GPU.")

_PLACE = re.compile(r"(?<![\w:])((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?!\w)")


def check_log(log: Facts, devices: Sequence[Facts], thresholds: Facts) -> tuple[list[Finding], list[str]]:
    """Check the log; also return sentences about what it cannot tell."""
    findings = [*_check_xids(log["xids"], thresholds), *_check_messages(log["lines"], devices, thresholds)]
    return findings, list(_list_gaps(log))


def _list_gaps(log: Facts) -> Iterator[str]:
    if not log["source"]:
        tried = "; ".join("%s: %s" % (name, why.rstrip(".")) for name, why in log["tried"].items())
        yield ("The kernel's log was not seen, and so no Xid nor other message of it%s. Root sees it, and everybody "
               "where kernel.dmesg_restrict is 0; journalctl lets the group systemd-journal see it." % (
                   " (%s)" % tried if tried else ""))
        return
    if log["since"] is not None and log["since"] > START_SECONDS:
        yield "The kernel's log begins %.1f hours after the boot: what came before has been overwritten." % (
            log["since"] / 3600)
    if log["left_out"]:
        yield "%d older messages of the kernel were left out." % log["left_out"]


def _severity_by_age(severity: str, hours: float | None, limit: float | None) -> str:
    """Lower a failure that is too long ago to a warning."""
    old = hours is not None and limit is not None and hours > limit
    return WARNING if old and severity == FAILURE else severity


def _format_age(hours: float | None, same: Sequence[Any]) -> str:
    """Format how long ago the last of some messages was, and how many they are."""
    times = "" if len(same) == 1 else ", %d times" % len(same)
    if hours is None:
        return times
    return (" %.1f hours ago" % hours if hours >= 1 else " %.0f minutes ago" % (hours * 60)) + times


def _check_xids(events: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Report each number of each GPU or switch once, with the latest message."""
    together: dict[tuple[bool, str, int], list[Facts]] = {}
    for event in events:
        together.setdefault((event["switch"], event["address"], event["xid"]), []).append(event)
    for (switch, place, number), same in sorted(together.items()):
        name, last = "sxid" if switch else "xid", same[-1]
        rule = listed_limit(thresholds, name, number)
        if rule is None:
            continue
        severity = rule.severity
        if switch and severity == REMARK:
            severity = FAILURE if any(event["fatal"] for event in same) else WARNING
        severity = _severity_by_age(severity, last["hours"], thresholds[name].get("hours"))
        said = "%s %d%s: %s" % ("SXid" if switch else "Xid", number, _format_age(last["hours"], same), last["text"])
        subject, remedy = "%s (%s)" % ("switch" if switch else "gpu", place), _XID_REMEDY if severity == FAILURE else ""
        yield Finding(severity, name, subject, said, number, None, rule.source, remedy)


def _check_messages(lines: Sequence[Sequence[Any]], devices: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Report each rule and device once, with the latest message; of other devices as a remark."""
    known = {device["address"]: device["kind"] in ("gpu", "fabric") for device in devices}
    for rule in thresholds.get("kernel_messages") or ():
        together: dict[str, list[Sequence[Any]]] = {}
        for line in lines:
            if re.search(rule["match"], line[1]):
                device = _PLACE.search(line[1])
                together.setdefault(pci_address(device.group(1)) if device else "", []).append(line)
        for place, same in sorted(together.items()):
            hours, text = same[-1]
            severity = _severity_by_age(rule["severity"], hours, rule.get("hours"))
            if place and not known.get(place, False) and severity == WARNING:
                severity = REMARK
            yield Finding(
                severity, "kernel", place or "kernel", "The kernel said%s: %s" % (_format_age(hours, same), text), text,
                None, rule["source"], rule.get("remedy") or "Look at the node's log around it.")

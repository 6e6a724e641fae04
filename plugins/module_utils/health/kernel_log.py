# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the kernel's log of a node means: Xid of NVIDIA's driver, and messages that the thresholds name. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

from .health_results import Finding
from .nvidia_smi import address
from .thresholds import (
    FAILURE,
    REMARK,
    WARNING,
    named,
)

Facts = Mapping[str, Any]

START_SECONDS = 60.0
"""A log whose first line is of the first minute after the boot has lost none."""

_XID_REMEDY = (
    "Look the number up in NVIDIA's list of Xid errors; what is a failure here wants a reset of the GPU, and where it "
    "comes back, another GPU."
)

_PLACE = re.compile(r"(?<![\w:])((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?!\w)")


def judge_log(log: Facts, devices: Sequence[Facts], thresholds: Facts) -> tuple[list[Finding], list[str]]:
    """The findings of the log, and sentences about what it cannot tell.

    Args:
        log: ``source``, ``tried``, ``lines``, ``xids``, ``since``, ``left_out``.
        devices: those of the bus, to know whether a message is about one that matters.
        thresholds: ``xid``, ``sxid``, ``kernel_messages``.
    """
    findings = [*_xids(log["xids"], thresholds), *_messages(log["lines"], devices, thresholds)]
    return findings, list(_gaps(log))


def _gaps(log: Facts) -> Iterator[str]:
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


def _aged(severity: str, hours: float | None, limit: float | None) -> str:
    """A failure that is too long ago is a warning."""
    old = hours is not None and limit is not None and hours > limit
    return WARNING if old and severity == FAILURE else severity


def _ago(hours: float | None) -> str:
    if hours is None:
        return ""
    return " %.1f hours ago" % hours if hours >= 1 else " %.0f minutes ago" % (hours * 60)


def _xids(events: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Each number of each GPU once, with the latest message; of a switch likewise."""
    together: dict[tuple[bool, str, int], list[Facts]] = {}
    for event in events:
        together.setdefault((event["switch"], event["address"], event["xid"]), []).append(event)
    for (switch, place, number), same in sorted(together.items()):
        name, last = "sxid" if switch else "xid", same[-1]
        rule = named(thresholds, name, number)
        if rule is None:
            continue
        severity = rule.severity
        if switch and severity == REMARK:
            severity = FAILURE if any(event["fatal"] for event in same) else WARNING
        severity = _aged(severity, last["hours"], thresholds[name].get("hours"))
        times = "" if len(same) == 1 else ", %d times" % len(same)
        yield Finding(
            severity, name, "%s (%s)" % ("switch" if switch else "gpu", place),
            "%s %d%s%s: %s" % ("SXid" if switch else "Xid", number, _ago(last["hours"]), times, last["text"]), number,
            None, rule.source, _XID_REMEDY if severity == FAILURE else "",
        )


def _messages(lines: Sequence[Sequence[Any]], devices: Sequence[Facts], thresholds: Facts) -> Iterator[Finding]:
    """Of each rule and device one finding, with the latest message. What is about another device is a remark."""
    known = {device["address"]: device["kind"] in ("gpu", "fabric") for device in devices}
    for rule in thresholds.get("kernel_messages") or ():
        together: dict[str, list[Sequence[Any]]] = {}
        for line in lines:
            if re.search(rule["match"], line[1]):
                device = _PLACE.search(line[1])
                together.setdefault(address(device.group(1)) if device else "", []).append(line)
        for place, same in sorted(together.items()):
            hours, text = same[-1]
            severity = _aged(rule["severity"], hours, rule.get("hours"))
            if place and not known.get(place, False) and severity == WARNING:
                severity = REMARK
            times = "" if len(same) == 1 else ", %d times" % len(same)
            yield Finding(
                severity, "kernel", place or "kernel", "The kernel said%s%s: %s" % (_ago(hours), times, text), text,
                None, rule["source"], rule.get("remedy") or "Look at the node's log around it.",
            )

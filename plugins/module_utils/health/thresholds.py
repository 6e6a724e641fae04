# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define findings, and compare facts with thresholds and expectations, which are data. Pure.

The figures, each with its source, are in the role's ``node_health_thresholds``.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Iterator, Mapping, NamedTuple

from ..core.errors import StackError

FAILURE, WARNING, REMARK = "failure", "warning", "remark"
"""Severities of a finding: the node is refused; somebody should look at it; it is only to be known."""

SEVERITIES = (FAILURE, WARNING, REMARK)

NUMBERS = (
    "ecc_sram_uncorrected_volatile", "ecc_dram_uncorrected_volatile", "ecc_sram_uncorrected_aggregate",
    "ecc_dram_uncorrected_aggregate", "ecc_sram_corrected", "ecc_dram_corrected", "remapped_rows_uncorrectable",
    "remapped_rows_pending", "remapped_rows_failure", "retired_pages", "retired_pages_pending", "driver_versions",
    "vbios_versions", "firmware_versions", "kernel_versions", "nvlink_replay", "nvlink_recovery", "nvlink_crc",
    "nvlink_other", "pcie_replays", "pcie_uncorrected", "cxi_uncorrected", "metadata_create", "metadata_stat",
    "metadata_rename", "metadata_read", "metadata_unlink",
)
"""Thresholds with a number: more than that many (milliseconds, of ``metadata_*``) is a finding."""

LISTS = ("xid", "sxid", "throttling")
"""Thresholds that list what is a finding."""

OTHERS = ("infiniband_counters", "kernel_messages")

EXPECTED: dict[str, Any] = {
    "gpus": int, "gpu_model": str, "driver": str, "vbios": list, "nvlinks": int, "nvlink_speed": (int, float),
    "pcie_width": int, "pcie_generation": int, "mig": bool, "fabric": list,
}
"""Keys that may be expected of a node, and their types."""

FABRIC_KINDS = ("infiniband", "cxi", "net")
FABRIC: dict[str, Any] = {"kind": str, "devices": int, "name": str, "rate": int, "mtu": int}


class Limit(NamedTuple):
    """Hold a finding's severity and the threshold that makes it one."""

    severity: str
    threshold: Any
    source: str


def exceeded_limit(thresholds: Mapping[str, Any], name: str, value: float | None) -> Limit | None:
    """Find the severity of a value by the threshold of that name; None where it is no finding."""
    rule = thresholds.get(name)
    if rule is None or value is None:
        return None
    for severity in SEVERITIES:
        limit = rule.get(severity)
        if limit is not None and value > limit:
            return Limit(severity, limit, rule["source"])
    return None


def listed_limit(thresholds: Mapping[str, Any], name: str, value: Any) -> Limit | None:
    """Find the severity by the lists of a threshold; a remark where they do not name the value."""
    rule = thresholds.get(name)
    if rule is None:
        return None
    for severity in (FAILURE, WARNING):
        if value in (rule.get(severity) or ()):
            return Limit(severity, None, rule["source"])
    return Limit(REMARK, None, rule["source"])


class Finding(NamedTuple):
    """Hold one thing that is not as it should be, or that is to be known."""

    severity: str
    check: str
    subject: str
    message: str
    value: Any = None
    threshold: Any = None
    source: str = ""
    remedy: str = ""


failure = functools.partial(Finding, FAILURE)
"""Make a finding with which a release must not be accepted."""

warning = functools.partial(Finding, WARNING)
"""Make a finding that somebody should look at."""

remark = functools.partial(Finding, REMARK)
"""Make a finding that is only to be known."""


def limit_finding(limit: Limit, check: str, subject: str, message: str, value: Any, remedy: str) -> Finding:
    """Make a finding by a threshold."""
    return Finding(limit.severity, check, subject, message, value, limit.threshold, limit.source, remedy)


def exceeding(
    thresholds: Mapping[str, Any], name: str, value: float | None, check: str, subject: str, message: str, remedy: str
) -> Iterator[Finding]:
    """Make the finding of a value beyond the threshold of that name; the message has a place for the value."""
    limit = exceeded_limit(thresholds, name, value)
    if limit:
        yield limit_finding(limit, check, subject, message % value, value, remedy)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_settings(thresholds: Any, expected: Any) -> None:
    """Refuse thresholds and expectations that cannot be used, by the first thing that is wrong."""
    trouble = _threshold_problem(thresholds) or _expected_problem(expected)
    if trouble:
        raise StackError(trouble, "thresholds", "Correct node_health_thresholds or node_health_expected.")


def _threshold_problem(thresholds: Any) -> str:
    if not isinstance(thresholds, dict):
        return "The thresholds are no mapping."
    for name, rule in thresholds.items():
        if name == "kernel_messages":
            trouble = _messages_problem(rule)
        elif name not in (*NUMBERS, *LISTS, *OTHERS):
            return "There is no threshold %r; known are %s." % (name, ", ".join((*NUMBERS, *LISTS, *OTHERS)))
        elif not isinstance(rule, dict) or not isinstance(rule.get("source"), str) or not rule["source"].strip():
            trouble = "has no source"
        elif name in NUMBERS:
            trouble = _number_problem(rule)
        elif name in LISTS:
            trouble = _list_problem(rule)
        else:
            trouble = _counter_problem(rule)
        if trouble:
            return "The threshold %s %s." % (name, trouble)
    return ""


def _number_problem(rule: Mapping[str, Any]) -> str:
    for key, value in rule.items():
        if key not in (*SEVERITIES, "source"):
            return "has the key %r; known are %s and source" % (key, ", ".join(SEVERITIES))
        if key != "source" and value is not None and not _is_number(value):
            return "says %r for %s, which is no number" % (value, key)
    return ""


def _list_problem(rule: Mapping[str, Any]) -> str:
    for key, value in rule.items():
        if key not in (FAILURE, WARNING, "hours", "source"):
            return "has the key %r; known are failure, warning, hours and source" % key
        if key in (FAILURE, WARNING) and not isinstance(value, list):
            return "says %r for %s, which is no list" % (value, key)
        if key == "hours" and not _is_number(value):
            return "says %r for hours, which is no number" % (value,)
    return ""


def _counter_problem(rule: Mapping[str, Any]) -> str:
    for severity in SEVERITIES:
        counters = rule.get(severity, {})
        if not isinstance(counters, dict) or not all(map(_is_number, counters.values())):
            return "says %r for %s, which is no mapping of counters to numbers" % (counters, severity)
    return ""


def _messages_problem(rules: Any) -> str:
    if not isinstance(rules, list):
        return "is no list"
    for rule in rules:
        if not isinstance(rule, dict) or not isinstance(rule.get("match"), str) or not rule.get("source"):
            return "has the entry %r, which needs match and source" % (rule,)
        if rule.get("severity") not in SEVERITIES:
            return "has the severity %r; known are %s" % (rule.get("severity"), ", ".join(SEVERITIES))
        try:
            re.compile(rule["match"])
        except re.error as error:
            return "has %r, which is no regular expression: %s" % (rule["match"], error)
    return ""


def _expected_problem(expected: Any) -> str:
    if not isinstance(expected, dict):
        return "What is expected of a node is no mapping."
    trouble = _type_problem(expected, EXPECTED, "node_health_expected")
    if trouble:
        return trouble
    for entry in expected.get("fabric") or []:
        if not isinstance(entry, dict) or entry.get("kind") not in FABRIC_KINDS:
            return "node_health_expected.fabric has %r, whose kind is none of %s." % (entry, ", ".join(FABRIC_KINDS))
        trouble = _type_problem(entry, FABRIC, "node_health_expected.fabric")
        if trouble:
            return trouble
    return ""


def _type_problem(data: Mapping[str, Any], types: Mapping[str, Any], where: str) -> str:
    for key, value in data.items():
        if key not in types:
            return "%s has the key %r; known are %s." % (where, key, ", ".join(types))
        wanted = types[key]
        if value is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)):
            return "%s.%s is %r, which is not of the right type." % (where, key, value)
    return ""

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark prints: one line as soon as a size is measured, in columns. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from .units import counted, show_size

_ROW = "%12s %9s %7s %11s %11s %11s %11s %7s %9s %9s  %s"


def heading(group: Mapping[str, Any]) -> list[str]:
    """The lines above an operation's rows.

    Args:
        group: a set of :func:`.rank_bandwidth.measure_in_group`.
    """
    return [
        "", "%s over %s (%s), %s on %s, %s, %s; microseconds, GB/s" % (
            group["operation"], group["backend"], group["provider"], counted(group["ranks"], "rank"),
            counted(group["nodes"], "node"), group["device"], group["dtype"]),
        _ROW % ("bytes", "size", "trials", "min", "median", "mean", "max", "spread", "algbw", "busbw", "values"),
    ]


def row(line: Mapping[str, Any]) -> list[str]:
    """The line of a size, and those of its trials where they are kept."""
    times = line["microseconds"]
    shown = [_ROW % (
        line["bytes"], show_size(line["bytes"]), line["trials"], *(_time(times[key]) for key in _TIMES),
        "%.0f%%" % (100 * line["spread"]), "%.3f" % line["algbw"], "%.3f" % line["busbw"], _values(line),
    )]
    if line.get("iterations"):
        shown.append("%12s %s" % ("each", " ".join(map(_time, line["iterations"]))))
    return shown


def latency_heading(line: Mapping[str, Any]) -> list[str]:
    """The lines above the rows of messages, from the first of them."""
    return [
        "", "messages over %s (%s), one way between rank %d on %s and rank %d on %s, %s; microseconds, GB/s" % (
            line["backend"], line["provider"], line["ranks"][0], line["hosts"][0], line["ranks"][1], line["hosts"][1],
            line["device"]),
        _ROW % ("bytes", "size", "trips", "min", "median", "p99", "max", "", "bandwidth", "", "values"),
    ]


def latency_row(line: Mapping[str, Any]) -> str:
    """The line of a message's size."""
    times = line["microseconds"]
    return _ROW % (
        line["bytes"], show_size(line["bytes"]), line["iterations"], _time(times["min"]), _time(times["median"]),
        _time(times["p99"]), _time(times["max"]), "", "%.3f" % line["bandwidth"], "", _values(line),
    )


_TIMES = ("min", "median", "mean", "max")


def _time(microseconds: float) -> str:
    return "%.2f" % microseconds if microseconds < 10000 else "%.0f" % microseconds


def _values(line: Mapping[str, Any]) -> str:
    return "ok" if line["verified"] else "WRONG " + line.get("wrong", "")

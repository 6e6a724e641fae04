# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Print and write the benchmark's results as soon as they are measured; an interrupt loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from typing import Any, Mapping, Sequence

from .units import counted, format_size

VERIFIED, WRONG, CANNOT = 0, 1, 2

UNFINISHED = "it did not come to its end"


class BenchmarkReporter:
    """Print and write the results at rank 0, also where the run ends early."""

    def __init__(self, path: str | None, header: Mapping[str, Any]) -> None:
        self.path, self.header = path, header
        self.groups: list[dict[str, Any]] = []
        self.latency: list[Mapping[str, Any]] = []
        self.lock = threading.Lock()

    def row(self, group: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        """Print a row, under its heading."""
        with self.lock:
            if group["operation"] == "latency":
                lines = [format_latency_row(line)]
                if not self.latency:
                    lines = format_latency_heading(line) + lines
                self.latency.append(line)
            else:
                lines = format_row(line)
                if not self.groups or self.groups[-1]["operation"] != group["operation"]:
                    lines = format_heading(group) + lines
                    self.groups.append(dict(group, rows=[]))
                self.groups[-1]["rows"].append(line)
            print_lines(lines)
            if os.path.isfile(self.path or ""):
                # This remains when rank 0 is killed, as when another rank has failed.
                self.write(self.partial_result(UNFINISHED), UNFINISHED)

    def end(self, why: str, result: Mapping[str, Any] | None = None) -> int:
        """Print the summary, write the file (without a result: what there is, and why), and return the exit code."""
        with self.lock:
            result = result or self.partial_result(why)
            verified = self.is_verified(result)
            for group in result["measurements"]:
                if group["left_out"]:
                    print_lines(["", "%s: %s" % (group["operation"], group["left_out"])])
            if result["latency_left_out"] and not why:
                print_lines(["", "messages: %s" % result["latency_left_out"]])
            written = self.write(result, why)
            print_lines(["", why] if why else [""])
            print_lines(["values verified: %s" % ("yes" if verified else "no")])
            return WRONG if not verified else VERIFIED if written else CANNOT

    @staticmethod
    def is_verified(result: Mapping[str, Any]) -> bool:
        """Tell whether anything was measured, and all values were right."""
        rows = [line for group in result["measurements"] for line in group["rows"]] + list(result["latency"])
        return bool(rows) and all(line["verified"] for line in rows)

    def partial_result(self, why: str) -> dict[str, Any]:
        """Build a result of what was measured before the run ended early."""
        return {"measurements": self.groups, "latency": self.latency, "latency_left_out": why}

    def write(self, result: Mapping[str, Any], why: str) -> bool:
        """Write the file, if one is wanted; return whether that was possible."""
        if not self.path:
            return True
        record = dict(self.header, **result, verified=self.is_verified(result), ended_early=why)
        try:
            with open(self.path, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(record, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            print_error("cannot write %s: %s" % (self.path, error.strerror))
            return False
        return True

    def watch_signals(self) -> None:
        """Wait for an interrupt in a thread: no handler runs while a library waits for other ranks.

        To be called before any library starts threads, so that none of them takes the signal.
        """
        wanted = (signal.SIGINT, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

        def wait() -> None:
            number = signal.sigwait(wanted)
            self.end("interrupted by %s" % signal.Signals(number).name)
            os._exit(128 + number)

        threading.Thread(target=wait, daemon=True).start()


def print_lines(lines: Sequence[str]) -> None:
    """Print whole lines at once; ignore a closed standard output."""
    with contextlib.suppress(OSError):
        os.write(1, "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace"))


def print_error(why: str) -> None:
    """Print on standard error why the benchmark cannot begin."""
    sys.stderr.write("collectives: %s.\n" % why.rstrip("."))
    sys.stderr.flush()


# --- the table -------------------------------------------------------------------------------------------------------

_ROW = "%12s %9s %7s %11s %11s %11s %11s %7s %9s %9s  %s"


def format_heading(group: Mapping[str, Any]) -> list[str]:
    """Format the lines above an operation's rows."""
    return [
        "", "%s over %s (%s), %s on %s, %s, %s; microseconds, GB/s" % (
            group["operation"], group["backend"], group["provider"], counted(group["ranks"], "rank"),
            counted(group["nodes"], "node"), group["device"], group["dtype"]),
        _ROW % ("bytes", "size", "trials", "min", "median", "mean", "max", "spread", "algbw", "busbw", "values"),
    ]


def format_row(line: Mapping[str, Any]) -> list[str]:
    """Format the line of a size, and those of its trials where they are kept."""
    times = line["microseconds"]
    shown = [_ROW % (
        line["bytes"], format_size(line["bytes"]), line["trials"], *(_format_time(times[key]) for key in _TIMES),
        "%.0f%%" % (100 * line["spread"]), "%.3f" % line["algbw"], "%.3f" % line["busbw"], _format_verified(line))]
    if line.get("iterations"):
        shown.append("%12s %s" % ("each", " ".join(map(_format_time, line["iterations"]))))
    return shown


def format_latency_heading(line: Mapping[str, Any]) -> list[str]:
    """Format the lines above the rows of messages, from the first of these."""
    return [
        "", "messages over %s (%s), one way between rank %d on %s and rank %d on %s, %s; microseconds, GB/s" % (
            line["backend"], line["provider"], line["ranks"][0], line["hosts"][0], line["ranks"][1], line["hosts"][1],
            line["device"]),
        _ROW % ("bytes", "size", "trips", "min", "median", "p99", "max", "", "bandwidth", "", "values"),
    ]


def format_latency_row(line: Mapping[str, Any]) -> str:
    """Format the line of a message's size."""
    times = line["microseconds"]
    return _ROW % (
        line["bytes"], format_size(line["bytes"]), line["iterations"],
        *(_format_time(times[key]) for key in ("min", "median", "p99", "max")),
        "", "%.3f" % line["bandwidth"], "", _format_verified(line))


_TIMES = ("min", "median", "mean", "max")


def _format_time(microseconds: float) -> str:
    return "%.2f" % microseconds if microseconds < 10000 else "%.0f" % microseconds


def _format_verified(line: Mapping[str, Any]) -> str:
    return "ok" if line["verified"] else "WRONG " + line.get("wrong", "")

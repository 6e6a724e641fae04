# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark without Ansible prints and writes as it goes on, so that nothing is lost that was measured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from typing import Any, Mapping, Sequence

from . import bandwidth_table

VERIFIED, WRONG, CANNOT = 0, 1, 2

UNFINISHED = "it did not come to its end"


class Telling:
    """What rank 0 prints and writes, whatever becomes of the rest."""

    def __init__(self, path: str | None, head: Mapping[str, Any]) -> None:
        self.path, self.head = path, head
        self.groups: list[dict[str, Any]] = []
        self.latency: list[Mapping[str, Any]] = []
        self.lock = threading.Lock()

    def row(self, group: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        """Print a row, under its heading."""
        with self.lock:
            if group["operation"] == "latency":
                lines = [bandwidth_table.latency_row(line)]
                if not self.latency:
                    lines = bandwidth_table.latency_heading(line) + lines
                self.latency.append(line)
            else:
                lines = bandwidth_table.row(line)
                if not self.groups or self.groups[-1]["operation"] != group["operation"]:
                    lines = bandwidth_table.heading(group) + lines
                    self.groups.append(dict(group, rows=[]))
                self.groups[-1]["rows"].append(line)
            say(lines)
            if os.path.isfile(self.path or ""):
                # Of a rank 0 that is killed, as when another rank has failed, this is what remains.
                self.write(self.so_far(UNFINISHED), UNFINISHED)

    def end(self, why: str, result: Mapping[str, Any] | None = None) -> int:
        """Print what there is to say at the end, and write the file.

        Args:
            why: what kept it from measuring everything; empty: nothing.
            result: of :func:`.rank_bandwidth.measure_in_group`; without it, what there is.

        Returns:
            The exit code.
        """
        with self.lock:
            result = result or self.so_far(why)
            good = self.good(result)
            for group in result["measurements"]:
                if group["left_out"]:
                    say(["", "%s: %s" % (group["operation"], group["left_out"])])
            if result["latency_left_out"] and not why:
                say(["", "messages: %s" % result["latency_left_out"]])
            kept = self.write(result, why)
            say(["", why] if why else [""])
            say(["values verified: %s" % ("yes" if good else "no")])
            return WRONG if not good else VERIFIED if kept else CANNOT

    @staticmethod
    def good(result: Mapping[str, Any]) -> bool:
        """Whether anything was measured, and all values were right."""
        rows = [line for group in result["measurements"] for line in group["rows"]] + list(result["latency"])
        return bool(rows) and all(line["verified"] for line in rows)

    def so_far(self, why: str) -> dict[str, Any]:
        """A result of what was measured before something kept it from the rest."""
        return {"measurements": self.groups, "latency": self.latency, "latency_left_out": why}

    def write(self, result: Mapping[str, Any], why: str) -> bool:
        """Write the file, if one is wanted; whether that was possible."""
        if not self.path:
            return True
        record = dict(self.head, **result, verified=self.good(result), ended_early=why)
        try:
            with open(self.path, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(record, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            complain("cannot write %s: %s" % (self.path, error.strerror))
            return False
        return True

    def listen(self) -> None:
        """Have a thread wait for an interrupt, because no handler runs while a library waits for other ranks.

        To be called before any library starts threads, so that none of them takes the signal.
        """
        wanted = (signal.SIGINT, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

        def wait() -> None:
            number = signal.sigwait(wanted)
            self.end("interrupted by %s" % signal.Signals(number).name)
            os._exit(128 + number)

        threading.Thread(target=wait, daemon=True).start()


def say(lines: Sequence[str]) -> None:
    """Print whole lines at once; whoever listens may have gone."""
    with contextlib.suppress(OSError):
        os.write(1, "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace"))


def complain(why: str) -> None:
    """Say on standard error why it cannot begin."""
    sys.stderr.write("collectives: %s.\n" % why.rstrip("."))
    sys.stderr.flush()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the reports of the ranks in the mixed output of a job."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from typing import Any, NamedTuple

from ..core.redaction import without_credentials

EVENT = "@torchstack-job"
"""Beginning of the supervisor's and the script's lines; the event's name, a tab and a text follow."""

LMOD, EM, NONE, ENVIRONMENT = "lmod", "environment-modules", "none", "environment"
"""Module systems that a site may ask for; the event ``through`` names one of the first two, or the last."""

_EVENT = re.compile(re.escape(EVENT) + r" ([a-z_]+)\t([^\n]*)")
_FRAME = re.compile(r"@torchstack:([a-z]+):([0-9a-f]+):(\d+)/(\d+):([0-9a-f]{8}):([A-Za-z0-9+/=]+)@")


class JobOutput(NamedTuple):
    """Hold the messages of a job's output.

    ``reports`` are complete reports of ranks, ``stages`` the last stage of each process (by its key), ``events`` the
    lines of the supervisor as (name, text) in order, ``broken`` how many processes' reports came incomplete,
    ``messages`` what came whole of every other kind, in the order in which it was printed.
    """

    reports: list[dict[str, Any]]
    stages: dict[str, dict[str, Any]]
    events: list[tuple[str, str]]
    broken: int
    messages: dict[str, list[Any]]

    def event(self, name: str) -> str | None:
        """Return the text of the last event of this name."""
        return dict(self.events).get(name)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """List check and message of each problem that the job told of."""
        parts = [text.partition(" ") for name, text in self.events if name == "problem"]
        return [(check, message) for check, _space, message in parts]


def _decode(pieces: dict[int, str], count: int) -> Any:
    """Decode the message that the pieces make up; None where one is missing or they make none."""
    if sorted(pieces) != list(range(count)):
        return None
    try:
        text = base64.b64decode("".join(pieces[number] for number in range(count)), validate=True)
        return json.loads(zlib.decompress(text).decode("utf-8"))
    except (binascii.Error, zlib.error, ValueError):
        return None


def parse_output(output: str) -> JobOutput:
    """Find the messages in the mixed output of a launcher, the ranks and the supervisor.

    A launcher may put labels before lines, and may cut one rank's line with another's: a frame counts only with the
    right checksum, wherever in a line it stands, and each report comes twice.
    """
    pieces: dict[tuple[str, str, int], dict[int, str]] = {}
    stages: dict[str, dict[str, Any]] = {}
    for match in _FRAME.finditer(output):
        kind, key, number, count, checksum, text = match.groups()
        right = "%08x" % zlib.crc32(text.encode("ascii")) == checksum
        if kind == "stage" and right:
            stages[key] = _decode({0: text}, 1) or stages.get(key, {})
        elif kind != "stage":
            parts = pieces.setdefault((kind, key, int(count)), {})
            if right:
                parts[int(number)] = text
    decoded: dict[str, Any] = {}
    messages: dict[str, list[Any]] = {}
    for (kind, key, count), parts in pieces.items():
        message = _decode(parts, count)
        if kind == "report":
            # A rank reports a second time with the same pieces, or with more checks and so another number of pieces.
            decoded[key] = message or decoded.get(key)
        elif message is not None:
            messages.setdefault(kind, []).append(message)
    reports = [report for report in decoded.values() if isinstance(report, dict)]
    reports.sort(key=lambda report: (report.get("rank", -1), report["host"], report["pid"]))
    return JobOutput(reports, stages, _EVENT.findall(output), len(decoded) - len(reports), messages)


def readable(output: str) -> str:
    """Format the output for people: stages and events as short lines, no reports, credentials masked."""

    def plain(match: re.Match[str]) -> str:
        stage = _decode({0: match.group(6)}, 1) if match.group(1) == "stage" else None
        return "==== %s: %s" % (rank_name(stage), stage["stage"]) if stage else ""

    lines = []
    for line in output.splitlines():
        text = _EVENT.sub(r"==== \1: \2", _FRAME.sub(plain, line))
        if text or not line:
            lines.append(text)
    return without_credentials("\n".join(lines) + "\n")


def last_lines(output: str, count: int = 12) -> list[str]:
    """Return the end of the job's own output, without messages of ranks and supervisor."""
    lines = [line.rstrip() for line in readable(output).splitlines()]
    return [line[:400] for line in lines if line and not line.startswith("====")][-count:]


def rank_name(report: dict[str, Any]) -> str:
    """Name a rank for a sentence."""
    kind, key = ("rank", "rank") if "rank" in report else ("process", "pid")
    return "%s %d on %s" % (kind, report[key], report["host"])

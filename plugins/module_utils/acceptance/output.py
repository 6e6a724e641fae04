# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an acceptance's job printed: the reports of the ranks, found in the mixed output of everybody."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from typing import Any, NamedTuple

from ..core.redaction import without_credentials

EVENT = "@torchstack-job"
"""What the supervisor and its script begin their own lines with; the event's name, a tab and a text follow."""

LMOD, EM, NONE, ENVIRONMENT = "lmod", "environment-modules", "none", "environment"
"""What a site may ask for as its module system; the event ``through`` names one of the first two, or the last."""

_EVENT = re.compile(re.escape(EVENT) + r" ([a-z_]+)\t([^\n]*)")
_FRAME = re.compile(r"@torchstack:([a-z]+):([0-9a-f]+):(\d+)/(\d+):([0-9a-f]{8}):([A-Za-z0-9+/=]+)@")


class Heard(NamedTuple):
    """What came out of a job.

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
        """The text of the last event of this name."""
        texts = [text for event, text in self.events if event == name]
        return texts[-1] if texts else None


def _decode(pieces: dict[int, str], count: int) -> Any:
    """The message that the pieces make up; None where one is missing or they make none."""
    if sorted(pieces) != list(range(count)):
        return None
    try:
        text = base64.b64decode("".join(pieces[number] for number in range(count)), validate=True)
        return json.loads(zlib.decompress(text).decode("utf-8"))
    except (binascii.Error, zlib.error, ValueError):
        return None


def hear(output: str) -> Heard:
    """Find the messages in the mixed output of a launcher, the ranks and the supervisor.

    A launcher may put labels before lines, and may cut one rank's line with another's: a frame counts only with the
    right checksum, wherever in a line it stands, and each report comes twice.

    Args:
        output: everything that the job printed.
    """
    pieces: dict[tuple[str, int], dict[int, str]] = {}
    others: dict[tuple[str, str, int], dict[int, str]] = {}
    stages: dict[str, dict[str, Any]] = {}
    for match in _FRAME.finditer(output):
        kind, key, number, count, checksum, text = match.groups()
        right = "%08x" % zlib.crc32(text.encode("ascii")) == checksum
        if kind == "stage" and right:
            stages[key] = _decode({0: text}, 1) or stages.get(key, {})
        elif kind != "stage":
            parts = (
                pieces.setdefault((key, int(count)), {}) if kind == "report"
                else others.setdefault((kind, key, int(count)), {})
            )
            if right:
                parts[int(number)] = text
    # A rank reports a second time with the same pieces, or with more checks and so another number of pieces.
    decoded: dict[str, Any] = {}
    for (key, count), parts in pieces.items():
        decoded[key] = _decode(parts, count) or decoded.get(key)
    reports = [report for report in decoded.values() if isinstance(report, dict)]
    reports.sort(key=lambda report: (report.get("rank", -1), report["host"], report["pid"]))
    messages: dict[str, list[Any]] = {}
    for (kind, _key, count), parts in others.items():
        message = _decode(parts, count)
        if message is not None:
            messages.setdefault(kind, []).append(message)
    return Heard(reports, stages, _EVENT.findall(output), len(decoded) - len(reports), messages)


def readable(output: str) -> str:
    """The output for people: stages and events as short lines, reports left out, credentials masked."""

    def plain(match: re.Match[str]) -> str:
        stage = _decode({0: match.group(6)}, 1) if match.group(1) == "stage" else None
        return "==== %s: %s" % (who(stage), stage["stage"]) if stage else ""

    lines = []
    for line in output.splitlines():
        text = _EVENT.sub(r"==== \1: \2", _FRAME.sub(plain, line))
        if text or not line:
            lines.append(text)
    return without_credentials("\n".join(lines) + "\n")


def last_lines(output: str, count: int = 12) -> list[str]:
    """The end of the job's own output, without what the ranks and the supervisor report."""
    lines = [line.rstrip() for line in readable(output).splitlines()]
    return [line[:400] for line in lines if line and not line.startswith("====")][-count:]


def who(report: dict[str, Any]) -> str:
    """A rank in a sentence."""
    if "rank" in report:
        return "rank %d on %s" % (report["rank"], report["host"])
    return "process %d on %s" % (report["pid"], report["host"])

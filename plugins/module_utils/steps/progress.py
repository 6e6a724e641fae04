# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read how far a build is from its output: ninja's ``[1234/2210]``, ``[ 56%]`` of CMake's makefiles."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple

from ..logs.lines import plain_text

WINDOW = 16384
"""Bytes at the end of a log that are searched; a hundred compiler command lines fit."""


class Cadence(NamedTuple):
    """How often a step that runs deserves a line."""

    quiet: float
    """Seconds: steps shorter than this print no progress, and two lines are at least this far apart."""
    silence: float
    """Longest time without a line while a step runs, in seconds."""
    percent: int
    """What the percentage has to move on by."""


OFTEN = Cadence(10, 60, 1)
SELDOM = Cadence(60, 900, 25)
"""For a screen that has a line for each step and event."""

_COUNT = re.compile(rb"(?:^|[\r\n])\[\s*(\d{1,9})/(\d{1,9})\]")
_LINE_END = re.compile(rb"[\r\n]")
_PERCENT = re.compile(rb"(?:^|[\r\n])\[\s*(\d{1,3})%\]")


def parse_progress(text: bytes, cut: bool = False) -> dict[str, int] | None:
    """Find the last mark at the start of a line: ``{"done": 1234, "total": 2210, "percent": 55}``, or only ``percent``.

    None where there is no mark. A cut text may begin within a line, of which nothing is a mark.
    """
    if cut:
        first = _LINE_END.search(text)
        text = text[first.start():] if first else b""
    marks: list[tuple[int, dict[str, int]]] = []
    for match in _COUNT.finditer(text):
        done, total = int(match.group(1)), int(match.group(2))
        if total > 0 and done <= total:
            marks.append((match.start(), {"done": done, "total": total, "percent": 100 * done // total}))
    for match in _PERCENT.finditer(text):
        if int(match.group(1)) <= 100:
            marks.append((match.start(), {"percent": int(match.group(1))}))
    return max(marks, key=lambda mark: mark[0])[1] if marks else None


def read_end(path: str, start: int = 0, window: int = WINDOW) -> bytes:
    """Read the last ``window`` bytes of a file after ``start``; nothing where there is no file."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, min(start, size), size - window))
            return stream.read(window)
    except FileNotFoundError:
        return b""


def last_lines(text: bytes, count: int = 30, width: int = 500) -> list[str]:
    """Return the last ``count`` lines without what a carriage return overwrote, and without what a terminal obeys."""
    lines = text.rstrip(b"\n").split(b"\n") if text.strip() else []
    return [plain_text(line)[:width] for line in lines[-count:]]


def progress_line(name: str, progress: Mapping[str, Any] | None, seconds: float) -> str:
    """Write one line for the operator: ``name  [1234/2210]  56 %  12 min``."""
    parts = [name]
    if progress and "total" in progress:
        parts.append("[%d/%d]" % (progress["done"], progress["total"]))
    if progress and "percent" in progress:
        parts.append("%d %%" % progress["percent"])
    parts.append("%d min" % (seconds // 60) if seconds >= 60 else "%d s" % seconds)
    return "  ".join(parts)


def progress_in(path: str, start: int, name: str, seconds: float) -> dict[str, Any]:
    """Read the progress of an attempt that begins at byte ``start`` of the log; ``text`` is the line that shows it."""
    progress = parse_progress(read_end(path, start))
    return dict(progress or {}, text=progress_line(name, progress, seconds))


class ProgressPrinter:
    """Decides which polls of a step deserve a line on the operator's screen.

    A line is due when the percentage has moved on, or some time after the last one; see :class:`Cadence`.
    """

    def __init__(self, name: str, cadence: Cadence = OFTEN) -> None:
        self.name = name
        self.cadence = cadence
        self.shown: Mapping[str, Any] | None = None
        self.shown_at: float | None = None

    def line(self, progress: Mapping[str, Any] | None, seconds: float, now: float) -> str | None:
        """Return the line to print, or None, by the step's seconds and by any clock that only goes forward."""
        if seconds < self.cadence.quiet:
            return None
        since = None if self.shown_at is None else now - self.shown_at
        if since is not None and since < (self.cadence.quiet if self._moved(progress) else self.cadence.silence):
            return None
        self.shown, self.shown_at = progress, now
        return progress_line(self.name, progress, seconds)

    def _moved(self, progress: Mapping[str, Any] | None) -> bool:
        """Tell whether the percentage has come to another part of the hundred since the last line."""
        now, before = ((one or {}).get("percent") for one in (progress, self.shown))
        if now is None or before is None:
            return now != before
        return int(now) // self.cadence.percent != int(before) // self.cadence.percent

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read how far a build is from its output: ninja's ``[1234/2210]``, ``[ 56%]`` of CMake's makefiles."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping

from ..logs.lines import plain_text

WINDOW = 16384
"""Bytes at the end of a log that are searched; a hundred compiler command lines fit."""

QUIET_SECONDS = 10
"""Steps shorter than this print no progress, and two lines are at least this far apart."""

SILENCE_SECONDS = 60
"""Longest time without a line while a step runs."""

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

    A line is due when the percentage has changed, or :data:`SILENCE_SECONDS` after the last one; never in the first
    :data:`QUIET_SECONDS` of a step, and never two closer than that.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.shown: Mapping[str, Any] | None = None
        self.shown_at: float | None = None

    def line(self, progress: Mapping[str, Any] | None, seconds: float, now: float) -> str | None:
        """Return the line to print, or None, by the step's seconds and by any clock that only goes forward."""
        if seconds < QUIET_SECONDS:
            return None
        since = None if self.shown_at is None else now - self.shown_at
        moved = (progress or {}).get("percent") != (self.shown or {}).get("percent")
        if since is not None and since < (QUIET_SECONDS if moved else SILENCE_SECONDS):
            return None
        self.shown, self.shown_at = progress, now
        return progress_line(self.name, progress, seconds)

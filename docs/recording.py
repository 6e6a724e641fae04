# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read a recording of a terminal, as asciinema writes it (asciicast v2): its size, its events, and what was typed."""

from __future__ import annotations

import json
import pathlib
from typing import NamedTuple

ENTER = "\r"


class Event(NamedTuple):
    """Something that was typed (``i``), or that the terminal was sent (``o``)."""

    time: float
    """in seconds since the begin"""
    kind: str
    data: str


class Recording(NamedTuple):
    """A recording with the size of its terminal."""

    columns: int
    rows: int
    events: list[Event]

    def commands(self) -> list[str]:
        """The lines that were typed for the command torchstack, in their order."""
        typed = "".join(event.data for event in self.events if event.kind == "i")
        lines = [line[line.rfind("torchstack "):] for line in typed.split(ENTER)[:-1] if "torchstack " in line]
        return [line.strip() for line in lines]


def read(path: pathlib.Path) -> Recording:
    """Read a recording. Raises OSError, ValueError: it cannot be read, or is none of version 2."""
    first, *others = path.read_text(encoding="utf-8").splitlines()
    head = json.loads(first)
    if not isinstance(head, dict) or head.get("version") != 2:
        raise ValueError("%s is no asciicast of version 2." % path)
    return Recording(head["width"], head["height"], [Event(*json.loads(line)) for line in others])

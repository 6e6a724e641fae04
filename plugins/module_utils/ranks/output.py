# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Print messages of a rank in frames on its standard output, where acceptance/output.py finds them again."""

from __future__ import annotations

import base64
import json
import os
import uuid
import zlib
from typing import Any, Iterator

FRAME_BYTES = 300
"""Bytes of a message in one line: launchers cut much longer lines, and pipes do not write them at once."""


def encode_frames(kind: str, key: str, data: Any) -> Iterator[bytes]:
    """Cut a message into lines that a reader can find and check in the mixed output of all ranks.

    ``@torchstack:<kind>:<key>:<n>/<total>:<crc32>:<base64 of a piece of the deflated JSON>@``

    Args:
        kind: small letters, such as ``stage`` or ``report``.
        key: hexadecimal digits that only this process uses, and for another kind than these two only this message.
    """
    text = base64.b64encode(zlib.compress(json.dumps(data).encode("utf-8"))).decode("ascii")
    pieces = [text[start:start + FRAME_BYTES] for start in range(0, len(text), FRAME_BYTES)]
    for number, piece in enumerate(pieces):
        frame = "@torchstack:%s:%s:%d/%d:%08x:%s@\n" % (
            kind, key, number, len(pieces), zlib.crc32(piece.encode("ascii")), piece)
        yield frame.encode("ascii")


class RankOutput:
    """Print the messages of one rank, whose report, with ``host`` and ``pid``, grows until :meth:`report`."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.key = uuid.uuid4().hex[:12]
        self.facts = report
        self.messages = 0

    def send(self, kind: str, data: Any) -> None:
        """Print a message; each frame in one write, so that they stay whole where the launcher keeps lines."""
        key = self.key
        if kind not in ("stage", "report"):
            self.messages += 1
            key += "%06x" % self.messages
        for frame in encode_frames(kind, key, data):
            os.write(1, frame)

    def stage(self, name: str) -> None:
        """Print what comes next: of a rank that hangs, this is what remains."""
        self.facts["stage"] = name
        keys = ("host", "pid", "rank", "stage")
        self.send("stage", {key: self.facts[key] for key in keys if key in self.facts})

    def report(self) -> None:
        """Print the report."""
        self.send("report", self.facts)

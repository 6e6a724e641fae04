# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How a rank tells something to whoever started the job: in frames on its standard output.

That is the one channel that every launcher carries from every node; :mod:`.acceptance_output` finds them again.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
import zlib
from typing import Any, Iterator

FRAME_BYTES = 300
"""Of a message in one line: launchers cut lines that are much longer, and pipes do not write them in one piece."""


def frames(kind: str, key: str, data: Any) -> Iterator[bytes]:
    """Cut a message into lines that a reader can find and check in the mixed output of all ranks.

    ``@torchstack:<kind>:<key>:<n>/<total>:<crc32>:<base64 of a piece of the deflated JSON>@``

    Args:
        kind: small letters, such as ``stage`` or ``report``.
        key: hexadecimal digits that only this process uses, and for another kind than these two only this message.
        data: plain data.
    """
    text = base64.b64encode(zlib.compress(json.dumps(data).encode("utf-8"))).decode("ascii")
    pieces = [text[start:start + FRAME_BYTES] for start in range(0, len(text), FRAME_BYTES)]
    for number, piece in enumerate(pieces):
        frame = "@torchstack:%s:%s:%d/%d:%08x:%s@\n" % (
            kind, key, number, len(pieces), zlib.crc32(piece.encode("ascii")), piece
        )
        yield frame.encode("ascii")


class Output:
    """What one rank tells.

    Args:
        report: what it has found out so far, with ``host`` and ``pid``; it grows until :meth:`report` prints it.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        self.key = uuid.uuid4().hex[:12]
        self.facts = report
        self.told = 0

    def say(self, kind: str, data: Any) -> None:
        """Print a message; each frame in one write, so that they stay whole where the launcher does its part."""
        key = self.key
        if kind not in ("stage", "report"):
            self.told += 1
            key += "%06x" % self.told
        for frame in frames(kind, key, data):
            os.write(1, frame)

    def stage(self, name: str) -> None:
        """Say what comes next: of a rank that hangs, this is what remains."""
        self.facts["stage"] = name
        keys = ("host", "pid", "rank", "stage")
        self.say("stage", {key: self.facts[key] for key in keys if key in self.facts})

    def report(self) -> None:
        """Print the report."""
        self.say("report", self.facts)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Show the progress of a command on its terminal."""

from __future__ import annotations

import time
from typing import TextIO

PATIENCE = 3.0
"""Seconds before progress is shown, and between updates a fifth of it."""


class Display:
    """Shows progress on a terminal, once a verification lasts."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.active = stream.isatty()
        self.next = time.monotonic() + PATIENCE
        self.shown = False

    def progress(self, what: str, done: int, total: int) -> None:
        """Show a line in the place of the last one."""
        if self.active and time.monotonic() >= self.next:
            self.next = time.monotonic() + PATIENCE / 5
            self.shown = True
            self.stream.write("\r\033[K%d%s %s" % (done, " of %d" % total if total else "", what))
            self.stream.flush()

    def clear(self) -> None:
        """Remove the line that is shown."""
        if self.shown:
            self.stream.write("\r\033[K")
            self.stream.flush()
            self.shown = False

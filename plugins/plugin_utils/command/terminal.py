# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write lines to a terminal, and keep a view below the last one that is drawn again and again."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable

Drawing = Callable[[int, int], Any]
"""Makes the view, a renderable of the library rich, for columns and lines."""


def usable() -> bool:
    """Tell whether there is a terminal on which a view can be drawn, and the library that draws it."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.console import Console
    except ImportError:
        return False
    return not Console().is_dumb_terminal


class Screen:
    """The terminal of standard output.

    What was written above the view is never written again, so that a terminal keeps it to be scrolled back to. A view
    that was drawn on a wider terminal is found by how terminals wrap lines anew, which xterm does not.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)
        self.shown: list[int] = []
        """Columns of each line of the view that stands below the last line."""
        self._former = signal.signal(signal.SIGCONT, self._forget)

    def close(self, last: bytes = b"") -> None:
        """Take the view away, and write the last lines."""
        self.put(last)
        signal.signal(signal.SIGCONT, self._former)

    def _forget(self, *_signal: object) -> None:
        """Leave the view where it stands: a shell has written below it, while this was stopped."""
        self.shown = []

    def put(self, content: bytes = b"", drawing: Drawing | None = None) -> None:
        """Write lines above the view, and draw it below them.

        Args:
            content: goes to the terminal as it is. A view needs a line end before it.
        """
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        self.console.size = (columns, lines)  # type: ignore[assignment]
        begin, view = self._erasure(columns), ""
        if drawing is not None:
            with self.console.capture() as captured:
                self.console.print(drawing(columns, lines), end="")
            view = captured.get()
            view += "" if view.endswith("\n") or not view else "\n"
        self.shown = self._widths(view)
        # At once, so that nobody sees a half.
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.flush()
        sys.stdout.buffer.write(begin.encode("ascii") + content + view.encode(encoding, "replace"))
        sys.stdout.flush()

    def _erasure(self, columns: int) -> str:
        from rich.control import Control
        from rich.segment import ControlType

        rows = sum(max(1, -(-width // columns)) for width in self.shown)
        up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * rows
        with self.console.capture() as captured:
            self.console.control(Control(ControlType.CARRIAGE_RETURN, *up) if rows else Control())
        return captured.get()

    @staticmethod
    def _widths(view: str) -> list[int]:
        from rich.text import Text

        return [Text.from_ansi(line).cell_len for line in view.splitlines()]

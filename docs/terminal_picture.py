# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw what a terminal shows as an SVG, as the README has it of a rollout.

``tmux capture-pane -e -p | python3 docs/terminal_picture.py docs/images/rollout.svg "torchstack rollout local"``
draws the pane as it is at that moment, under a title. It needs the package rich, which ``make env`` installs.
"""

from __future__ import annotations

import io
import pathlib
import re
import sys

from rich.console import Console
from rich.text import Text


def draw(shown: str, title: str) -> str:
    """Draw lines with their colours; empty ones at the end are left out, and no font is fetched from anywhere."""
    lines = [Text.from_ansi(line) for line in shown.rstrip().splitlines()]
    console = Console(record=True, width=max(line.cell_len for line in lines) + 1, file=io.StringIO(), highlight=False,
                      force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, no_wrap=True, crop=False)
    picture = console.export_svg(title=title, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL)


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(draw(sys.stdin.read(), sys.argv[2]), encoding="utf-8")

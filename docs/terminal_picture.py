# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw a recording of a terminal as a picture that plays, as the README has it of an operator's day.

``python3 docs/terminal_picture.py docs/images/day.cast docs/images/day.svg``

The picture is an SVG that moves by CSS alone and fetches nothing, so that it plays where a page shows it as an image.
Each command is seen as it was typed, at moments while it worked, and with what it left on the terminal. It needs the
package pyte, a terminal without a screen: ``pip install pyte``. With ``--check``, as the tests run it, it compares.
"""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import sys
from html import escape
from typing import Any, Iterator, NamedTuple

import recording

WORKING, WORKING_SECONDS = 6, 1.2
"""How many moments of a command that works are shown at most, and how long each of them."""
TYPED_SECONDS, LEFT_SECONDS = 1.2, 4.0
"""How long a typed line is shown, and what a command has left."""

TOGETHER = 0.1
"""Within how many seconds what is written counts as written at once."""

CELL, LINE, MARGIN, BAR = 8.4, 18, 14, 34
"""Of the picture, in pixels: a character's width, a line's height, and the frame."""
PAPER, INK = "#1c1f26", "#d0d4dc"
COLOURS = {
    "black": "#5c6370", "red": "#ef6b73", "green": "#8fcf7f", "brown": "#e2b868", "blue": "#6fb3f2",
    "magenta": "#cf8ee0", "cyan": "#5cc3cf", "white": INK}


class Run(NamedTuple):
    """Characters of a line in one style."""

    column: int
    text: str
    colour: str
    bold: bool


class Scene(NamedTuple):
    """The terminal at a moment: its lines, and for how many seconds they are shown."""

    lines: tuple[tuple[Run, ...], ...]
    seconds: float


def scenes(recorded: recording.Recording) -> list[Scene]:
    """The moments that are shown: what was typed, a few while a command works, and what it left."""
    found: list[Scene] = []
    for group in _commands(recorded):
        *before, last = group
        chosen = [before[at * len(before) // WORKING] for at in range(WORKING)] if len(before) > WORKING else before
        timed = [(lines, WORKING_SECONDS) for lines in chosen[1:]] + [(last, LEFT_SECONDS)]
        for lines, seconds in [(group[0], TYPED_SECONDS), *timed] if before else timed:
            if found and found[-1].lines == lines:
                found[-1] = Scene(lines, max(found[-1].seconds, seconds))
            else:
                found.append(Scene(lines, seconds))
    return found


def _commands(recorded: recording.Recording) -> Iterator[list[Any]]:
    """The terminal after each key that does something: at once, as it changes, and before more is typed."""
    import pyte

    screen = pyte.Screen(recorded.columns, recorded.rows)
    stream = pyte.Stream(screen)
    group: list[Any] = []
    is_typing = True
    for event, following in itertools.zip_longest(recorded.events, recorded.events[1:]):
        if event.kind == "o":
            stream.feed(event.data)
            # What comes in pieces is not shown half.
            if not is_typing and (following is None or following.time - event.time > TOGETHER):
                group.append(_lines(screen))
        elif event.data.isprintable():
            is_typing = True
        else:
            if group:
                yield group
            group, is_typing = [_lines(screen)], False
    yield group


def _lines(screen: Any) -> tuple[tuple[Run, ...], ...]:
    return tuple(tuple(_runs(screen.buffer[row], screen.columns)) for row in range(screen.lines))


def _runs(cells: Any, columns: int) -> Iterator[Run]:
    styles = [(cells[at].fg, cells[at].bold) for at in range(columns)]
    column = 0
    for (colour, bold), members in itertools.groupby(styles):
        width = len(list(members))
        text = "".join(cells[at].data for at in range(column, column + width))
        if text.strip():
            begin = column + len(text) - len(text.lstrip())
            yield Run(begin, text.strip(), colour, bold)
        column += width


def draw(shown: list[Scene], columns: int, rows: int, source: str, title: str) -> str:
    """Draw scenes beside each other, and a window that goes from one to the next.

    Args:
        source: the recording's checksum, for whoever wants to know whether this is its picture.
    """
    width, height = columns * CELL + 2 * MARGIN, rows * LINE + BAR + MARGIN
    kept: dict[tuple[Run, ...], str] = {}
    drawn = []
    for at, scene in enumerate(shown):
        uses = "".join(
            '<use href="#%s" y="%d"/>' % (kept.setdefault(line, "l%d" % len(kept)), row * LINE)
            for row, line in enumerate(scene.lines) if line)
        drawn.append('<g transform="translate(%.0f)">%s</g>' % (at * width, uses))
    whole, begin, steps = sum(scene.seconds for scene in shown), 0.0, []
    for at, scene in enumerate(shown):
        steps.append("%.3f%%{transform:translateX(%.0fpx)}" % (100 * begin / whole, -at * width))
        begin += scene.seconds
    defined = "\n".join('<g id="%s">%s</g>' % (name, "".join(map(_text, line))) for line, name in kept.items())
    return """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" data-recording="{source}">
<title>{title}</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: {ink}; }}
.b {{ font-weight: bold; }}
{colours}
#day {{ transform: translateX({last:.0f}px); animation: day {whole:.1f}s step-end infinite; }}
@keyframes day {{ {steps} }}
@media (prefers-reduced-motion: reduce) {{ #day {{ animation: none; }} }}
</style>
<defs>
{defined}
</defs>
<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="{paper}" stroke="#3a3f4b"/>
<g><circle cx="20" cy="17" r="6" fill="#ff5f57"/><circle cx="40" cy="17" r="6" fill="#febc2e"/>\
<circle cx="60" cy="17" r="6" fill="#28c840"/></g>
<text x="{middle:.0f}" y="22" text-anchor="middle">{title}</text>
<svg x="{margin}" y="{bar}" width="{inner:.0f}" height="{below}"><g id="day">
{drawn}
</g></svg>
</svg>
""".format(
        width=width, height=height, source=source, title=escape(title), ink=INK, paper=PAPER, margin=MARGIN, bar=BAR,
        colours="\n".join(".%s { fill: %s; }" % item for item in COLOURS.items()), last=-(len(shown) - 1) * width,
        whole=whole, steps=" ".join(steps), defined=defined, middle=width / 2, inner=width - 2 * MARGIN,
        below=rows * LINE + 4, drawn="\n".join(drawn))


def _text(run: Run) -> str:
    classes = " ".join([*(["b"] if run.bold else []), *([run.colour] if run.colour in COLOURS else [])])
    # As wide as on the terminal, in whichever font there is.
    return '<text x="%.1f" y="14" textLength="%.1f"%s>%s</text>' % (
        run.column * CELL, len(run.text) * CELL, ' class="%s"' % classes if classes else "",
        escape(run.text, quote=False).replace(" ", "\N{NO-BREAK SPACE}"))


def picture(path: pathlib.Path) -> str:
    """Draw the recording of a file."""
    recorded = recording.read(path)
    source = hashlib.sha256(path.read_bytes()).hexdigest()
    return draw(scenes(recorded), recorded.columns, recorded.rows, source, "torchstack")


def main(words: list[str]) -> int:
    """Write the picture of a recording; with ``--check``, return 1 where another one is there, and write nothing."""
    check, (source, target) = "--check" in words, map(pathlib.Path, (word for word in words if word != "--check"))
    drawn = picture(source)
    if not check:
        target.write_text(drawn, encoding="utf-8")
    elif target.read_text(encoding="utf-8") != drawn:
        print("%s is not what %s shows: python3 docs/terminal_picture.py %s %s" % (target, source, source, target))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

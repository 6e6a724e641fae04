# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw figures of matplotlib as SVG elements in the colours and fonts of the page's style.

Every colour of a drawing but those of a heat map's cells is a variable of the style, so that one drawing serves light
and dark. Text stays text. Where there is no matplotlib, there are no plots.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
from typing import Any, Iterator, NamedTuple

INK, MUTED, GRID, ALARM = "#010101", "#020202", "#030303", "#040404"
SERIES = tuple("#0600%02d" % (position + 1) for position in range(6))
VARIABLES = dict(
    zip((INK, MUTED, GRID, ALARM), ("--ink", "--muted", "--rule", "--bad")),
    **{colour: "--series-%d" % (position + 1) for position, colour in enumerate(SERIES)},
)
"""Colours that stand in a drawing for variables of the page's style."""

RC: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "hpcml.torchstack", "font.size": 9.5, "axes.linewidth": 0.8,
    "text.color": INK, "axes.labelcolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "axes.edgecolor": GRID,
    "grid.color": GRID, "grid.linewidth": 0.7, "path.simplify": False,
}


class Plot(NamedTuple):
    """Hold a drawing: the SVG element, and its text alternative."""

    svg: str
    label: str


def can_plot() -> bool:
    """Tell whether plots can be drawn on this machine."""
    try:
        import matplotlib.figure  # noqa: F401 -- an optional requirement
    except ImportError:
        return False
    return True


def make_figure(width: float, height: float) -> tuple[Any, Any]:
    """Make a figure of so many inches with one pair of axes, without background."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.add_axes((0, 0, 1, 1))


@contextlib.contextmanager
def page_style() -> Iterator[None]:
    """Set the page's style for drawing, whatever the user's own settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        # A name is shown as it is, whatever dollars it has; older versions read mathematics in it.
        if "text.parse_math" in matplotlib.rcParams:
            matplotlib.rcParams["text.parse_math"] = False
        yield


def to_svg(figure: Any, name: str) -> str:
    """Convert the figure to an element of a page, with ids of its own."""
    stream = io.StringIO()
    unsaid = {key: None for key in ("Creator", "Date", "Format", "Type")}
    figure.savefig(stream, format="svg", transparent=True, metadata=unsaid)
    text = stream.getvalue()
    text = text[text.index("<svg"):]
    # A style element within a drawing would apply to the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r'\bid="([^"]+)"', 'id="%s-\\1"' % name, text)
    text = re.sub(r"url\(#([^)]+)\)", "url(#%s-\\1)" % name, text)
    text = re.sub(r'href="#([^"]+)"', 'href="#%s-\\1"' % name, text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, "var(%s)" % variable)
    # The page's fonts, in the drawing's sizes.
    text = re.sub(r"font: ([^;\"]*)", _size_of_font, text)
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    return text.strip()


def _size_of_font(match: re.Match[str]) -> str:
    """Keep size and weight of ``font: bold 10px 'Family'``."""
    words_of_it = match.group(1).split()
    size = next(word for word in words_of_it if word.endswith("px"))
    return "font-size: %s%s" % (size, "; font-weight: bold" if words_of_it[0] in ("bold", "700") else "")


def to_element(plot: Plot) -> str:
    """Add the text alternative to the drawing, for the page."""
    return re.sub(r"<svg ", '<svg role="img" aria-label="%s" ' % html.escape(plot.label, quote=True), plot.svg, count=1)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The plots of a report as SVG that stands in the page: drawn by matplotlib, coloured by the page's style.

Every colour of a drawing but those of the heat map's cells is a variable of the style, so that one drawing serves light
and dark. Text stays text. Where there is no matplotlib, there are no plots.
"""

from __future__ import annotations

import contextlib
import html
import io
import math
import re
import statistics
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from . import format as words

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv", "all_to_all")
"""In the order of their colours; an operation looks the same in every plot."""

INK, MUTED, GRID, ALARM = "#010101", "#020202", "#030303", "#040404"
SERIES = tuple("#0600%02d" % (position + 1) for position in range(6))
VARIABLES = dict(
    zip((INK, MUTED, GRID, ALARM), ("--ink", "--muted", "--rule", "--bad")),
    **{colour: "--series-%d" % (position + 1) for position, colour in enumerate(SERIES)},
)
"""What stands in a drawing for a colour of the page's style."""

MARKERS = "os^DvP"
DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1.5)), (0, (8, 2, 1, 2, 1, 2)))
"""Colours alone say nothing on paper, and not the same to everybody."""

COLUMNS = 3
"""Lines that are named side by side; and up to so many have bands."""

NAMED = 24
"""With more nodes than this, a heat map has no room for their names."""

LONGEST = 20
"""Letters of a name in a heat map."""

WRITTEN = 10
"""Up to so many nodes, the numbers are written into the cells."""

COLOURS = "cividis"
"""Made for eyes of every kind, and in grey still a scale: Nuñez, Anderton and Renslow, PLOS ONE 13 (2018) e0199239."""

RC: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "hpcml.torchstack", "font.size": 9.5, "axes.linewidth": 0.8,
    "text.color": INK, "axes.labelcolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "axes.edgecolor": GRID,
    "grid.color": GRID, "grid.linewidth": 0.7, "path.simplify": False,
}


class Plot(NamedTuple):
    """A drawing: the SVG element, and the words for those who do not see it."""

    svg: str
    label: str


def available() -> bool:
    """Whether plots can be drawn on this machine."""
    try:
        import matplotlib.figure  # noqa: F401 -- an optional requirement
    except ImportError:
        return False
    return True


def bandwidth(measurements: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]], name: str) -> Plot | None:
    """Bus bandwidth over size of one backend, both axes logarithmic, with bands from the slowest to the fastest trial.

    Args:
        measurements: those of one backend.
        floors: of the same backend.
        name: unique in the page.

    Returns:
        the plot; None where nothing was measured.
    """
    drawn = [entry for entry in measurements if any(row["busbw"] > 0 for row in entry["rows"])]
    if not drawn:
        return None
    best = "; ".join(
        "%s up to %s GB/s" % (entry["operation"], words.speed(max(row["busbw"] for row in entry["rows"])))
        for entry in drawn
    )
    label = "Bus bandwidth over size: %s. The numbers are in the table below." % best
    with _style_of_the_page():
        return Plot(_svg(_bandwidth(drawn, floors), name), label)


def _bandwidth(drawn: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]]) -> Any:
    lines = -(-len(drawn) // COLUMNS)
    height = 3.3 + 0.19 * lines
    figure, axes = _figure(5.2, height)
    axes.set_position((0.13, 0.5 / height, 0.85, 2.7 / height))
    for position, entry in enumerate(drawn):
        rows = [row for row in entry["rows"] if row["busbw"] > 0]
        style = _style(entry["operation"])
        sizes = [row["bytes"] for row in rows]
        low, high = ([_at(row, which) for row in rows] for which in ("max", "min"))
        # The bands of many lines are a fog.
        if len(drawn) <= COLUMNS or not position:
            axes.fill_between(sizes, low, high, color=style["color"], alpha=0.18, linewidth=0)
        speeds = [row["busbw"] for row in rows]
        axes.plot(sizes, speeds, label=entry["operation"], markersize=3.6, linewidth=1.5, **style)
    for floor in floors:
        if floor["bytes"] and floor["limit"]:
            axes.plot(
                [floor["bytes"] / 1.8, floor["bytes"] * 1.8], [floor["limit"]] * 2, color=ALARM, linewidth=2.2,
                solid_capstyle="butt", label="_floor",
            )
            axes.annotate(
                "floor %s" % words.short(floor["limit"]), (floor["bytes"], floor["limit"]), (0, -4),
                ha="center", va="top", textcoords="offset points", color=ALARM, fontsize=8.5,
            )
    _logarithmic(axes, drawn, floors)
    axes.set_ylabel("bus bandwidth, GB/s")
    axes.set_xlabel("size")
    axes.grid(True, which="major")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=COLUMNS, frameon=False, fontsize=8.5,
                handlelength=3, borderpad=0.2, labelspacing=0.3, columnspacing=1.2)
    return figure


def _style(operation: str) -> dict[str, Any]:
    position = OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS) - 1
    return {"color": SERIES[position], "marker": MARKERS[position], "linestyle": DASHES[position]}


def _at(row: Mapping[str, Any], which: str) -> float:
    """The bus bandwidth of the fastest (``min``) or slowest (``max``) trial."""
    times = row["microseconds"]
    typical = times.get("mean") or times.get("median")
    return row["busbw"] * typical / times[which] if typical and times.get(which) else row["busbw"]


def _logarithmic(axes: Any, drawn: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    sizes = [row["bytes"] for entry in drawn for row in entry["rows"]]
    speeds = [row["busbw"] for entry in drawn for row in entry["rows"] if row["busbw"] > 0]
    speeds += [floor["limit"] for floor in floors if floor["limit"]]
    first, last = (math.log2(limit(sizes)) for limit in (min, max))
    every = max(1, math.ceil((last - first) / 5))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator([2 ** power for power in range(math.ceil(first), int(last) + 1, every)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: words.size(value)))
    decades = math.log10(max(speeds) / min(speeds))
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: words.short(value)))
    axes.set_ylim(min(speeds) / 1.5, max(speeds) * 1.5)


def heat_map(sweep: Mapping[str, Any], name: str) -> Plot | None:
    """The speed of every pair of nodes.

    Args:
        sweep: as :func:`.report_measurements.sweep` gives it.
        name: unique in the page.

    Returns:
        the plot; None where no pair was measured.
    """
    speeds = [speed for row in sweep["pairs"] for speed in row if speed is not None]
    if not speeds:
        return None
    label = "Heat map of %s between %s: median %s, slowest %s, fastest %s GB/s. Tables below have the slowest." % (
        words.count(len(speeds), "pair"), words.count(len(sweep["hosts"]), "node"),
        *(words.speed(one(speeds)) for one in (statistics.median, min, max)),
    )
    with _style_of_the_page():
        return Plot(_svg(_heat_map(sweep, speeds), name), label)


def _heat_map(sweep: Mapping[str, Any], speeds: Sequence[float]) -> Any:
    import matplotlib
    import numpy

    hosts = sweep["hosts"]
    cells = numpy.full((len(hosts), len(hosts)), numpy.nan)
    for row, values in enumerate(sweep["pairs"]):
        for column, value in enumerate(values):
            if value is not None:
                cells[row + 1, column] = cells[column, row + 1] = value
    middle = float(numpy.nanmedian(cells))
    # A scale as narrow as the noise would paint the noise.
    low, high = min(0.75 * middle, *speeds), max(1.05 * middle, *speeds)
    names = _short_names(hosts)
    # Room for the longest name at the left, a square beside it, and the scale below.
    left = 0.25 + 0.07 * max(len(name) for name in names)
    side = 5.1 - left
    figure, axes = _figure(5.2, side + 0.95)
    axes.set_position((left / 5.2, 0.85 / (side + 0.95), side / 5.2, side / (side + 0.95)))
    palette = matplotlib.colormaps[COLOURS]
    axes.imshow(cells, cmap=palette, vmin=low, vmax=high, interpolation="none", aspect="equal")
    _name_nodes(axes, sweep, names)
    if len(hosts) <= WRITTEN:
        for row in range(len(hosts)):
            for column in range(len(hosts)):
                if not math.isnan(cells[row, column]):
                    dark = (cells[row, column] - low) / ((high - low) or 1) < 0.55
                    axes.text(column, row, words.speed(cells[row, column]), ha="center", va="center", fontsize=8.5,
                              color="#ffffff" if dark else "#000000")
    _mark_links(axes, sweep)
    _scale(figure, palette, low, high, side + 0.95)
    return figure


def _short_names(hosts: Sequence[str]) -> list[str]:
    """The names without the domain that all of them have, and not longer than there is room for."""
    plain = [host.partition(".")[0] for host in hosts]
    names = plain if len(set(plain)) == len(hosts) else list(hosts)
    return [name if len(name) <= LONGEST else "…" + name[1 - LONGEST:] for name in names]


def _name_nodes(axes: Any, sweep: Mapping[str, Any], names: Sequence[str]) -> None:
    """Names at the left only: what is right of them is below each other too, in the same order."""
    hosts = sweep["hosts"]
    slow = {entry["host"] for entry in sweep["slow_nodes"]}
    chosen = list(range(len(hosts)))
    if len(hosts) > NAMED:
        # Two names must not lie on each other.
        chosen = []
        for position in [place for place, host in enumerate(hosts) if host in slow] + [0, len(hosts) - 1]:
            if all(abs(position - other) >= len(hosts) / 30.0 for other in chosen):
                chosen.append(position)
        chosen.sort()
    axes.set_xticks([position for position in chosen if hosts[position] in slow], [])
    axes.set_yticks(chosen, [names[position] for position in chosen])
    axes.tick_params(length=3, width=0.8, labelsize=8.5)
    for position, label in zip(chosen, axes.get_yticklabels()):
        if hosts[position] in slow:
            label.set_color(ALARM)
            label.set_fontweight("bold")


def _mark_links(axes: Any, sweep: Mapping[str, Any]) -> None:
    places = {host: position for position, host in enumerate(sweep["hosts"])}
    for entry in sweep["slow_links"]:
        found = [places[host] for host in entry["hosts"] if host in places]
        if len(found) == 2:
            axes.plot(found, found[::-1], linestyle="none", marker="o", markersize=max(9, 190 / len(places)),
                      markerfacecolor="none", markeredgecolor="#ffffff", markeredgewidth=2.6, clip_on=False)
            axes.plot(found, found[::-1], linestyle="none", marker="o", markersize=max(9, 190 / len(places)),
                      markerfacecolor="none", markeredgecolor="#c1121f", markeredgewidth=1.4, clip_on=False)


def _scale(figure: Any, palette: Any, low: float, high: float, height: float) -> None:
    """The colours and what they stand for, at the foot of a figure of so many inches."""
    import numpy

    strip = figure.add_axes((0.30, 0.48 / height, 0.53, 0.12 / height))
    strip.imshow(
        numpy.linspace(0, 1, 256).reshape(1, -1), cmap=palette, aspect="auto", interpolation="none",
        extent=(low, high, 0, 1),
    )
    strip.set_yticks([])
    strip.set_xticks([low, (low + high) / 2, high], [words.speed(value) for value in (low, (low + high) / 2, high)])
    strip.tick_params(labelsize=8.5, length=3)
    strip.set_xlabel("bus bandwidth, GB/s", fontsize=8.5, labelpad=2)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure of so many inches with one pair of axes, without background."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.add_axes((0, 0, 1, 1))


@contextlib.contextmanager
def _style_of_the_page() -> Iterator[None]:
    """Draw as the page wants it, whatever the user's own settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def _svg(figure: Any, name: str) -> str:
    """The figure as an element of a page, its ids its own."""
    stream = io.StringIO()
    unsaid = {key: None for key in ("Creator", "Date", "Format", "Type")}
    figure.savefig(stream, format="svg", transparent=True, metadata=unsaid)
    text = stream.getvalue()
    text = text[text.index("<svg"):]
    # A style within a drawing is one for the whole page.
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
    """What is left of ``font: bold 10px 'Family'``."""
    words_of_it = match.group(1).split()
    size = next(word for word in words_of_it if word.endswith("px"))
    return "font-size: %s%s" % (size, "; font-weight: bold" if words_of_it[0] in ("bold", "700") else "")


def element(plot: Plot) -> str:
    """The drawing with its words, for the page."""
    return re.sub(r"<svg ", '<svg role="img" aria-label="%s" ' % html.escape(plot.label, quote=True), plot.svg, count=1)

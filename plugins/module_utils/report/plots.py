# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plot what a report measures: bandwidth over size, and a heat map of the pairs of nodes."""

from __future__ import annotations

import math
import statistics
from typing import Any, Mapping, Sequence

from ..core import clock, lenient_json
from . import formatting
from .svg import ALARM, SERIES, Plot, make_figure, page_style, to_svg

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv", "all_to_all")
"""In the order of their colours; an operation looks the same in every plot."""

MARKERS = "os^DvP"
DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1.5)), (0, (8, 2, 1, 2, 1, 2)))
"""Colours alone say nothing on paper, and not the same to everybody."""

MAX_COLUMNS = 3
"""Legend entries side by side, and the largest number of lines with bands."""

MAX_NAMED, MAX_NAME_LENGTH, MAX_WRITTEN = 24, 20, 10
"""Of a heat map: most nodes with names, longest name, most nodes with numbers in the cells."""

COLOUR_MAP = "cividis"
"""Made for eyes of every kind, and in grey still a scale: Nuñez, Anderton and Renslow, PLOS ONE 13 (2018) e0199239."""


def plot_bandwidth(
    measurements: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]], name: str
) -> Plot | None:
    """Plot bus bandwidth over size of one backend, on logarithmic axes, with bands of slowest to fastest.

    ``name`` is unique in the page. None where nothing was measured.
    """
    drawn = [entry for entry in measurements if any(row["busbw"] > 0 for row in entry["rows"])]
    if not drawn:
        return None
    best = "; ".join(
        "%s up to %s GB/s" % (entry["operation"], formatting.speed(max(row["busbw"] for row in entry["rows"])))
        for entry in drawn)
    label = "Bus bandwidth over size: %s. The numbers are in the table below." % best
    with page_style():
        return Plot(to_svg(_draw_bandwidth(drawn, floors), name), label)


def _draw_bandwidth(drawn: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]]) -> Any:
    lines = -(-len(drawn) // MAX_COLUMNS)
    height = 3.3 + 0.19 * lines
    figure, axes = make_figure(5.2, height)
    axes.set_position((0.13, 0.5 / height, 0.85, 2.7 / height))
    for position, entry in enumerate(drawn):
        rows = [row for row in entry["rows"] if row["busbw"] > 0]
        style = _line_style(entry["operation"])
        sizes = [row["bytes"] for row in rows]
        low, high = ([_trial_bandwidth(row, which) for row in rows] for which in ("max", "min"))
        # The bands of many lines would hide each other.
        if len(drawn) <= MAX_COLUMNS or not position:
            axes.fill_between(sizes, low, high, color=style["color"], alpha=0.18, linewidth=0)
        speeds = [row["busbw"] for row in rows]
        axes.plot(sizes, speeds, label=entry["operation"], markersize=3.6, linewidth=1.5, **style)
    for floor in floors:
        if floor["bytes"] and floor["limit"]:
            axes.plot([floor["bytes"] / 1.8, floor["bytes"] * 1.8], [floor["limit"]] * 2, color=ALARM, linewidth=2.2,
                      solid_capstyle="butt", label="_floor")
            axes.annotate("floor %s" % formatting.short(floor["limit"]), (floor["bytes"], floor["limit"]), (0, -4),
                          ha="center", va="top", textcoords="offset points", color=ALARM, fontsize=8.5)
    _set_log_axes(axes, drawn, floors)
    axes.set_xlabel("size")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=MAX_COLUMNS, frameon=False, fontsize=8.5,
                handlelength=3, borderpad=0.2, labelspacing=0.3, columnspacing=1.2)
    return figure


def _line_style(operation: str) -> dict[str, Any]:
    position = OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS) - 1
    return {"color": SERIES[position], "marker": MARKERS[position], "linestyle": DASHES[position]}


def _trial_bandwidth(row: Mapping[str, Any], which: str) -> float:
    """Compute the bus bandwidth of the fastest (``min``) or slowest (``max``) trial."""
    times = row["microseconds"]
    typical = times.get("mean") or times.get("median")
    return row["busbw"] * typical / times[which] if typical and times.get(which) else row["busbw"]


def _set_log_axes(axes: Any, drawn: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    sizes = [row["bytes"] for entry in drawn for row in entry["rows"]]
    speeds = [row["busbw"] for entry in drawn for row in entry["rows"] if row["busbw"] > 0]
    speeds += [floor["limit"] for floor in floors if floor["limit"]]
    first, last = (math.log2(limit(sizes)) for limit in (min, max))
    every = max(1, math.ceil((last - first) / 5))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([2 ** power for power in range(math.ceil(first), int(last) + 1, every)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: formatting.size(value)))
    _set_speed_axis(axes, speeds)


def _set_speed_axis(axes: Any, speeds: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    decades = math.log10(max(speeds) / min(speeds))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: formatting.short(value)))
    axes.set_ylim(min(speeds) / 1.5, max(speeds) * 1.5)
    axes.set_ylabel("bus bandwidth, GB/s")
    axes.grid(True, which="major")


def plot_over_time(series: Sequence[Mapping[str, Any]], name: str) -> Plot | None:
    """Plot the bandwidths of :func:`.overview_bandwidth.series_over_time`; None where no series has two points."""
    drawn = []
    for entry in series:
        placed = [(lenient_json.moment(point["started"]), point) for point in entry["points"] if point["busbw"] > 0]
        points = [(when, point) for when, point in placed if when is not None]
        if len({when for when, _point in points}) > 1:
            drawn.append((entry, points))
    del drawn[len(SERIES):]
    if not drawn:
        return None
    said = "; ".join("%s of %s from %s to %s GB/s" % (
        entry["operation"], entry["backend"], *(formatting.speed(points[place][1]["busbw"]) for place in (0, -1)))
        for entry, points in drawn)
    with page_style():
        return Plot(to_svg(_draw_over_time(drawn), name), "Bus bandwidth over time: %s. The table has all." % said)


def _draw_over_time(drawn: Sequence[tuple[Mapping[str, Any], Sequence[tuple[float, Mapping[str, Any]]]]]) -> Any:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    height = 2.9 + 0.19 * len(drawn)
    figure, axes = make_figure(5.2, height)
    axes.set_position((0.13, 0.35 / height, 0.85, 2.35 / height))
    for place, (entry, points) in enumerate(drawn):
        shape = "%s, %s on %s, %s%s" % (
            entry["backend"], formatting.count(entry["ranks"], "rank"), formatting.count(entry["nodes"], "node"),
            formatting.size(entry["bytes"]), ", " + entry["partition"] if entry["partition"] else "")
        axes.plot([when for when, _point in points], [point["busbw"] for _when, point in points], label=shape,
                  color=SERIES[place], marker=MARKERS[place], linestyle=DASHES[place], markersize=4.5, linewidth=1.5)
        noisy = [(when, point["busbw"]) for when, point in points if point["noisy"]]
        axes.plot([when for when, _speed in noisy], [speed for _when, speed in noisy], linestyle="none", marker="o",
                  markersize=9, markerfacecolor="none", markeredgecolor=ALARM, label="_noisy")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: clock.utc(value)[:10]))
    axes.margins(x=0.06)
    _set_speed_axis(axes, [point["busbw"] for _entry, points in drawn for _when, point in points])
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), frameon=False, fontsize=8.5, handlelength=3,
                borderpad=0.2, labelspacing=0.3)
    return figure


def plot_heat_map(sweep: Mapping[str, Any], name: str) -> Plot | None:
    """Plot the speed of every pair of nodes, of :func:`.nodes.describe_sweep`; None where none was measured."""
    speeds = [speed for row in sweep["pairs"] for speed in row if speed is not None]
    if not speeds:
        return None
    label = "Heat map of %s between %s: median %s, slowest %s, fastest %s GB/s. Tables below have the slowest." % (
        formatting.count(len(speeds), "pair"), formatting.count(len(sweep["hosts"]), "node"),
        *(formatting.speed(one(speeds)) for one in (statistics.median, min, max)))
    with page_style():
        return Plot(to_svg(_draw_heat_map(sweep, speeds), name), label)


def _draw_heat_map(sweep: Mapping[str, Any], speeds: Sequence[float]) -> Any:
    import matplotlib
    import numpy

    hosts = sweep["hosts"]
    cells = numpy.full((len(hosts), len(hosts)), numpy.nan)
    for row, values in enumerate(sweep["pairs"]):
        for column, value in enumerate(values):
            if value is not None:
                cells[row + 1, column] = cells[column, row + 1] = value
    middle = float(numpy.nanmedian(cells))
    # A scale as narrow as the noise would show only noise.
    low, high = min(0.75 * middle, *speeds), max(1.05 * middle, *speeds)
    names = _short_names(hosts)
    # Room for the longest name at the left, a square beside it, and the scale below.
    left = 0.25 + 0.07 * max(len(name) for name in names)
    side = 5.1 - left
    figure, axes = make_figure(5.2, side + 0.95)
    axes.set_position((left / 5.2, 0.85 / (side + 0.95), side / 5.2, side / (side + 0.95)))
    palette = matplotlib.colormaps[COLOUR_MAP]
    axes.imshow(cells, cmap=palette, vmin=low, vmax=high, interpolation="none", aspect="equal")
    _name_nodes(axes, sweep, names)
    if len(hosts) <= MAX_WRITTEN:
        for row in range(len(hosts)):
            for column in range(len(hosts)):
                if not math.isnan(cells[row, column]):
                    dark = (cells[row, column] - low) / ((high - low) or 1) < 0.55
                    axes.text(column, row, formatting.speed(cells[row, column]), ha="center", va="center", fontsize=8.5,
                              color="#ffffff" if dark else "#000000")
    _mark_links(axes, sweep)
    _draw_scale(figure, palette, low, high, side + 0.95)
    return figure


def _short_names(hosts: Sequence[str]) -> list[str]:
    """Shorten names: without the domain that all have, and to the room that there is."""
    plain = [host.partition(".")[0] for host in hosts]
    names = plain if len(set(plain)) == len(hosts) else list(hosts)
    return [name if len(name) <= MAX_NAME_LENGTH else "…" + name[1 - MAX_NAME_LENGTH:] for name in names]


def _name_nodes(axes: Any, sweep: Mapping[str, Any], names: Sequence[str]) -> None:
    """Label the rows only: the columns are in the same order."""
    hosts = sweep["hosts"]
    slow = {entry["host"] for entry in sweep["slow_nodes"]}
    chosen = list(range(len(hosts)))
    if len(hosts) > MAX_NAMED:
        # Two names must not overlap.
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
            for colour, width in (("#ffffff", 2.6), ("#c1121f", 1.4)):
                axes.plot(found, found[::-1], linestyle="none", marker="o", markersize=max(9, 190 / len(places)),
                          markerfacecolor="none", markeredgecolor=colour, markeredgewidth=width, clip_on=False)


def _draw_scale(figure: Any, palette: Any, low: float, high: float, height: float) -> None:
    """Draw the colour scale at the foot of a figure of ``height`` inches."""
    import numpy

    strip = figure.add_axes((0.30, 0.48 / height, 0.53, 0.12 / height))
    strip.imshow(numpy.linspace(0, 1, 256).reshape(1, -1), cmap=palette, aspect="auto", interpolation="none",
                 extent=(low, high, 0, 1))
    strip.set_yticks([])
    ticks = [low, (low + high) / 2, high]
    strip.set_xticks(ticks, [formatting.speed(value) for value in ticks])
    strip.tick_params(labelsize=8.5, length=3)
    strip.set_xlabel("bus bandwidth, GB/s", fontsize=8.5, labelpad=2)

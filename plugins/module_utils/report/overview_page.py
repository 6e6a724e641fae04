# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render the overview of a root as one page."""

from __future__ import annotations

from typing import Any, Mapping

from . import plots, svg
from .formatting import count, size
from .page import make_environment
from .tiles import Tile
from .verdict import BAD, GOOD, UNKNOWN, WARNED

PAGE = "overview.html.j2"

MAX_ACCEPTANCES = 200
"""Largest number of acceptances in the table; all of them are in the data."""

TONES = {
    "visible": GOOD, "deprecated": WARNED, "thawed": WARNED, "failed": BAD, "in progress": WARNED,
    "unfinished": UNKNOWN,
}
"""Of the states of a release; others are neither good nor bad."""


def render_overview(overview: Mapping[str, Any], templates: str) -> str:
    """Render the page as one HTML document that needs nothing else; what records say is escaped."""
    import jinja2

    drawn = plots.plot_over_time(overview["bandwidth"], "over-time") if svg.can_plot() else None
    return make_environment(templates).get_template(PAGE).render(
        overview=overview, tiles=make_tiles(overview), tones=TONES, shown=MAX_ACCEPTANCES, can_plot=svg.can_plot(),
        plot=jinja2.utils.markupsafe.Markup(svg.to_element(drawn)) if drawn else "")


def make_tiles(overview: Mapping[str, Any]) -> list[Tile]:
    """Make the tiles at the top of the page."""
    rows = [row for row in overview["releases"] if row["state"] != "removed"]
    default = next((row for row in rows if row["default"]), None)
    accepted = sum(row["tone"] == GOOD for row in rows)
    looked = [row for row in rows if row["drift_looks"]]
    differing = sum(not all(look["same"] for look in row["drift_looks"]) for row in looked)
    due = sum(bool(row["retirement"] and row["retirement"]["due"]) for row in overview["releases"])
    known = [row["size"] for row in rows if row["size"] is not None]
    broken = len(overview["broken"])
    return [
        Tile("Releases", str(len(rows)), UNKNOWN, "releases", "%s recorded" % size(sum(known)) if known else ""),
        Tile("Default", default["release"] if default else "None", default["tone"] if default else WARNED, "releases",
             default["verdict"] if default else "of what users load"),
        Tile("Accepted", "%d of %d" % (accepted, len(rows)), GOOD if accepted == len(rows) else WARNED, "acceptances",
             count(len(overview["acceptances"]), "acceptance")),
        Tile("Drift", "%d differ" % differing if differing else "None" if looked else "Not looked",
             BAD if differing else GOOD if looked else UNKNOWN, "drift",
             "%d of %d compared" % (len(looked), len(rows))),
        Tile("Retirement", "%d due" % due if due else "None due", WARNED if due else GOOD, "retirement", ""),
        *([Tile("Not readable", count(broken, "release"), BAD, "attention", "of the root")] if broken else []),
    ]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report: the facts in the words and the order in which people ask. Runs on the control node."""

from __future__ import annotations

from typing import Any, Mapping

from . import format as words
from . import plots as report_plots
from . import (
    report_tables,
    report_tiles,
    report_timeline,
)

PAGE = "page.html.j2"

RANKS = 512
"""The page shows so many ranks; all of them are in the document with the facts."""


def page(facts: Mapping[str, Any], templates: str) -> str:
    """The page as the text of one HTML document that needs nothing else.

    Args:
        facts: as the module ``release_report`` returns them.
        templates: the directory of the page's templates.
    """
    import jinja2

    # Nothing of a record can become a part of the page's markup; only the drawings are taken as they are.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )
    environment.filters.update(
        size=words.size, duration=words.duration, speed=words.speed, moment=words.moment, numbers=words.numbers,
        counted=words.count, day=words.day, short=words.short, sentence=words.sentence,
    )
    facts = plain(facts)
    return environment.get_template(PAGE).render(
        facts=facts,
        plots=_plots(facts, jinja2),
        can_plot=report_plots.available(),
        timeline=report_timeline.timeline(facts["steps"]),
        libraries=report_tables.libraries(facts["libraries"]),
        bandwidth=report_tables.bandwidth(facts["acceptance"]),
        ranks_shown=RANKS,
        sweep=report_tables.slowest(facts["sweep"]),
        tiles=report_tiles.tiles(facts),
    )


def plain(value: Any) -> Any:
    """A copy in plain types, without what Ansible keeps beside values."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, bool):
        return value
    return next((kind(value) for kind in (str, int, float) if isinstance(value, kind)), None)


def _plots(facts: Mapping[str, Any], jinja2: Any) -> dict[str, Any]:
    """The drawings by their names, as markup; none without matplotlib."""
    if not report_plots.available():
        return {}
    found = {
        group["name"]: report_plots.bandwidth(group["measurements"], group["floors"], "bandwidth-%d" % position)
        for position, group in enumerate(report_tables.bandwidth(facts["acceptance"]))
    }
    if facts["sweep"]:
        found["sweep"] = report_plots.heat_map(facts["sweep"], "sweep")
    return {name: jinja2.utils.markupsafe.Markup(report_plots.element(plot)) for name, plot in found.items() if plot}

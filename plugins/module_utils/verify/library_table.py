# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A verification as a plain table for a terminal."""

from __future__ import annotations

import collections
from typing import Any, Sequence

from .library_findings import KINDS

HEAD = {
    "missing": "Libraries that are not found",
    "misplaced": "Libraries that come from elsewhere than declared",
    "embedded": "Copies of a library inside another file",
    "forbidden": "Places that nothing may come from",
    "required": "Objects that do not need what they have to",
    "versions": "Symbol versions that a library does not have",
    "unreadable": "Files that cannot be looked at",
}


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, each column as wide as its widest cell."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def searched(places: Sequence[str]) -> list[str]:
    """The places that were searched, one line for each rule."""
    rules: dict[str, list[str]] = {}
    for place in places:
        rule, _colon, where = place.partition(": ")
        rules.setdefault(rule, []).append(where.replace(" (no such file)", ""))
    return ["      searched %s: %s" % (rule, ", ".join(where)) for rule, where in rules.items()]


def render(result: dict[str, Any], not_checked: collections.Counter[str], top: str = "") -> list[str]:
    """The lines of a verification's result.

    Args:
        result: as the module returns it.
        not_checked: how many files were not checked, by the reason.
        top: the verified directory, to which the table's paths are relative; empty: they are absolute.
    """
    below = top.rstrip("/") + "/"
    lines: list[str] = []
    for kind in KINDS:
        if not result[kind + "_total"]:
            continue
        lines.append("%s: %d" % (HEAD[kind], result[kind + "_total"]))
        for finding in result[kind]:
            where = finding.get("environment")
            lines.append("  " + finding["message"] + (" (%s)" % where if where else ""))
            if "root" in finding:
                lines.append("      for %s, %d objects in all" % (finding["root"], finding["roots"]))
            lines += searched(finding["searched"])
            lines.append("      " + finding["remedy"])
        left = result[kind + "_total"] - len(result[kind])
        lines += ["  and %d more" % left] * bool(left) + [""]
    rows = [("library", "is", "found by", "needed by")]
    for name, places in result["providers"].items():
        for place in places:
            rule = place["rule"] + (" (%s)" % place["environment"] if "environment" in place else "")
            path = place["path"]
            shown = path[len(below) :] if top and path.startswith(below) else path
            rows.append((name, shown, rule, str(place["needed_by"])))
    relative = any(not row[1].startswith("/") for row in rows[1:])
    lines += ["Relative paths are below %s." % top, ""] if relative else []
    lines += [*columns(rows), ""] if len(rows) > 1 else []
    for entry in result["allowed"]:
        lines.append(
            "%s may be missing for %s (%d): %s"
            % (entry["soname"], entry["objects"][0], entry["objects_total"], entry["reason"])
        )
    lines += ["The %s rule for %s met nothing." % (rule["rule"], rule["name"]) for rule in result["unused"]]
    lines += ["Not checked, %s: %d." % (why, count) for why, count in sorted(not_checked.items())]
    if result["unopened"]:
        lines.append("Not opened, for their names: %d." % result["unopened"])
    total = sum(result[kind + "_total"] for kind in KINDS)
    lines.append(
        "%d object%s of %d files, %d finding%s, %.1f s"
        % (
            result["objects"], "" if result["objects"] == 1 else "s", result["files"],
            total, "" if total == 1 else "s", result["seconds"],
        )
    )
    return lines

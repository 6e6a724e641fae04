# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render the drift of a release as lines for a reader and for a diff. Pure."""

from __future__ import annotations

from typing import Any

from ..core.text import in_words, shortly

MAX_FINDINGS = 20
"""Findings of a release that a summary has; the record has more."""

_WORDS = {
    "added": "added", "removed": "removed", "type": "of another type", "mode": "of another mode",
    "size": "of another size", "content": "of another content", "target": "links that lead elsewhere",
    "attributes": "with other access lists, capabilities or attributes",
    "unreadable": "unreadable", "unstable": "changing while they were read", "manifest": "the manifest itself",
}


def count_noun(number: int, noun: str) -> str:
    """Join a number and a noun: ``1 finding``, ``2 findings``."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def summary_lines(release: str, outcome: dict[str, Any]) -> list[str]:
    """Summarise the differences of a release's files."""
    level = outcome["level"]
    lines = []
    if outcome["matches"]:
        lines.append("%s: all %d files are as recorded (%s)." % (release, outcome["files"], level))
    else:
        totals: dict[str, int] = {kind: outcome["totals"].get(kind, 0) for kind in _WORDS}
        for finding in outcome["findings"]:
            if finding["kind"] == "manifest" or not outcome["totals"]:
                totals[finding["kind"]] += 1
        counts = ", ".join("%d %s" % (count, _WORDS[kind]) for kind, count in totals.items() if count)
        lines.append("%s: %s from its manifest (%s): %s." % (
            release, count_noun(outcome["findings_total"], "difference"), level, counts))
    lines += ["  " + finding_line(finding) for finding in outcome["findings"][:MAX_FINDINGS]]
    more = outcome["findings_total"] - min(MAX_FINDINGS, len(outcome["findings"]))
    if more:
        lines.append("  and %d more; drift.json has %s." % (
            more, "them" if outcome["findings_total"] == len(outcome["findings"]) else "the first of them"))
    if outcome["touched_total"]:
        nearly_all = outcome["touched_total"] > outcome["files"] / 2
        lines.append("  touched: %d of its entries were changed since%s, first %s; %s." % (
            outcome["touched_total"], " (nearly all, as after a copy or a restore)" if nearly_all else "",
            shortly(outcome["touched"][:3]), "their content was not read: compare with drift_level full"))
    thawed = outcome["thawed"]
    if thawed:
        lines.append("  It is thawed since %s by %s (%s); %d of the differences are explained by that. Refreeze it." % (
            thawed["at"], thawed["who"], in_words(thawed["why"]), outcome["explained"]))
    return lines


def finding_line(finding: dict[str, Any]) -> str:
    """Return a difference with its owner, times and thaws."""
    line = "%s: %s" % (finding["kind"], in_words(finding["path"]))
    if "from" in finding:
        line += ", %s instead of %s" % (in_words(finding["to"][:80]), in_words(finding["from"][:80]))
    if finding.get("reason"):
        line += ", %s" % in_words(finding["reason"])
    if "owner" in finding:
        what = "its directory %s" % in_words(finding["seen_on"]) if "seen_on" in finding else "it"
        line += "; %s belongs to %s, changed %s, modified %s" % (
            what, finding["owner"], finding["changed"], finding["modified"])
    for key, words in (("explained", "thawed"), ("thaw", "was thawed before")):
        if key in finding:
            line += "; %s by %s at %s (%s)" % (
                words, finding[key]["who"], finding[key]["at"], in_words(finding[key]["why"]))
    return line + "."


def outcome_lines(outcome: dict[str, Any] | None) -> list[str]:
    """Return an outcome as lines to compare."""
    if outcome is None:
        return []
    if "passed" in outcome:
        return [finding["message"] for finding in outcome["findings"]]
    lines = [finding_line(finding) for finding in outcome["findings"]]
    return [*lines, *("touched: %s" % in_words(path) for path in outcome["touched"])]

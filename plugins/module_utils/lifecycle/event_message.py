# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put into words, for people and for programs, what has happened to a release. Pure."""

from __future__ import annotations

import json
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.lenient_json import mapping, sequence, text

FINISHED, FAILED, ACCEPTED, NOT_ACCEPTED = "finished", "failed", "accepted", "not_accepted"
PUBLISHED, ROLLED_BACK = "published", "rolled_back"

SAID = {
    FINISHED: "rolled out", FAILED: "the rollout has stopped", ACCEPTED: "accepted", NOT_ACCEPTED: "not accepted",
    PUBLISHED: "published", ROLLED_BACK: "rolled back",
}
"""What people are told of each event."""

EVENTS = tuple(SAID)

MAX_LINES = 20
"""Largest number of a failure's lines in a message; the report has all of them."""


class Message(NamedTuple):
    """Hold what is told, in the forms that it is told in."""

    events: tuple[str, ...]
    subject: str
    body: str
    data: dict[str, Any]

    @property
    def json(self) -> bytes:
        """The data as one line of JSON."""
        return (json.dumps(self.data, sort_keys=True) + "\n").encode("utf-8")


def compose(
    site: str, release: str, events: Sequence[str], sentences: Sequence[str], report: Mapping[str, Any], path: str,
    at: str,
) -> Message:
    """Compose the message about events of one moment.

    Args:
        sentences: what the play says of it.
        report: the facts of the release's report; empty without one.
        path: of the report's page.
        at: the moment, as records have it.
    """
    verdict = mapping(report.get("verdict"))
    problems = [mapping(problem) for problem in sequence(verdict.get("problems"))]
    subject = "%s of %s: %s" % (release, site, ", ".join(SAID[event] for event in events))
    lines = [subject + ".", *(["", *sentences] if sentences else [])]
    if verdict.get("word"):
        lines += ["", "How it stands: %s" % text(verdict["word"])]
    for problem in problems:
        lines += ["", "%s: %s" % (text(problem.get("of")), text(problem.get("message")))]
        shown = [text(mapping(line).get("text")) for line in sequence(problem.get("lines"))]
        lines += ["    " + line for line in shown[:MAX_LINES]]
        lines += [said % text(problem[key]) for key, said in (("log", "Log: %s"), ("remedy", "%s")) if problem.get(key)]
    if report:
        lines += ["", "Report: %s" % path]
    data = {
        "schema": 1, "site": site, "release": release, "events": list(events), "at": at, "subject": subject,
        "sentences": list(sentences), "verdict": {"word": text(verdict.get("word")), "problems": problems},
        "report": path if report else "",
    }
    return Message(tuple(events), subject, "\n".join(lines) + "\n", data)

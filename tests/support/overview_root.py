# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A root as it looks after a year: a release to retire, the default, a failed one that means harm, a broken record."""

from __future__ import annotations

import contextlib
import datetime
import json
from unittest import mock

from . import report_records as recorded

OLD, DEFAULT, FAILED, BROKEN = "2026-05-02", "2026-11-20", "2026-12-01", "2026-12-02"


@contextlib.contextmanager
def as_release(name):
    """Let the records be those of a release of that name and day."""
    begin = datetime.datetime.fromisoformat(name + "T08:02:11+00:00")
    with mock.patch.object(recorded, "RELEASE", name), mock.patch.object(recorded, "BEGIN", begin):
        yield


def accept_again(root, name, started, faster, spread):
    """Append an acceptance to the history of a release, so much faster than the last one."""
    place = root / ".torchstack" / name
    again = json.loads((place / "acceptance.json").read_text())
    for entry in again["measurements"]:
        for row in entry["rows"]:
            row.update(busbw=row["busbw"] * faster, spread=spread)
    with open(place / "acceptance.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(dict(again, started=started)) + "\n")


def write(root):
    """Write the root."""
    for name, slow, link in ((OLD, (), ()), (DEFAULT, (), (2, 5))):
        with as_release(name):
            recorded.steps(root / name)
            recorded.build(root / name)
            recorded.afterwards(root, recorded.acceptance(), sweep=recorded.sweep(8, slow, link))
            recorded.publish(root)
            release = dict(recorded.resolved("The stack of %s" % name), release=name)
        recorded.write(root / name / ".torchstack" / "release.yml", json.dumps(release))
        (root / ".torchstack" / name / "report.html").write_text("<!doctype html>")
    accept_again(root, OLD, "2026-08-01T10:00:00Z", 0.9, 0.03)
    accept_again(root, DEFAULT, "2026-11-22T10:00:00Z", 0.2, 2.5)
    told = {"state": "deprecated", "since": "2026-09-01T08:00:00Z", "until": "2026-11-01", "successor": DEFAULT}
    recorded.write(root / ".torchstack" / OLD / "retired.json", told)
    finding = {"path": "base/lib/%s.py" % recorded.HOSTILE, "kind": "size", "from": "10", "to": "12"}
    looks = {"quick": {"since": "2026-11-23T02:00:00Z", "outcome": {
        "matches": False, "drifted": True, "findings": [finding], "findings_total": 1}}}
    recorded.write(root / ".torchstack" / DEFAULT / "drift.json", {"format": 1, "release": DEFAULT, "looks": looks})
    with as_release(FAILED):
        release = dict(recorded.failed(root), release=FAILED)
    recorded.write(root / FAILED / ".torchstack" / "release.yml", json.dumps(release))
    recorded.write(root / BROKEN / ".torchstack" / "release.yml", "definition: [%s" % recorded.HOSTILE)

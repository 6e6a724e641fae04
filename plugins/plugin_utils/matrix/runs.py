# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a playbook for one release after another, and sum up what became of each, by the record that it leaves."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Iterator, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mappings, text
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import run_records

DONE, FAILED, STOPPED = "done", "failed", "stopped"

LONGEST_CAUSE = 300
_BUILT, _TAKEN = ("done", "planned"), ("cached",)


class Run(NamedTuple):
    """What became of one release."""

    release: str
    outcome: str
    seconds: float
    built: int
    """steps that ran; in a plan, that would"""
    taken_over: int
    """steps that another release or run had built"""
    place: str
    """the step or else the task that failed; empty where nothing did, or none had begun"""
    said: str
    """why it failed; empty for one that did not"""
    log: pathlib.Path


def run(release: str, command: Sequence[str], log: pathlib.Path) -> Run:
    """Run a command for a release, all that it prints into a log, and read the record beside that."""
    log.parent.mkdir(parents=True, exist_ok=True)
    record = log.with_suffix(".json")
    record.unlink(missing_ok=True)
    begun, outcome, code = time.monotonic(), FAILED, -1
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            env={**os.environ, **run_records.recording(record), "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"})
        try:
            code = process.wait()
            outcome = FAILED if code else DONE
        except KeyboardInterrupt:
            # The terminal has interrupted it too; what it has begun ends by itself.
            process.wait()
            outcome = STOPPED
    found = run_records.read(record)
    states = {text(step.get("step")): text(step.get("state")) for step in mappings(found.get("steps"))}
    built, taken = (sum(state in known for state in states.values()) for known in (_BUILT, _TAKEN))
    place, said = cause(found, code) if outcome == FAILED else ("", "")
    return Run(release, outcome, time.monotonic() - begun, built, taken, place, said, log)


def cause(found: dict[str, object], code: int) -> tuple[str, str]:
    """Return where a run failed first, and why; what was rescued is no cause."""
    failures = [failure for failure in mappings(found.get("failures")) if not failure.get("rescued")]
    if failures:
        first = failures[0]
        said = text(first.get("message")).partition("\n")[0] or "it says nothing of why"
        return text(first.get("step")) or text(first.get("task")), said[:LONGEST_CAUSE]
    when = "before it played anything" if not found else "" if found.get("finished") else "in the middle"
    return "", " ".join(filter(None, ["ansible-playbook has ended with code %d" % code, when])) + ": its log says why"


def table(axes: Sequence[str], rows: Sequence[tuple[Sequence[str], Run]]) -> Iterator[str]:
    """Yield the lines of a table of all releases, and below it why some failed."""
    head = ["release", *axes, "result", "time", "built", "taken over", "failed at"]
    body = [[run.release, *values, run.outcome, "%d:%02d" % divmod(round(run.seconds), 60), str(run.built),
             str(run.taken_over), run.place] for values, run in rows]
    if not any(line[-1] for line in body):
        head, body = head[:-1], [line[:-1] for line in body]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    for line in (head, ["-" * width for width in widths], *body):
        yield "  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip()
    for _values, one in rows:
        if one.outcome == FAILED:
            yield "%s: %s (%s)" % (one.release, one.said, one.log)

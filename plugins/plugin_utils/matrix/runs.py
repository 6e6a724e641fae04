# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a playbook for one release after another, and sum up what became of each."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import time
from typing import Iterator, NamedTuple, Sequence

DONE, FAILED, STOPPED = "done", "failed", "stopped"

_STEPS = re.compile(r"(?m)^\s*(?:msg: )?\W*Steps: (.*)$")
_TAKEN = re.compile(r"(?m)^(\S+)  taken over from ")
_ERROR = re.compile(r"(?m)^\[ERROR\]: (?:Task failed: )?(?:Action failed: |Module failed: )?(.*)$")
_FATAL = re.compile(r"(?m)^fatal: .*$|^ERROR! (.*)$|^\s+msg: (?:[|>]\S*)?(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Run(NamedTuple):
    """What became of one release."""

    release: str
    outcome: str
    seconds: float
    built: int
    """steps that ran"""
    taken_over: int
    """steps that were there from another release or run"""
    said: str
    """why it failed, as the playbook says it; empty for one that did not"""
    log: pathlib.Path


def run(release: str, command: Sequence[str], log: pathlib.Path) -> Run:
    """Run a command for a release, all that it prints into a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begun, outcome = time.monotonic(), FAILED
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"})
        try:
            outcome = DONE if process.wait() == 0 else FAILED
        except KeyboardInterrupt:
            # The terminal has interrupted it too; what it has begun ends by itself.
            process.wait()
            outcome = STOPPED
    text = _COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
    built, taken = steps(text)
    said = cause(text) if outcome == FAILED else ""
    return Run(release, outcome, time.monotonic() - begun, built, taken, said, log)


def steps(text: str) -> tuple[int, int]:
    """Count the steps that ran and those that were taken over, in what a rollout printed."""
    found = _STEPS.findall(text)
    if not found:
        return 0, len(set(_TAKEN.findall(text)))
    words = found[-1].split(", ")
    taken = sum(word.rstrip(" '\"").endswith("taken over") for word in words)
    return len(words) - taken, taken


def cause(text: str) -> str:
    """Find the first sentence of a failure in what a playbook printed."""
    found = _ERROR.findall(text)
    if not found:
        found = [one or two for one, two in _FATAL.findall(text) if (one or two).strip()]
    return found[0].strip()[:300] if found else "the playbook has failed without a word"


def table(axes: Sequence[str], rows: Sequence[tuple[Sequence[str], Run]]) -> Iterator[str]:
    """Yield the lines of a table of all releases, and below it why some failed."""
    head = ["release", *axes, "result", "time", "built", "taken over"]
    body = [[run.release, *values, run.outcome, "%d:%02d" % divmod(round(run.seconds), 60), str(run.built),
             str(run.taken_over)] for values, run in rows]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    for line in (head, ["-" * width for width in widths], *body):
        yield "  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip()
    for _values, one in rows:
        if one.outcome == FAILED:
            yield "%s: %s (%s)" % (one.release, one.said, one.log)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw a rollout for a terminal: what is done, what runs, what is to come. Pure: of facts, the time and a size."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, number, text
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import formatting

BARS = ((100, 30), (70, 12), (0, 0))
"""Columns of a terminal from which on a bar is so long."""

SHARE = 2 / 3
"""Of a terminal's height, which the view takes at most: above it are the lines of the playbook."""

LEAST = 5
"""Lines that it may take on any terminal."""

STYLES = {"done": "green", "taken over": "green", "runs": "bold", "waits": "yellow", "failed": "bold red",
          "to come": "dim", "lost": "bold red"}
"""Colours of the words, which say everything without them."""

LIVE = {"running": "runs", "elsewhere": "runs", "starting": "runs", "finished": "runs", "unknown": "runs",
        "unasked": "runs", "queued": "waits", "unsubmitted": "waits", "requeue": "waits"}
"""What is said of a step that was begun, by the state of its job; of any other one, that it is lost."""

INDENT = 14
"""Columns that the lines below a step are moved in by."""


class Row(NamedTuple):
    """A step, or several that are told together."""

    word: str
    """one of :data:`STYLES`"""
    name: str
    said: str = ""
    percent: int | None = None
    below: tuple[str, ...] = ()
    """lines below it"""


def rows_of(found: Mapping[str, Any], now: float) -> list[Row]:
    """Put what :func:`.progress.look` has found into rows, in the order in which steps begin."""
    done = [_ended(one) for one in found["finished"] if not one["before"]]
    before = sum(1 for one in found["finished"] if one["before"])
    kept = [Row("done", formatting.count(before, "step"), "before")] if before else []
    passed = max(0.0, now - found["at"])
    here = mapping(found["holder"]).get("host")
    running = [_begun(one, passed, here) for one in found["running"]]
    failed = [Row("failed", one["name"], one["outcome"]) for one in found["failed"] if not one["before"]]
    again = [Row("to come", one["name"], "has failed before") for one in found["failed"] if one["before"]]
    expected = mapping(found["expected"])
    to_come = [
        Row("to come", name, "taken over" if name in found["taken_over"] else _about(expected.get(name)))
        for name in found["to_come"]]
    return [*kept, *done, *failed, *running, *again, *to_come]


def _ended(one: Mapping[str, Any]) -> Row:
    return Row("taken over" if one["taken_over"] else "done", one["name"], formatting.duration(one["seconds"]))


def node_of(one: Mapping[str, Any]) -> str:
    """Return the host of a step that was begun; of a job that waits it is where it was submitted from, and no place."""
    return "" if LIVE.get(one["state"]) == "waits" else one["host"] or ""


def _begun(one: Mapping[str, Any], passed: float, here: object) -> Row:
    said = [] if one["seconds"] is None else [formatting.duration(one["seconds"] + passed)]
    if said and one["expected"]:
        said.append("of " + _about(one["expected"]))
    if one["job_id"]:
        said.append("in job %s" % one["job_id"])
    word = LIVE.get(one["state"], "lost")
    if node_of(one) not in ("", here):
        said.append("on %s" % node_of(one))
    if word == "lost":
        said.append("(%s)" % one["state"])
    percent = number(mapping(one["progress"]).get("percent"))
    below = tuple(one[key] for key in ("waits", "last_line") if one[key])
    return Row(word, one["name"], " ".join(said), None if percent is None else int(percent), below)


def _about(seconds: float | None) -> str:
    return "about %s" % formatting.duration(seconds) if seconds else ""


def folded(rows: Sequence[Row], most: int) -> list[Row]:
    """Tell steps together until all take ``most`` lines: those to come from the last, then those done from the first.

    What runs and what has failed is never told together with others; its lines below go last.
    """
    rows = list(rows)

    def over() -> int:
        return sum(1 + len(row.below) for row in rows) - most

    come = [row for row in rows if row.word == "to come"]
    if over() > 0 and len(come) > 1:
        count = min(len(come), over() + 1)
        rows = [*rows[:len(rows) - count], Row("to come", "%d %ssteps" % (count, "more " * (count < len(come))))]
    ended = [row for row in rows if row.word in ("done", "taken over")]
    if over() > 0 and len(ended) > 1:
        count = min(len(ended), over() + 1)
        # One of them may be several already.
        several = sum(int(row.name.split()[0]) if row.said == "before" else 1 for row in ended[:count])
        rows = [Row("done", "%d steps" % several), *rows[count:]]
    if over() > 0:
        rows = [row._replace(below=()) for row in rows]
    return rows


def heading(found: Mapping[str, Any], now: float) -> str:
    """Say of what release it is, how far it is, since when and for how long yet."""
    passed = max(0.0, now - found["at"])
    total = " of %d" % found["steps"] if found["steps"] else ""
    parts = ["Release %s of %s" % (found["release"], found["site"]), "step %d%s" % (found["step"], total)]
    if found["seconds"] is not None:
        parts.append(formatting.duration(found["seconds"] + passed))
    if found["left_seconds"]:
        parts.append("%s more" % _about(max(1.0, found["left_seconds"] - passed)))
    return ", ".join(parts)


def drawing(
    found: Mapping[str, Any], now: float, width: int, height: int, task: Mapping[str, Any] | None = None
) -> Any:
    """Draw the view, for a terminal of this size, as a renderable of the library rich.

    Args:
        found: see :func:`.progress.look`.
        now: in seconds since 1970.
        task: what the playbook does between steps: its ``name``, and ``since`` when.
    """
    from rich.cells import cell_len
    from rich.console import Group
    from rich.text import Text

    between = [] if found["running"] or not task else [_between(task, now)]
    most = max(LEAST, int(height * SHARE)) - 1 - len(between)
    rows = folded(rows_of(found, now), most)
    names = max((len(row.name) for row in rows), default=0)
    long = next(long for least, long in BARS if width >= least)
    lines = [Text(heading(found, now), style="bold")]
    for row in rows:
        line = Text("  ")
        line.append("%-10s  " % row.word, style=STYLES[row.word])
        line.append("%-*s  " % (names, row.name))
        share = _progress(row.percent, 0)
        # A bar that is cut says something else; where even the share has no room, the end of the rest goes.
        said = [[row.said, _progress(row.percent, long)], [row.said, share], [share, row.said]]
        joined = ["  ".join(filter(None, words)) for words in said]
        line.append(next((one for one in joined if line.cell_len + cell_len(one) < width), joined[-1]))
        lines.append(line)
        lines += [Text(" " * INDENT + below, style="dim") for below in row.below]
    lines += [Text(line) for line in between]
    for line in lines:
        line.rstrip()
        # One column stays free: a line that fills a terminal is one line more on some.
        line.truncate(max(1, width - 1), overflow="ellipsis")
        line.no_wrap = True
    return Group(*lines[:max(LEAST, height - 1)])


def _progress(percent: int | None, length: int) -> str:
    if percent is None:
        return ""
    filled = percent * length // 100
    return "%d %%" % percent + (" [%s%s]" % ("#" * filled, "." * (length - filled)) if length else "")


def _between(task: Mapping[str, Any], now: float) -> str:
    since = number(task.get("since"))
    long = ", %s" % formatting.duration(max(0.0, now - since)) if since is not None else ""
    return "  %-10s  %s%s" % ("now", printable(text(task.get("name"))), long)


def lines(
    found: Mapping[str, Any], now: float, width: int, height: int, task: Mapping[str, Any] | None = None
) -> list[str]:
    """Draw the view as lines without colours."""
    import io

    from rich.console import Console

    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, color_system=None, force_terminal=False)
    console.print(drawing(found, now, width, height, task), end="")
    return stream.getvalue().splitlines()

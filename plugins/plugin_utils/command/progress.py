# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say how far a rollout is, from its records alone: so from any terminal, and from another login node."""

from __future__ import annotations

import datetime
import glob
import os
import re
import time
from typing import Any, Callable, Mapping, NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, moment, text
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import PARTITIONS
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import facts, formatting, records
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import progress
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import StepFiles, step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.launcher_registry import launcher_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.queue_lines import queue_line
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import StepRecords

from . import expectation, releases
from .expectation import Expected
from .releases import Release
from .view import node_of

ENDED = ("done", "cached")
MOST_LINES = 8
"""Of a log that say why a step failed."""
QUOTED = re.compile(r" *\d* +\| ")
"""A line of a source in a compiler's message, or what is drawn below it."""


ASIDE = (("*",), (PARTITIONS, "*", "*"))
"""Where jobs have their records that build nothing, such as the look at a compute node; below ``afterwards``."""


def files_of(release: Release, step: str) -> StepFiles:
    """Find the records of a step, also of one of the build tools that releases share, and of a job that builds none."""
    own = step_files(os.path.join(release.files.prefix, ".torchstack", "steps"), step)
    if not os.path.isdir(own.directory):
        aside = [step_files(place, step) for place in _aside(release)]
        own = max((files for files in aside if os.path.isfile(files.job)), default=own,
                  key=lambda files: os.stat(files.job).st_mtime)
    tools = text(release.resolved.get("tools"))
    if not os.path.isdir(own.directory) and os.path.isabs(tools):
        shared = step_files(tools + ".records", step)
        return shared if os.path.isdir(shared.directory) else own
    return own


def begun(release: Release) -> list[dict[str, Any]]:
    """List the steps that were begun and have not ended, and the jobs that build nothing, marked as ``aside``."""
    own = [step for step in release.steps if step["state"] == "begun"]
    aside = [step for place in _aside(release) for step in facts.describe_steps(
        {name: found for name, found in records.read_steps(release.files, place).items() if "job" in found})]
    return own + [{**step, "aside": True} for step in aside if step["state"] == "begun"]


def _aside(release: Release) -> list[str]:
    top = glob.escape(release.files.afterwards)
    return [place for parts in ASIDE for place in sorted(glob.glob(os.path.join(top, *parts))) if os.path.isdir(place)]


def newest(root: str) -> Release | None:
    """Read the release that is in progress, or else the one that was begun or frozen last; None where there is none."""
    found, _broken = releases.read_all(root)
    return max(found, default=None, key=lambda one: (one.lock is not None, str(releases.row(one)["since"] or "")))


def ask(files: StepFiles) -> tuple[str, str]:
    """Ask the machine, or the batch system, for the state of a step's job, and how it waits."""
    try:
        found = StepRecords.read(files)
        if found.job is None:
            return "unknown", ""
        state = launcher_of(found.job).query(files, found, None)
    except (StackError, OSError) as error:
        return "unknown", str(error)
    if state.error is not None:
        return state.name, state.error.message
    waits = queue_line(files.name, state.queue, datetime.date.today().isoformat()) if state.queue else ""
    return state.name, waits


class Sources(NamedTuple):
    """Whom to ask what is not in a release's own records; who looks again and again remembers answers."""

    expected: Callable[[Release], Expected | None] = expectation.expected
    job: Callable[[StepFiles], tuple[str, str]] = ask


RECORDS = Sources()
"""The records of all releases, and the batch system."""


def look(release: Release, now: float | None = None, sources: Sources = RECORDS) -> dict[str, Any]:
    """Say how far a rollout is: plain data, seconds, and null for what is not known."""
    now = time.time() if now is None else now
    known, steps = sources.expected(release), release.steps
    since = moment(text(mapping(release.lock).get("since"))) if release.lock else None
    ended = [step for step in steps if step["state"] in ENDED]
    done = [step["name"] for step in ended]
    over = expectation.taken_over(release, known) if known else set()
    # Of one that is taken over its files are copied, which takes nearly no time.
    seconds = {name: 0.0 if name in over else took for name, took in known.seconds.items()} if known else None
    running = [_running(release, step, seconds, now, sources) for step in begun(release)]
    names = {step["name"] for step in steps}
    to_come = [name for name in seconds or {} if name not in names]
    left = None
    if seconds is not None:
        left = sum(seconds[name] for name in to_come) + sum(
            max(0.0, (one["expected"] or 0.0) - (one["seconds"] or 0.0)) for one in running)
    return {
        "release": release.files.release, "site": release.facts["release"]["site"], "state": releases.state_of(release),
        "verdict": release.facts["verdict"]["word"], "holder": release.lock and dict(release.lock),
        "seconds": None if since is None else max(0.0, now - since),
        "step": len(done) + sum(not one["aside"] for one in running),
        "steps": len(names) + len(to_come) if known else None,
        "at": now, "done": done, "finished": [_finished(step, since) for step in ended], "running": running,
        "failed": [{**step, "before": _before(step, since)} for step in steps if step["state"] == "failed"],
        "to_come": to_come, "expected": {name: seconds[name] for name in to_come} if seconds is not None else {},
        "taken_over": sorted(over),
        "left_seconds": left, "expected_by": known.release if known else None,
    }


def _finished(step: Mapping[str, Any], since: float | None) -> dict[str, Any]:
    """Say how long a step took, and whether it was done before this rollout began."""
    return {"name": step["name"], "seconds": step["seconds"], "taken_over": step["state"] == "cached",
            "before": _before(step, since)}


def _before(step: Mapping[str, Any], since: float | None) -> bool:
    ended = moment(step["finished"])
    return since is not None and ended is not None and ended < since


def _running(
    release: Release, step: Mapping[str, Any], expected: Mapping[str, float] | None, now: float, sources: Sources
) -> dict[str, Any]:
    files, began = files_of(release, step["name"]), moment(step["started"])
    end = progress.read_end(files.log)
    # What a compiler quotes from a source and underlines there says nothing by itself.
    # Nor does what the supervisor says of the attempt, before a program has said a word.
    lines = [line.strip() for line in progress.last_lines(end, 30, 200)
             if any(sign.isalnum() for sign in line) and not line.startswith("==== ") and not QUOTED.match(line)]
    state, waits = sources.job(files)
    return {
        "name": step["name"], "aside": bool(step.get("aside")), "state": state, "host": step["host"],
        "launcher": step["launcher"],
        "job_id": step["job_id"] or None, "waits": waits, "seconds": None if began is None else max(0.0, now - began),
        "expected": expected.get(step["name"]) if expected else None, "progress": progress.parse_progress(end, True),
        "last_line": printable(lines[-1]) if lines else "", "log": files.log,
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """Write it for people."""
    holder = mapping(found["holder"])
    said = ["Release %s of site %s: %s%s" % (
        found["release"], found["site"], found["state"],
        ", since %s by %s on %s (process %s, %s)" % (
            formatting.moment(holder.get("since")), holder.get("user"), holder.get("host"), holder.get("pid"),
            holder.get("playbook")) if holder else "; " + found["verdict"])]
    total = " of %d" % found["steps"] if found["steps"] and found["state"] == "in progress" else ""
    for one in found["running"]:
        said += _of_running(one, "Besides" if one["aside"] else "Step %d%s" % (found["step"], total))
    if not found["running"] and not found["failed"]:
        said.append("Steps done: %d%s" % (found["step"], total))
    for step in found["failed"]:
        said.append("Failed: %s" % step["outcome"])
        why = [printable(line["text"]) for error in step.get("errors", []) for line in error["lines"]]
        said += ["  " + line for line in why[:MOST_LINES]]
        said += [line for line in (step.get("remedy", ""), step.get("log") and "Log: " + step["log"]) if line]
    if found["seconds"] is not None:
        said.append("So far: %s%s" % (formatting.duration(found["seconds"]), _expectation(found)))
    return said


def _of_running(one: Mapping[str, Any], heading: str) -> list[str]:
    mark = mapping(one["progress"])
    # Of a process on another host only its signs of life are known, and it gives them.
    state = "running" if one["state"] == "elsewhere" else one["state"]
    parts = ["%s: %s, %s" % (heading, one["name"], state)]
    parts += ["job %s" % one["job_id"]] if one["job_id"] else []
    parts += ["on %s" % node_of(one)] if node_of(one) else []
    parts += ["%d %%" % mark["percent"]] if "percent" in mark else []
    parts += ["for %s%s" % (
        formatting.duration(one["seconds"]),
        ", of about %s" % formatting.duration(one["expected"]) if one["expected"] else "")]
    return [" ".join(parts), *["  " + one[key] for key in ("waits", "last_line") if one[key]]]


def _expectation(found: Mapping[str, Any]) -> str:
    if found["left_seconds"] is None:
        return "; how long it takes is not known, as no release was finished here before"
    to_come = ", ".join(found["to_come"]) or "nothing"
    return "; about %s more by the steps of release %s. To come: %s" % (
        formatting.duration(found["left_seconds"]), found["expected_by"], to_come)

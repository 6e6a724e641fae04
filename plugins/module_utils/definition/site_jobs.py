# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check a site's data about jobs and ranks, and derive where one build step runs. Pure.

Where a build runs says nothing about what it makes, so none of this is part of a digest: a release stays frozen when
the site changes its queues.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..batch import registry
from ..core import schema
from . import launch_command

JOBS, RANKS = "torchstack_jobs", "torchstack_ranks"
"""The names of the two variables in a site's group_vars."""

LOCAL = "local"
PREFLIGHT = "compute-preflight"
"""The step that looks at a compute node before hours of building."""

OF_RANKS = ("acceptance", "sweep", "node_health")
"""The steps that start ranks on several nodes."""

_STEP = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")


def problems(
    data: object, rules: dict[str, Any], source: str = "", patterns: dict[str, Any] | None = None
) -> list[str]:
    """Find what is wrong with a mapping of the two variables, either of which may be missing, a sentence each."""
    found = schema.problems(data, rules, source, patterns)
    if found or not isinstance(data, dict):
        return found
    jobs, ranks = _charged(data.get(JOBS) or {}), data.get(RANKS) or {}
    return [*_job_problems(jobs), *_rank_problems(ranks, jobs.get("launcher", LOCAL))]


def _charged(jobs: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out empty accounts: a site takes them from the environment, which may have none."""

    def named(options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        return {name: value for name, value in options.items() if name != "account" or value != ""}

    found = dict(jobs)
    if isinstance(jobs.get("options"), dict):
        found["options"] = named(jobs["options"])
    if isinstance(jobs.get("steps"), dict):
        found["steps"] = {step: named(options) for step, options in jobs["steps"].items()}
    return found


def _job_problems(jobs: Mapping[str, Any]) -> list[str]:
    launcher = jobs.get("launcher", LOCAL)
    found = _option_problems(launcher, jobs.get("options") or {}, JOBS + ".options")
    for name, options in (jobs.get("steps") or {}).items():
        if not isinstance(name, str) or not _STEP.match(name):
            found.append("'%s.steps' has the key %r, which is not the name of a step; names have lower-case letters, "
                         "digits, dots, dashes and underscores." % (JOBS, name))
        elif not isinstance(options, dict):
            found.append("'%s.steps.%s' must be a mapping of options to values." % (JOBS, name))
        else:
            found += _option_problems(launcher, options, "%s.steps.%s" % (JOBS, name))
    return found


def _option_problems(launcher: str, options: Mapping[str, Any], where: str) -> list[str]:
    return [] if launcher == LOCAL else registry.problems(launcher, options, "'%s'" % where)


def _rank_problems(ranks: Mapping[str, Any], batch: str) -> list[str]:
    words, found = ranks.get("launcher"), []
    if words is not None:
        trouble = launch_command.problem(words)
        if not trouble and not launch_command.tells_ranks(words):
            trouble = "does not say how many ranks to start; use {ranks}, or {nodes} and {per_node}"
        if trouble:
            found.append("'%s.launcher' %s." % (RANKS, trouble))
    found += ["'%s.%s' is %d, and must be at least 1." % (RANKS, key, ranks[key])
              for key in ("nodes", "per_node") if ranks.get(key, 1) < 1]
    if ranks.get("in_job") and batch == LOCAL:
        found.append("'%s.in_job' is true, and '%s.launcher' names no batch system." % (RANKS, JOBS))
    return found


def describe(data: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the data in full, as ``jobs`` and ``ranks`` of ``release_context``."""
    jobs, ranks = _charged(data.get(JOBS) or {}), data.get(RANKS) or {}
    launcher = jobs.get("launcher", LOCAL)
    return {
        "jobs": {
            "launcher": launcher,
            "options": named_alike(launcher, jobs.get("options") or {}),
            "steps": {name: named_alike(launcher, own) for name, own in (jobs.get("steps") or {}).items()},
            "node": dict(jobs.get("node") or {}),
        },
        "ranks": {
            "launcher": list(ranks.get("launcher") or []), "nodes": ranks.get("nodes", 1),
            "per_node": ranks.get("per_node", 2), "in_job": ranks.get("in_job", launcher != LOCAL)},
    }


def named_alike(launcher: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Name options as the scheduler does: a step's ``queue`` replaces the site's ``partition``."""
    names = registry.system_of(launcher).options.synonyms if launcher != LOCAL else {}
    return {names.get(name, name): value for name, value in options.items()}


def step_job(context: Mapping[str, Any], step: str) -> dict[str, Any]:
    """Derive where one step runs: its ``launcher``, and the site's ``options`` with its own in their place, key by key.

    Temporary files go where the compute preflight looks, below ``node.tmpdir``, unless ``options`` has another
    ``tmpdir``.
    """
    jobs = context.get("jobs") or {}
    launcher = jobs.get("launcher", LOCAL)
    if launcher == LOCAL:
        return {"launcher": LOCAL, "options": {}}
    own = (jobs.get("steps") or {}).get(step) or {}
    place = (jobs.get("node") or {}).get("tmpdir")
    options = {**({"tmpdir": place} if place else {}), **(jobs.get("options") or {})}
    return {"launcher": launcher, "options": {**options, **_ours(context, step), **own}}


def _ours(context: Mapping[str, Any], step: str) -> dict[str, Any]:
    """Return what a step of our own differs in by itself; the site's ``steps`` win."""
    if step == PREFLIGHT:
        return {"walltime": "00:10:00"}
    if step in OF_RANKS:
        ranks = context.get("ranks") or {}
        return {"walltime": "00:15:00", "nodes": ranks.get("nodes", 1), "tasks": ranks.get("per_node", 2)}
    return {}

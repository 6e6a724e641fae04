# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Derive the job in which a user of a release starts ranks, as the site has accepted it. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any, Callable, Mapping, NamedTuple

from ..batch import flux_script, pbs_script, slurm_script
from .example_jobs import KEPT, PROJECT, WALLTIME
from .launch_command import filled
from .site_jobs import LOCAL, step_job

_KEPT = (*KEPT, "queue", "cores", "exclusive", "nodes", "tasks")
"""What of the acceptance's job holds for a user's job on the same nodes; the rest is the rollout's own."""

_ACCOUNT = re.compile(r"(?:--(?:account|bank)|-A)(?:[=\s]|\Z)")

_WITHOUT_SITE = ("mpiexec", "-n", "{ranks}")
"""The start of ranks where a site says nothing of it: by the release's own MPI."""


class _Form(NamedTuple):
    """Hold how a scheduler's scripts are written."""

    prefix: str
    submit: str
    directives: Callable[[Mapping[str, Any]], list[str]]


_FORMS = {
    "slurm": _Form("#SBATCH ", "sbatch job.sh", slurm_script.resource_directives),
    "pbs": _Form(pbs_script.DIRECTIVE, "qsub job.sh", pbs_script.resource_directives),
    "flux": _Form(flux_script.DIRECTIVE, "flux batch job.sh", flux_script.resource_directives),
}


class UserJob(NamedTuple):
    """Hold the parts of a job script; ``head`` and ``submit`` are empty where ranks are started without a job."""

    head: list[str]
    submit: str
    nodes: int
    ranks: int
    start: str
    """The command that starts the ranks, up to their program."""


def describe_job(context: Mapping[str, Any]) -> UserJob:
    """Derive the job from ``release_context``: as many ranks and nodes as the acceptance takes."""
    ranks = context.get("ranks") or {}
    nodes, per_node = ranks.get("nodes") or 1, ranks.get("per_node") or 2
    words = filled(ranks.get("launcher") or _WITHOUT_SITE, nodes, per_node)
    start = " ".join(map(shlex.quote, words))
    job = step_job(context, "acceptance")
    if job["launcher"] == LOCAL:
        return UserJob([], "", nodes, nodes * per_node, start)
    given, form = job["options"], _FORMS[job["launcher"]]
    options = {key: given[key] for key in _KEPT if given.get(key)}
    options["directives"] = [line for line in given.get("directives") or [] if not _ACCOUNT.match(line)]
    options["walltime"] = WALLTIME
    if given.get("account"):
        options["account"] = PROJECT
    lines = list(dict.fromkeys([*options["directives"], *form.directives(options)]))
    return UserJob([form.prefix + line for line in lines], form.submit, nodes, nodes * per_node, start)

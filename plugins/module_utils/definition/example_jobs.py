# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Derive what the example job scripts of a site ask of Slurm. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any, Iterable, Mapping, Sequence

from ..batch.registry import asked_gpus, check_options
from ..batch.slurm_script import resource_directives
from . import gpu_nodes

PROJECT = "your_project"
"""Stands for the account: that of the site's rollouts is nobody else's."""

WALLTIME = "00:10:00"

KEPT = (
    "partition", "qos", "constraint", "memory", "memory_per_gpu", "gpu_type", "gpus", "hint", "licenses", "directives")
"""What of the site's options holds for every job on such nodes; the others are of its builds."""

_REPLACED = re.compile(r"--(?:account|exclusive)(?:[=\s]|\Z)|-A")
_OURS = re.compile(r"--(?:cpu-bind|gpu-bind|cpus-per-task)(?:=|\Z)|-c\d*\Z")
_SRUN = ("srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}")
_SHELL = {"nodes": '"$SLURM_JOB_NUM_NODES"', "ranks": '"$((SLURM_JOB_NUM_NODES * %d))"', "per_node": "%d"}


def describe(context: Mapping[str, Any], topology: Mapping[str, Any]) -> dict[str, Any]:
    """Derive what the templates of the examples need; nothing where jobs are not Slurm's.

    ``topology`` is one in which :func:`.gpu_nodes.problems` found nothing, or empty. The result has ``gpus``, those of
    a node; ``nodes``, of the distributed example; ``single`` and ``distributed``, the directives of a job with one task
    on one node, and with one for each GPU; ``srun``, the command that starts the ranks, up to the binding; ``masks``,
    empty where they are not known; and ``cpus_per_task``, 0 where that is not known. Raises what
    :func:`.gpu_nodes.binding` does.
    """
    jobs, ranks = context.get("jobs") or {}, context.get("ranks") or {}
    if jobs.get("launcher") != "slurm":
        return {}
    options = check_options("slurm", jobs.get("options"))
    bound = gpu_nodes.describe(gpu_nodes.binding(topology)) if topology else {}
    gpus = bound.get("gpus") or asked_gpus("slurm", options) or ranks.get("per_node") or 1
    cpus = bound.get("cpus_per_task") or options.get("cores", 0) // gpus
    nodes = max(2, ranks.get("nodes") or 0)
    return {
        "gpus": gpus,
        "nodes": nodes,
        "single": _directives(options, 1, 1, cpus * gpus),
        "distributed": _directives(options, nodes, gpus, cpus * gpus),
        "srun": _srun(ranks.get("launcher") or [], gpus, cpus),
        "masks": bound.get("mask_cpu", ""),
        "cpus_per_task": cpus,
    }


def _directives(options: Mapping[str, Any], nodes: int, tasks: int, cores: int) -> list[str]:
    kept = {key: options[key] for key in KEPT if key in options}
    # Masks of CPUs hold for whole nodes only; --exclusive=user and the like give parts of them.
    kept["directives"] = [*(line for line in kept.get("directives", []) if not _REPLACED.match(line)), "--exclusive"]
    own = {"account": PROJECT, "walltime": WALLTIME, "nodes": nodes, "tasks": tasks, "cores": cores}
    return resource_directives({**kept, **own})


def _srun(words: Sequence[str], per_node: int, cpus: int) -> str:
    """Write the site's srun for as many nodes as the job has, without its own binding."""
    if not words or words[0].rpartition("/")[2] != "srun":
        words = _SRUN
    kept = [_in_shell(word, per_node) for word in _without(words)]
    return " ".join([*kept, *(["--cpus-per-task=%d" % cpus] if cpus else [])])


def _without(words: Iterable[str]) -> Iterable[str]:
    """Leave out options that the examples set themselves, with their values."""
    value = False
    for word in words:
        ours = _OURS.match(word)
        if not ours and not value:
            yield word
        value = bool(ours and word in ("--cpu-bind", "--gpu-bind", "--cpus-per-task", "-c"))


def _in_shell(word: str, per_node: int) -> str:
    """Write a word for the shell, with what its placeholders stand for."""
    parts = re.split(r"\{(nodes|ranks|per_node)\}", word)
    texts = [shlex.quote(part) if part else "" for part in parts[::2]]
    values = [_SHELL[name] % per_node if "%d" in _SHELL[name] else _SHELL[name] for name in parts[1::2]]
    return "".join(text + value for text, value in zip(texts, [*values, ""]))

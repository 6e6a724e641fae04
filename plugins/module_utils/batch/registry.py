# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Register every batch system: this is the one place where a new one is named."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..core.errors import StackError
from .options import REQUEUE_ON, OptionProblem, find_problems, gpus_per_node
from .scheduler import BatchSystem

LOCAL = "local"
"""The launcher of steps that run on the machine itself."""


def _slurm() -> type[BatchSystem]:
    from .slurm import Slurm

    return Slurm


def _pbs() -> type[BatchSystem]:
    from .pbs import Pbs

    return Pbs


def _flux() -> type[BatchSystem]:
    from .flux import Flux

    return Flux


# Imported when they are needed: most calls of a module need none.
SYSTEMS: Mapping[str, Callable[[], type[BatchSystem]]] = {"slurm": _slurm, "pbs": _pbs, "flux": _flux}
"""What gives the class of each batch system, by its name."""

LAUNCHERS = (LOCAL, *SYSTEMS)
"""Every value of the option ``launcher``."""


def system_of(launcher: str) -> type[BatchSystem]:
    """Return the class of a batch system, one of :data:`SYSTEMS`."""
    return SYSTEMS[launcher]()


def title_of(launcher: str) -> str:
    """Return what an operator calls the batch system of a launcher; empty for the machine itself."""
    return system_of(launcher).title if launcher in SYSTEMS else ""


def queue_key(launcher: str) -> str:
    """Return the option that says where a job of a batch system waits."""
    return dict(system_of(launcher).options.instead).get("partition", "partition")


def problems(launcher: str, options: object, where: str = "launcher_options") -> list[str]:
    """Say everything that is wrong with the options of a job, a sentence for each, which calls them ``where``."""
    if launcher == LOCAL:
        return []
    system = system_of(launcher)
    return [
        "%s: %s. %s" % (where, found.text, found.remedy)
        for found in find_problems(system.title, system.options, options) if isinstance(found, OptionProblem)
    ]


def asked_gpus(launcher: str, options: Mapping[str, Any]) -> int:
    """Count the GPUs that a job asks for on each node; 0 for none, and on the machine itself."""
    return gpus_per_node(system_of(launcher).options, options) if launcher in SYSTEMS else 0


def check_options(launcher: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Bring the options of a job into the one form that the batch systems expect; with ``local`` none matters.

    The answer has only keys that were given, and ``requeue`` and ``requeue_on``: ``account``, ``qos`` (words),
    ``partition`` for Slurm, else ``queue``, ``walltime`` (``HH:MM:SS`` or ``D-HH:MM:SS``), ``nodes``, ``cores``,
    ``gpus`` (of ``gpu_type``) and ``tasks``, which share them (per node), ``memory`` (per node: ``240G``, with one
    letter of K, M, G, T) or ``memory_per_gpu``, ``constraint``, ``reservation``, ``licenses``, ``exclusive``, ``hint``,
    ``directives`` (lines without the batch system's mark), ``python``, ``bin`` and ``tmpdir`` (absolute paths).

    StackError: an unknown key, or a value of another type; nothing has been touched.
    """
    if launcher == LOCAL:
        return {}
    system = system_of(launcher)
    checked: dict[str, Any] = {"requeue": 0, "requeue_on": list(REQUEUE_ON)}
    for found in find_problems(system.title, system.options, options):
        if isinstance(found, OptionProblem):
            raise StackError("launcher_options: %s." % found.text, "options", found.remedy)
        checked[found[0]] = found[1]
    return checked

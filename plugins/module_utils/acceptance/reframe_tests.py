# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What ReFrame tests of a release have to know: data beside a test file that is the same for every release. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..definition import launch_command as rank_launcher
from ..ranks import plan as bandwidth_plan
from ..ranks import units as bandwidth

BACKENDS = {"torch_gloo": "gloo", "torch_nccl": "nccl", "torch_mpi": "mpi", "mpi4py": "mpi"}
"""Which backend a check of the acceptance is about; Horovod is not measured by itself."""

QUESTION = ("checks", "where_possible", "imports", "prefix", "transport", "import_ceiling")
"""What the ranks of an acceptance are asked as well, in the same words."""

STEP = "reframe"

_SEPARATORS = re.compile(r"\W")


def described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the tests of one release need to know.

    Args:
        options: those of the module release_reframe.

    Returns:
        plain data; sizes are in bytes, bandwidths in GB/s and latencies in microseconds. Without ``measure`` there is
        no backend in it.

    Raises:
        StackError: the launcher cannot start the ranks, or a measurement, floor or ceiling cannot be understood.
    """
    words, ranks, nodes = options["launcher"], options["ranks"], options["nodes"]
    trouble = rank_launcher.problem(words)
    if trouble:
        raise StackError(
            "'acceptance_launcher' %s." % trouble, STEP, "Correct it, or torchstack_ranks.launcher of the site.")
    if nodes < 1 or ranks < 1 or ranks % nodes:
        raise StackError(
            "%d ranks cannot be spread evenly over %d nodes." % (ranks, nodes), STEP,
            "Make acceptance_ranks a multiple of acceptance_nodes.")
    measure, job = options["measure"], options["job"].get("options") or {}
    try:
        plan = bandwidth_plan.plan(measure)
        sizes = sorted({bandwidth.parse_size(size) for size in options["sizes"]})
    except ValueError as error:
        raise StackError(
            "What is to be measured cannot be understood: %s" % error, STEP,
            "Correct acceptance_measure or acceptance_reframe_sizes.") from error
    # The module is ReFrame's to load, and the measurements are tests of their own.
    question = dict({name: options[name] for name in QUESTION}, module_system="auto", measure={})
    return {
        "name": _SEPARATORS.sub("_", options["release"]), "release": options["release"], "module": options["module"],
        "modulepaths": {tree: path for tree, path in options["modulepaths"].items() if path},
        "environment": {name: str(value) for name, value in options["environment"].items()},
        "python": options["python"], "launcher": words, "launcher_options": own_words(words),
        "nodes": nodes, "per_node": ranks // nodes, "cores": job.get("cores") or 0, "gpus": job.get("gpus") or 0,
        "timeout": options["timeout"], "tolerance": options["tolerance"],
        "backends": backends(options["checks"], options["where_possible"], measure.get("backends") if measure else ()),
        "measure": plan, "sizes": sizes, "limits": limits(measure.get("floors") or {}),
        "question": dict(question, **({} if options["shared"] is None else {"shared": options["shared"]})),
    }


def backends(
    checks: Sequence[str], where_possible: Sequence[str], only: Sequence[str] | None = None
) -> dict[str, bool]:
    """The backends to measure, and whether it is a failure where one cannot run.

    Args:
        checks: checks that have to run.
        where_possible: checks that run where hardware and build allow it.
        only: backends to keep; None for all.
    """
    found = {BACKENDS[check]: False for check in where_possible if check in BACKENDS}
    found.update({BACKENDS[check]: True for check in checks if check in BACKENDS})
    return {name: needed for name, needed in sorted(found.items()) if only is None or name in only}


def limits(floors: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Floors and ceilings, each under the name that ReFrame logs the value by.

    Args:
        floors: of ``measure``, in which :func:`.bandwidth_plan.problem` found nothing.

    Returns:
        ``name``, ``backend``, ``kind`` (``bandwidth`` or ``latency``), ``value``, and where the floor is of such runs
        only, ``ranks`` and ``nodes``.
    """
    found = []
    for kind, figure in (("bandwidth", "busbw"), ("latency", "microseconds")):
        for floor in floors.get(kind) or []:
            name = variable_name(floor.get("operation", "latency"), bandwidth.parse_size(floor["bytes"]))
            limit = {"name": name, "backend": floor["backend"], "kind": kind, "value": float(floor[figure])}
            found.append(dict(limit, **{key: int(floor[key]) for key in ("ranks", "nodes") if key in floor}))
    return found


def variable_name(operation: str, size: int) -> str:
    """What ReFrame logs a value by, such as ``all_reduce_1GiB``."""
    return "%s_%s" % (operation, bandwidth.show_size(size).replace(" ", ""))


def own_words(words: Sequence[str]) -> list[str]:
    """The options of a launcher but those that say how many ranks to start, which ReFrame says itself.

    Args:
        words: the launcher's, with placeholders.
    """
    kept: list[str] = []
    for word in words[1:]:
        if "{ranks}" not in word:
            kept.append(word)
        elif word == "{ranks}" and kept and kept[-1].startswith("-"):
            kept.pop()
    return kept


def text(data: Mapping[str, Any]) -> bytes:
    """The data as the test file reads it, alike for alike data."""
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode("utf-8")

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe a release for its ReFrame tests: data beside a test file that is the same for all. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..definition import launch_command
from ..ranks import units
from ..ranks.plan import resolve_plan

BACKENDS = {"torch_gloo": "gloo", "torch_nccl": "nccl", "torch_mpi": "mpi", "mpi4py": "mpi"}
"""Which backend a check of the acceptance is about; Horovod is not measured by itself."""

QUESTION = ("checks", "where_possible", "imports", "prefix", "transport", "import_ceiling")
"""Keys that the question of an acceptance has as well."""

STEP = "reframe"

_SEPARATORS = re.compile(r"\W")


def describe_release(options: Mapping[str, Any]) -> dict[str, Any]:
    """Collect all that the tests of one release need to know, from the options of the module release_reframe.

    Returns:
        plain data; sizes are in bytes, bandwidths in GB/s and latencies in microseconds. Without ``measure`` there is
        no backend in it.

    Raises:
        StackError: the launcher cannot start the ranks, or a measurement, floor or ceiling cannot be understood.
    """
    words, ranks, nodes = options["launcher"], options["ranks"], options["nodes"]
    trouble = launch_command.problem(words)
    if trouble:
        raise StackError(
            "'acceptance_launcher' %s." % trouble, STEP, "Correct it, or torchstack_ranks.launcher of the site.")
    if nodes < 1 or ranks < 1 or ranks % nodes:
        raise StackError(
            "%d ranks cannot be spread evenly over %d nodes." % (ranks, nodes), STEP,
            "Make acceptance_ranks a multiple of acceptance_nodes.")
    measure, job = options["measure"], options["job"].get("options") or {}
    try:
        plan = resolve_plan(measure)
        sizes = sorted({units.parse_size(size) for size in options["sizes"]})
    except ValueError as error:
        raise StackError(
            "What is to be measured cannot be understood: %s" % error, STEP,
            "Correct acceptance_measure or acceptance_reframe_sizes.") from error
    # ReFrame loads the module, and the measurements are tests of their own.
    question = dict({name: options[name] for name in QUESTION}, module_system="auto", measure={})
    return {
        "name": _SEPARATORS.sub("_", options["release"]), "release": options["release"], "module": options["module"],
        "modulepaths": {tree: path for tree, path in options["modulepaths"].items() if path},
        "environment": {name: str(value) for name, value in options["environment"].items()},
        "python": options["python"], "launcher": words, "launcher_options": launcher_options(words),
        "nodes": nodes, "per_node": ranks // nodes, "cores": job.get("cores") or 0, "gpus": job.get("gpus") or 0,
        "timeout": options["timeout"], "tolerance": options["tolerance"],
        "backends": select_backends(
            options["checks"], options["where_possible"], measure.get("backends") if measure else ()),
        "measure": plan, "sizes": sizes, "limits": list_limits(measure.get("floors") or {}),
        "question": dict(question, **({} if options["shared"] is None else {"shared": options["shared"]})),
    }


def select_backends(
    checks: Sequence[str], where_possible: Sequence[str], only: Sequence[str] | None = None
) -> dict[str, bool]:
    """Select the backends to measure, and whether it is a failure where one cannot run; ``only`` these, if given."""
    found = {BACKENDS[check]: False for check in where_possible if check in BACKENDS}
    found.update({BACKENDS[check]: True for check in checks if check in BACKENDS})
    return {name: needed for name, needed in sorted(found.items()) if only is None or name in only}


def list_limits(floors: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List floors and ceilings, each under the name that ReFrame logs the value by.

    Returns:
        ``name``, ``backend``, ``kind`` (``bandwidth`` or ``latency``), ``value``, and where the floor is of such runs
        only, ``ranks`` and ``nodes``.
    """
    found = []
    for kind, figure in (("bandwidth", "busbw"), ("latency", "microseconds")):
        for floor in floors.get(kind) or []:
            name = variable_name(floor.get("operation", "latency"), units.parse_size(floor["bytes"]))
            limit = {"name": name, "backend": floor["backend"], "kind": kind, "value": float(floor[figure])}
            found.append(dict(limit, **{key: int(floor[key]) for key in ("ranks", "nodes") if key in floor}))
    return found


def variable_name(operation: str, size: int) -> str:
    """Make the name that ReFrame logs a value by, such as ``all_reduce_1GiB``."""
    return "%s_%s" % (operation, units.format_size(size).replace(" ", ""))


def launcher_options(words: Sequence[str]) -> list[str]:
    """Select a launcher's options but those for the number of ranks, which ReFrame adds itself."""
    kept: list[str] = []
    for word in words[1:]:
        if "{ranks}" not in word:
            kept.append(word)
        elif word == "{ranks}" and kept and kept[-1].startswith("-"):
            kept.pop()
    return kept


def render(data: Mapping[str, Any]) -> bytes:
    """Render the data for the test file; equal data give equal bytes."""
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode("utf-8")

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check a site's data about nodes with GPUs, and derive the CPUs of each GPU. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..standalone import topology

TOPOLOGY = "torchstack_topology"
"""The name of the variable in a site's group_vars: ``lscpu`` and ``gpus``, texts, and what is ``reserved``."""


def problems(data: object, gpus: int = 0) -> list[str]:
    """Find why no CPUs can be told for GPUs, a sentence each; ``gpus`` of a node, 0 where that is not known."""
    if not data:
        return []
    if not isinstance(data, Mapping):
        return ["'%s' must be a mapping with lscpu and gpus." % TOPOLOGY]
    missing = [key for key in ("lscpu", "gpus") if not data.get(key)]
    if missing:
        return ["'%s' has no %s." % (TOPOLOGY, missing[0])]
    try:
        found = binding(data)
    except topology.TopologyError as error:
        return ["'%s': %s" % (TOPOLOGY, error)]
    if gpus and len(found.shares) != gpus:
        return ["'%s' is of a node with %d GPUs, and jobs ask for %d." % (TOPOLOGY, len(found.shares), gpus)]
    return []


def binding(data: Mapping[str, Any], threads: str = "one") -> topology.Binding:
    """Derive the CPUs of each GPU, with ``one`` or ``all`` hardware threads of a core. Raises TopologyError."""
    cores, gpus = topology.cores(data["lscpu"]), topology.gpus(data["gpus"])
    return topology.binding(cores, gpus, str(data.get("reserved") or ""), threads)


def describe(found: topology.Binding) -> dict[str, Any]:
    """Write the CPUs of each GPU as words for options of srun, and as lists such as ``49-55``."""
    return {
        "gpus": len(found.shares),
        "mask_cpu": ",".join(found.masks),
        "map_cpu": ",".join(map(str, found.first_cpus)),
        "gpu_bind": ",".join(map(str, found.gpus_by_cpu)),
        "cpus": [topology.listed(share.cpus) for share in found.shares],
        "cpus_per_task": found.cpus_per_task,
        "notes": list(found.notes),
    }

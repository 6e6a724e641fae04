# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a site's nodes with GPUs: what is wrong with the data, the CPUs of each GPU, and example jobs."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

errors = Late("core.errors")
jobs = Late("definition.example_jobs")
site_topology = Late("definition.gpu_nodes")
topologies = Late("standalone.topology")


def topology_problems(topology: object, gpus: int = 0) -> list[str]:
    """Why no CPUs can be told for the GPUs, as one sentence each."""
    return site_topology.problems(topology, gpus)


def gpu_binding(topology: Any, threads: str = "one") -> dict[str, Any]:
    """The CPUs of each GPU, as words for srun and as lists."""
    if not topology:
        raise AnsibleFilterError("gpu_binding: there is no topology; give lscpu and gpus.")
    if threads not in topologies.THREADS:
        raise AnsibleFilterError("gpu_binding: threads is %r, and has to be one or all." % (threads,))
    _refuse("gpu_binding", topology)
    return site_topology.described(site_topology.binding(topology, threads))


def example_jobs(context: Any, topology: Any = None) -> dict[str, Any]:
    """What the example job scripts of a site ask of Slurm."""
    if not isinstance(context, Mapping):
        raise AnsibleFilterError("example_jobs: this is not release_context; the role release makes it.")
    options = (context.get("jobs") or {}).get("options") or {}
    _refuse("example_jobs", topology, options.get("gpus") or 0)
    try:
        return jobs.described(context, topology or {})
    except errors.StackError as error:
        raise AnsibleFilterError("example_jobs: %s" % error) from error


def _refuse(name: str, topology: object, gpus: int = 0) -> None:
    found = site_topology.problems(topology, gpus)
    if found:
        raise AnsibleFilterError("%s: %s" % (name, " ".join(found)))


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"topology_problems": topology_problems, "gpu_binding": gpu_binding, "example_jobs": example_jobs}

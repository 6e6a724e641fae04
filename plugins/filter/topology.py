# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Bind the GPUs of a site's nodes to CPUs, and describe example jobs for them."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def gpu_binding(topology: Any, threads: str = "one") -> dict[str, Any]:
    """Return the CPUs of each GPU, as words for srun and as lists."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import gpu_nodes
    from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import topology as topologies

    if not topology:
        raise AnsibleFilterError("gpu_binding: there is no topology; give lscpu and gpus.")
    if threads not in topologies.THREADS:
        raise AnsibleFilterError("gpu_binding: threads is %r, and has to be one or all." % (threads,))
    _refuse("gpu_binding", topology)
    return gpu_nodes.describe(gpu_nodes.binding(topology, threads))


def example_jobs(context: Any, topology: Any = None) -> dict[str, Any]:
    """Return what the example job scripts of a site ask of Slurm."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.core import errors
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import example_jobs as jobs

    if not isinstance(context, Mapping):
        raise AnsibleFilterError("example_jobs: this is not release_context; the role release makes it.")
    options = (context.get("jobs") or {}).get("options") or {}
    _refuse("example_jobs", topology, options.get("gpus") or 0)
    try:
        return jobs.describe(context, topology or {})
    except errors.StackError as error:
        raise AnsibleFilterError("example_jobs: %s" % error) from error


def _refuse(name: str, topology: object, gpus: int = 0) -> None:
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import gpu_nodes

    found = gpu_nodes.problems(topology, gpus)
    if found:
        raise AnsibleFilterError("%s: %s" % (name, " ".join(found)))


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_binding": gpu_binding, "example_jobs": example_jobs}

#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Judges whether NCCL, its plugin, libfabric and CUDA go together; the work is in module_utils/nccl_*.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_ofi_preflight
short_description: Judge whether NCCL, its network plugin, libfabric and CUDA go together
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes.reading
description:
  - Looks at the libfabric, the hwloc and the CUDA toolkit that a release names, and judges by a table whether NCCL and
    plugin can be built on them and will find each other.
  - Plugins build with too old a libfabric, and NCCL goes on over sockets without a plugin that fits, without an error.
options:
  nccl:
    description: C(nccl) of the release file. C(version), C(wheel), C(plugin) (C(version), C(repository),
      C(libfabric), C(hwloc)) and C(accept) are looked at. Without C(plugin), only NCCL and the toolkit are judged.
    type: dict
    required: true
  cuda:
    description: C(cuda) of the release file; C(version), C(prefix) and C(architectures) are looked at.
    type: dict
    required: true
  compatibility:
    description: The table, as in C(vars/compatibility.yml) of the role nccl_ofi.
    type: dict
    required: true
notes:
  - The version of libfabric is what C(libfabric.pc) says, else C(fi_info), else C(rdma/fabric.h).
  - A problem of the release file's C(accept) is told and not refused. What is not there at all cannot be accepted.
"""

EXAMPLES = r"""
- name: Judge whether NCCL, its plugin, libfabric and CUDA go together
  hpcml.torchstack.nccl_ofi_preflight:
    nccl:
      version: "2.21.5"
      plugin:
        version: "1.6.0"
        repository: https://github.com/aws/aws-ofi-nccl
        libfabric: /opt/cray/libfabric/1.15.2.0
    cuda: {version: "12.2", prefix: /opt/nvidia/cuda/12.2, architectures: ["8.0"]}
    compatibility: "{{ nccl_ofi_compatibility }}"
"""

RETURN = r"""
api:
  description: The version of the plugin interface that both will use; null without a plugin or where it is not known.
  returned: always
  type: int
networks:
  description: Values of NCCL_NET that choose the plugin.
  returned: always
  type: list
  elements: str
  sample: [AWS Libfabric]
gencode:
  description: NCCL's NVCC_GENCODE for the architectures.
  returned: success
  type: str
libfabric:
  description: The libfabric - C(prefix), C(version) and C(library), the directory of its library.
  returned: success, with a plugin
  type: dict
  sample: {prefix: /opt/cray/libfabric/1.15.2.0, version: 1.15.2.0, library: /opt/cray/libfabric/1.15.2.0/lib64}
hwloc:
  description: The same for hwloc, with C(header) instead of a version.
  returned: success, with a plugin
  type: dict
cuda:
  description: The same for the toolkit.
  returned: success
  type: dict
findings:
  description: Everything that was found. C(check) (V(api), V(libfabric), V(cuda), V(hwloc), V(untested) or
    V(commands)), C(ok) (or accepted), C(severity) (V(error), V(warning) or V(note)), C(message) (what is so) and
    C(remedy) (what to do).
  returned: always
  type: list
  elements: dict
"""

import os
from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import Finding, conclude, warning
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    gpu_architectures,
    nccl_compatibility,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import nccl_find

SPEC = {
    "nccl": {"type": "dict", "required": True}, "cuda": {"type": "dict", "required": True},
    "compatibility": {"type": "dict", "required": True},
}


def accepted(nccl: Mapping[str, Any]) -> dict[str, str]:
    """Return the problems that a release file accepts, with their reasons.

    Raises:
        StackError: one is no problem, or has no reason.
    """
    found = {str(entry.get("problem")): str(entry.get("reason") or "") for entry in nccl.get("accept") or []}
    for problem, reason in found.items():
        if problem not in nccl_compatibility.PROBLEMS or not reason:
            raise StackError(
                "nccl.accept says '%s'%s." % (problem, "" if reason else " without a reason"), nccl_compatibility.STEP,
                "Give one of %s, and the reason why the release is built with it." % (
                    ", ".join(nccl_compatibility.PROBLEMS)))
    return found


def examine(
    nccl: Mapping[str, Any], cuda: Mapping[str, Any], table: Mapping[str, Any]
) -> tuple[list[Finding], dict[str, Any]]:
    """Compare what is asked with what is there, and return the findings with the result."""
    plugin = nccl.get("plugin") or {}
    toolkit = nccl_find.cuda(str(cuda.get("prefix") or ""))
    fabric = nccl_find.libfabric(str(plugin.get("libfabric") or ""))
    hwloc = nccl_find.hwloc(str(plugin.get("hwloc") or ""), os.environ)
    # A plugin has no code for GPUs, and a wheel's NCCL was compiled elsewhere.
    architectures = () if nccl.get("wheel") else tuple(str(one) for one in cuda.get("architectures") or [])
    verdict = nccl_compatibility.judge(
        table,
        nccl_compatibility.Asked(
            str(nccl["version"]), nccl_compatibility.repository_name(str(plugin["repository"])) if plugin else "",
            str(plugin.get("version") or ""), str(cuda.get("version") or ""), architectures),
        nccl_compatibility.There(
            fabric.version, fabric.prefix, toolkit.version, toolkit.prefix, bool(hwloc.version), hwloc.prefix),
        accepted(nccl))
    findings = list(verdict.findings)
    missing = nccl_find.missing_commands(nccl_find.PLUGIN_COMMANDS if plugin else ("make",), os.environ.get("PATH"))
    if missing:
        # Where jobs build, this machine need not have them.
        findings.append(warning(
            "commands", "The build calls %s, which cannot be found here." % ", ".join(missing),
            "Where the nodes that build have no more than this one, add what brings that to toolchain.modules."))
    result: dict[str, Any] = {
        "api": verdict.api, "networks": list(verdict.networks), "cuda": toolkit._asdict(),
        "gencode": gpu_architectures.gencode(architectures),
    }
    if plugin:
        result["libfabric"] = fabric._asdict()
        result["hwloc"] = {"prefix": hwloc.prefix, "header": hwloc.version, "library": hwloc.library}
    return findings, result


def run(module: AnsibleModule) -> dict:
    """Check what NCCL and its plugin would be built with."""
    findings, result = examine(module.params["nccl"], module.params["cuda"], module.params["compatibility"])
    always = {name: result.pop(name) for name in ("api", "networks")}
    return conclude(module, findings, nccl_compatibility.STEP, always, result, "Nothing was built.")


def main() -> None:
    """Entry point."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()

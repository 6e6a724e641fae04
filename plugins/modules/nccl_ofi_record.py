#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Checks a built NCCL with its plugin and records it; the work is in module_utils/nccl_built.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_ofi_record
short_description: Check what was built of NCCL and its network plugin, and record it
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes
description:
  - Makes sure that NCCL and the plugin in a prefix are what a release asked for, by the versions of C(nccl.h),
    C(nccl.pc) and the banner in the library, the toolkit that it was built with, the search paths in both libraries,
    the versions of the plugin interface, and that no static archive is left, and writes that down.
  - Nothing of them is run.
options:
  prefix:
    description: Where both are installed.
    type: path
    required: true
  path:
    description: The record.
    type: path
    required: true
  version:
    description: The version of NCCL.
    type: str
    required: true
  cuda:
    description: The version of the CUDA toolkit. Empty for any.
    type: str
    default: ""
  plugin:
    description: Whether there is a plugin.
    type: bool
    default: true
  api:
    description: The version of the plugin interface that the plugin has to offer.
    type: int
  runpath:
    description: The directories of the plugin's RPATH, in any order. That of NCCL is always C($ORIGIN).
    type: list
    elements: str
    default: []
  static:
    description: Whether the static archive is kept.
    type: bool
    default: false
  wheel:
    description:
      - The directory of the NCCL that PyTorch's wheel brings, C(nvidia/nccl) of its packages, which is taken as it is.
      - Then the plugin is linked beside it, and the run-paths of PyTorch's libraries have to lead NCCL there.
      - Empty for none.
    type: path
    default: ""
  facts:
    description: What else is recorded.
    type: dict
    default: {}
  planned_after:
    description: In check mode, the step that would run before, so that what is there now says nothing. Empty for none.
    type: str
    default: ""
attributes:
  diff_mode:
    description: The record before and after.
"""

EXAMPLES = r"""
- name: Check what was built, and record it
  hpcml.torchstack.nccl_ofi_record:
    prefix: /soft/pytorch/2026-11-20/nccl
    path: /soft/pytorch/2026-11-20/.torchstack/nccl.json
    version: "2.21.5"
    cuda: "12.2"
    api: 6
    runpath: [/opt/cray/libfabric/1.15.2.0/lib64, /opt/nvidia/cuda/12.2/lib64]
"""

RETURN = r"""
record:
  description: What the record says.
  returned: success, where something is built
  type: dict
  sample:
    version: 2.21.5
    cuda: "12.2"
    runpath: [$ORIGIN]
    plugin: {api: [5, 6], needed: [libfabric.so.1, libc.so.6], runpath: [/opt/nvidia/cuda/12.2/lib64], used: 6}
planned_after:
  description: The step that builds what is to be checked.
  returned: in check mode, where it would run before
  type: str
problems:
  description: What is not as it was asked for, each as a sentence.
  returned: failure
  type: list
  elements: str
  sample: [NCCL 2.21.5 was asked for, and nccl.h says 2.18.3]
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json, write_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import nccl_built

SPEC = {
    "prefix": {"type": "path", "required": True},
    "path": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "cuda": {"type": "str", "default": ""},
    "plugin": {"type": "bool", "default": True},
    "api": {"type": "int"},
    "runpath": {"type": "list", "elements": "str", "default": []},
    "static": {"type": "bool", "default": False},
    "wheel": {"type": "path", "default": ""},
    "facts": {"type": "dict", "default": {}},
    "planned_after": {"type": "str", "default": ""},
}


def record(params: dict, check: bool) -> dict:
    """Inspect what was built, and write the record where it differs.

    Raises:
        StackError: something is not there, or is not what was asked for.
    """
    if check and params["planned_after"]:
        return {"changed": True, "planned_after": params["planned_after"]}
    built = nccl_built.inspect(params["prefix"], nccl_built.Wanted(
        params["version"], params["cuda"], params["plugin"], params["api"], tuple(params["runpath"]), params["static"],
        params["wheel"]))
    if built.problems:
        raise StackError(
            " ".join("%s. %s." % problem for problem in built.problems), nccl_built.STEP, "", params["prefix"],
            problems=[problem for problem, _remedy in built.problems])
    after = nccl_built.record_of(built, params["facts"])
    try:
        before = read_json(params["path"])
    except ValueError:
        before = None
    if before != after and not check:
        write_json(params["path"], after)
    return {"changed": before != after, "record": after, "diff": {"before": text(before), "after": text(after)}}


def text(content: object) -> str:
    """Show a record in the diff."""
    return "" if content is None else json.dumps(content, indent=2, sort_keys=True) + "\n"


def run(module: AnsibleModule) -> dict:
    """Record what was built."""
    os.umask(0o022)
    return record(module.params, module.check_mode)


def main() -> None:
    """Entry point."""
    run_module(run, SPEC, nccl_built.STEP)


if __name__ == "__main__":
    main()

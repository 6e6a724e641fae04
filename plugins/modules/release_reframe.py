#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Writes ReFrame tests of a release; the work is in module_utils/reframe_tests.py and reframe_files.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_reframe
short_description: Write ReFrame tests of a release
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
description:
  - Writes C(<root>/.torchstack/<release>/reframe) with a test file for ReFrame from version 4.3 on, what it has to know
    of the release, and the programs that its tests run. Nothing is run.
  - The tests are the acceptance of the release, with the same judgement, and for each backend the bandwidth of its
    collectives and its latency. Floors and ceilings become ReFrame's references.
  - They are valid for every system and environment of any ReFrame configuration. They load the module, and start ranks
    by the launcher of the partition; where that is C(local), by O(launcher).
extends_documentation_fragment:
  - hpcml.torchstack._ranks
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
options:
  prefix:
    description: Directory below which the modules in O(imports) must lie. By default the release's own.
    type: path
  shared:
    description: Of a container, the directories of the machine that its ranks see.
    type: list
    elements: str
  module:
    description: The module to load, with its version. Empty where there are none.
    type: str
    default: ""
  environment:
    description: Variables to set where ReFrame's configuration names no module system.
    type: dict
    default: {}
  nodes:
    description: On how many nodes the ranks run, unless ReFrame is told otherwise by C(-S nodes=...).
    type: int
    default: 1
  ranks:
    description: How many ranks there are, as many on each node.
    type: int
    default: 2
  launcher:
    description: The words that start ranks, with placeholders as M(hpcml.torchstack.acceptance_run) has them. Where the
      partition's launcher is the same program, it gets their options but those of the number of ranks.
    type: list
    elements: str
    default: [mpiexec, -n, "{ranks}"]
  python:
    description: The interpreter of the ranks, as found on the module's E(PATH).
    type: str
    default: python3
  imports:
    description: Python modules that every rank imports.
    type: list
    elements: str
    default: []
  checks:
    description: Checks of the acceptance that have to run and to pass. Their backends are measured.
    type: list
    elements: str
    default: []
  where_possible:
    description: Checks that run where hardware and build allow it. Where a backend cannot run, its tests are skipped.
    type: list
    elements: str
    default: []
  measure:
    description: What is measured, with floors and ceilings, as in M(hpcml.torchstack.acceptance_run). Empty for
      nothing.
    type: dict
    default: {}
  transport:
    description: Which network NCCL has to use, as M(hpcml.torchstack.acceptance_run) has it.
    type: dict
    default: {}
  import_ceiling:
    description: Seconds that an import may take on the slowest rank; 0 for any.
    type: float
    default: 0
  sizes:
    description: Sizes whose bandwidths ReFrame logs, beside those that have a floor.
    type: list
    elements: str
    default: [1 MiB, 64 MiB, 1 GiB]
  tolerance:
    description: How far a figure may miss its floor or ceiling, as a fraction.
    type: float
    default: 0
  timeout:
    description: Seconds that one test may run.
    type: int
    default: 600
  job:
    description: The acceptance's job. Of its C(options), C(cores) and C(gpus) of a node are taken.
    type: dict
    default: {}
  tests:
    description: Text of the test file, the same for every release. The role acceptance has it.
    type: str
    required: true
attributes:
  diff_mode:
    description: Shows how the description of the release changes, and names the other files.
seealso:
  - module: hpcml.torchstack.acceptance_run
"""

EXAMPLES = r"""
- name: Write tests for the nightly run of ReFrame
  hpcml.torchstack.release_reframe:
    root: /soft/pytorch
    release: "2026-11-20"
    module: torchstack/2026-11-20
    modulepaths: {lmod: /soft/pytorch/.torchstack/2026-11-20/modulefiles/lmod}
    nodes: 2
    ranks: 8
    launcher: [srun, "--nodes={nodes}", "--ntasks={ranks}", "--cpus-per-task=8"]
    imports: [torch, mpi4py]
    checks: [imports, devices, torch_gloo, torch_nccl]
    measure:
      operations: [all_reduce]
      largest: 1 GiB
      floors:
        bandwidth: [{backend: nccl, operation: all_reduce, bytes: 1 GiB, busbw: 36, source: measured on 2026-04-02}]
    tests: "{{ lookup('ansible.builtin.file', 'torchstack.py') }}"
"""

RETURN = r"""
directory:
  description: Where the tests are; C(reframe -c) takes it.
  returned: success
  type: str
written:
  description: Names of the files that were written, or would be.
  returned: success
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import reframe_files, reframe_tests
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_bytes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import stage_directory
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import module_options
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.records import ReleaseFiles

TEXTS = {"type": "list", "elements": "str", "default": []}
SPEC = {
    **module_options.RELEASE,
    "prefix": {"type": "path"},
    "shared": {"type": "list", "elements": "str"},
    "module": {"type": "str", "default": ""},
    "environment": {"type": "dict", "default": {}},
    "nodes": {"type": "int", "default": 1},
    "ranks": {"type": "int", "default": 2},
    "launcher": {"type": "list", "elements": "str", "default": ["mpiexec", "-n", "{ranks}"]},
    "python": {"type": "str", "default": "python3"},
    "imports": TEXTS,
    "checks": TEXTS,
    "where_possible": TEXTS,
    "measure": {"type": "dict", "default": {}},
    "transport": {"type": "dict", "default": {}},
    "import_ceiling": {"type": "float", "default": 0},
    "sizes": {"type": "list", "elements": "str", "default": ["1 MiB", "64 MiB", "1 GiB"]},
    "tolerance": {"type": "float", "default": 0},
    "timeout": {"type": "int", "default": 600},
    "job": {"type": "dict", "default": {}},
    "tests": {"type": "str", "required": True},
}


def run(module: AnsibleModule) -> dict:
    """Write what differs, and return the result.

    Raises:
        StackError: an option cannot be understood, or the files cannot be written.
    """
    params = module.params
    release = ReleaseFiles(params["root"], params["release"])
    directory = os.path.join(
        stage_directory(params["root"], params["release"], params["partition"]), reframe_files.DIRECTORY)
    data = reframe_tests.describe_release(dict(params, prefix=params["prefix"] or release.prefix))
    files = reframe_files.make_files(data, params["tests"])
    try:
        names = reframe_files.list_differing(directory, files)
        before = read_bytes(os.path.join(directory, "release.json")) or b""
        if names and not module.check_mode:
            reframe_files.write_files(directory, files, names)
    except OSError as error:
        raise StackError(
            "The ReFrame tests in %s could not be written: %s." % (directory, error.strerror), reframe_tests.STEP,
            "Run this as the account that owns the root, and look at the space that is left.", directory) from error
    after = files["release.json"].decode("utf-8")
    shown = text_diff(directory, before.decode("utf-8"), after)
    return {"changed": bool(names), "directory": directory, "written": names, "diff": shown if names else {}}


def main() -> None:
    """Entry of the module."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()

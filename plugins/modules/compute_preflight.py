#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Looks at a compute node before hours of building; the work is in module_utils/compute_*.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: compute_preflight
short_description: Look at a compute node before a rollout builds there
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
description:
  - Finds out by one short job whether builds can run on the compute nodes of a site - whether they see the release's
    file system and may write there, modules load in a plain shell, the driver runs programs of the CUDA toolkit, the
    directory for temporary files will do, and cores, memory and GPUs are as the site says. What differs from the login
    node is told.
  - The job is a step of M(hpcml.torchstack.build_step) between two calls of this module. O(state=asked) says whether a
    look is needed, and gives the step's script; O(state=judged) judges what the node has answered.
  - A look without an error holds for a day, as long as O(launcher), O(options), O(node), O(programs) and the release's
    place stay the same. Question, answer and verdict are in C(<root>/.torchstack/<release>).
options:
  state:
    description: Whether to prepare the look, or to judge the answer.
    type: str
    choices: [asked, judged]
    default: asked
  partition:
    description: The partition of the site whose node is looked at; its records are in C(partitions/<name>) beside those
      of the release. Empty for the nodes on which steps run.
    type: str
    default: ""
  launcher:
    description: The launcher of the job.
    type: str
    required: true
  options:
    description: The options of the job. C(cores), C(memory) and C(gpus) are expected there where O(node) does not say
      otherwise; C(python) runs the program.
    type: dict
    default: {}
  node:
    description: What is expected of a node - C(cores), C(memory), C(cuda), C(tmpdir), C(tmpdir_space), C(modules),
      C(module_init), C(module_system) (whose C(module) has to be) and C(setup) (what is sourced before they are
      loaded).
    type: dict
    default: {}
  programs:
    description: Commands that steps call there, by what they are for. C(python) has to be of the same version as here.
    type: dict
    default: {}
  python_version:
    description: The version of C(programs.python) on this side; empty for not to compare.
    type: str
    default: ""
  wait:
    description: Seconds that a shared file system may take to show a new file to the other side.
    type: float
    default: 60
attributes:
  check_mode:
    description: Says whether a node would be looked at. Writes nothing.
  diff_mode:
    support: none
    description: Nothing of the release is changed.
  idempotent:
    description: A look that still holds is not repeated.
seealso:
  - module: hpcml.torchstack.build_step
  - module: hpcml.torchstack.site_preflight
"""

EXAMPLES = r"""
- name: See whether a compute node has to be looked at
  hpcml.torchstack.compute_preflight: &compute
    root: /soft/pytorch
    release: "2026-11-20"
    launcher: slurm
    options: {partition: gpu, walltime: "00:10:00", cores: 64}
    node: {cores: 64, memory: 240G, modules: [gcc/12.2.0]}
  register: asked

- name: Look at it
  hpcml.torchstack.build_step:
    name: compute-preflight
    state_dir: "{{ asked.state_dir }}"
    script: "{{ asked.script }}"
    inputs: "{{ asked.inputs }}"
    launcher: slurm
    launcher_options: {partition: gpu, walltime: "00:10:00", cores: 64}
  when: asked.needed

- name: Judge what it says
  hpcml.torchstack.compute_preflight:
    <<: *compute
    state: judged
  when: asked.needed
"""

RETURN = r"""
needed:
  description: Whether a node has to be looked at.
  returned: when O(state=asked)
  type: bool
reason:
  description: Why; empty where the last look still holds.
  returned: when O(state=asked)
  type: str
  sample: the site's data has changed
script:
  description: The commands of the step.
  returned: when a node has to be looked at
  type: str
  sample: /usr/bin/python3 -I -S - ...
inputs:
  description: The inputs of the step, other ones for every look.
  returned: when a node has to be looked at
  type: dict
state_dir:
  description: The directory of the step.
  returned: when O(state=asked)
  type: str
findings:
  description: Everything that was looked at; of a look that still holds, its own. C(check), C(ok), C(severity)
    (V(error), V(warning) or V(note)), C(message) (what is so) and C(remedy) (what to do).
  returned: when a node was looked at
  type: list
  elements: dict
  sample:
    - {check: compute.cores, ok: true, severity: note, message: A job may use 64 of the 64 processors of n01.,
       remedy: ""}
facts:
  description: What the node has answered.
  returned: when O(state=judged) and no finding is an error
  type: dict
  sample: {machine: {host: n01, glibc: "2.31"}}
"""

import os
import sys
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json, write_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import Finding, conclude, failure
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_checks, node_facts, node_query
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.records import ReleaseFiles

SPEC = {
    **RELEASE, "state": {"type": "str", "choices": ["asked", "judged"], "default": "asked"},
    "partition": {"type": "str", "default": ""}, "launcher": {"type": "str", "required": True},
    "options": {"type": "dict", "default": {}}, "node": {"type": "dict", "default": {}},
    "programs": {"type": "dict", "default": {}}, "python_version": {"type": "str", "default": ""},
    "wait": {"type": "float", "default": 60},
}
ASKED = ("launcher", "options", "node", "programs", "python_version")
"""Options on which an answer depends."""


def ask(params: dict, check: bool) -> dict:
    """Write down what a node is asked, and return the script that answers."""
    release = ReleaseFiles(params["root"], params["release"])
    files = node_query.Files.of(release, params["partition"])
    digest = node_query.fingerprint(dict({key: params[key] for key in ASKED}, prefix=release.prefix))
    record = read_json(files.record)
    reason = node_query.reason_to_ask(record, digest, time.time())
    result = {"changed": False, "needed": bool(reason), "reason": reason, "state_dir": files.directory}
    if not reason:
        return dict(result, findings=record["findings"] if isinstance(record, dict) else [])
    request = {"nonce": "planned", "digest": digest} if check else node_query.ask(files, digest)
    wanted = dict({key: params[key] for key in ("node", "programs", "wait")}, prefix=release.prefix)
    python = params["options"].get("python") or sys.executable
    return dict(result, script=node_query.script(files, request["nonce"], wanted, python), inputs=request)


def judge(params: dict) -> tuple[list[Finding], dict]:
    """Judge what the node has answered, and return the findings with it.

    Raises:
        StackError: nobody has asked, or the answer cannot be seen.
    """
    release = ReleaseFiles(params["root"], params["release"])
    files = node_query.Files.of(release, params["partition"])
    request = read_json(files.request)
    if not isinstance(request, dict):
        raise StackError("No compute node was asked anything.", "compute", "Call this module with state: asked first.")
    facts = node_query.wait_for_answer(files, request["nonce"], params["wait"])
    wanted = {
        "nonce": request["nonce"], "prefix": release.prefix, "python": params["python_version"],
        "node": params["node"], "options": params["options"],
        "gpus": registry.asked_gpus(params["launcher"], params["options"]),
    }
    findings = node_checks.judge(facts, wanted, node_facts.machine())
    if not failure(findings):
        write_json(files.record, {
            "digest": request["digest"], "judged": time.time(), "facts": facts,
            "findings": [finding._asdict() for finding in findings], "launcher": params["launcher"],
        })
    node_query.forget(files)
    return findings, facts


def run(module: AnsibleModule) -> dict:
    """Ask a compute node, or judge what it has answered."""
    os.umask(0o022)
    try:
        if module.params["state"] == "asked":
            return ask(module.params, module.check_mode)
        if module.check_mode:
            return {"changed": False, "skipped": True, "msg": "No compute node is looked at in check mode."}
        findings, facts = judge(module.params)
    except ValueError as error:
        raise StackError(
            "The record of the last look at a compute node is not readable: %s." % error, "compute", "Remove it."
        ) from error
    except OSError as error:
        raise StackError(
            "What was asked of a compute node cannot be kept: %s: %s." % (error.filename, error.strerror), "compute",
            "Check that this account may write there and that there is space.") from error
    return conclude(module, findings, "compute", {}, {"facts": facts})


def main() -> None:
    """Entry point."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()

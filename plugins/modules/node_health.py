#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Look at the nodes that a release is accepted on: the work is in module_utils/health/."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_health
version_added: 0.2.0
short_description: Find out whether nodes are fit to accept a release on
description:
  - Starts one small program on each of O(nodes) nodes, which asks GPUs, links, adapters, the kernel's log and file
    systems how they are, and judges what it brings by O(expected) and O(thresholds).
  - It looks at GPUs (as nvidia-smi and the PCI bus count them), errors of their memory, remapped rows and retired
    pages, VBIOS and driver, the same on all nodes, NVLink and its errors, PCIe, Xid and other messages of the kernel,
    lowered clocks, ports of InfiniBand and Slingshot with their counters, and how long a file system takes for small
    files.
  - A finding is a failure, which fails this task, a warning or a remark, with its threshold, the source of that, and a
    remedy. What could not be seen without being root is in RV(not_checked).
  - Nothing that a sick node does keeps this waiting. Every program there has a time limit; one that is missing, hangs,
    may not be run or prints garbage is a finding.
  - The record is C(<root>/.torchstack/<release>/node_health.json); all records are kept in C(node_health.jsonl), the
    last output in C(node_health.log). When it passed for the same O(subject), and that is accepted since, nothing is
    done.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._ranks
  - hpcml.torchstack._ranks.job
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
attributes:
  check_mode:
    description: Says whether nodes would be looked at, and with which command; runs and writes nothing.
  diff_mode:
    support: none
    description: Nothing of the release is changed.
  idempotent:
    description: The nodes of a release that is accepted are not looked at again.
options:
  subject:
    description: Digest of the frozen release to be accepted on these nodes. Without it, they are looked at each time.
    type: str
    default: ""
  recorded:
    description: A directory with what the program has printed on each node, as files C(.json), instead of starting it.
    type: path
  nodes:
    description: How many nodes to look at. It is a failure when fewer answer.
    type: int
    default: 1
  launcher:
    description: The site's launcher with its options; O(nodes) replaces C({nodes}) and C({ranks}), and C({per_node}) is
      1. Empty to look at the machine on which this module runs.
    type: list
    elements: str
    default: []
  python:
    description: The interpreter of the program on the nodes, of version 3.6 or later.
    type: str
    default: /usr/bin/python3
  module:
    description: A module to load for O(launcher), with its version. Empty for none.
    type: str
    default: ""
  environment:
    description: Variables to set where no module is loaded.
    type: dict
    default: {}
  expected:
    description: What each node has. What is not said is not expected.
    type: dict
    default: {}
    suboptions:
      gpus:
        description: How many GPUs.
        type: int
      gpu_model:
        description: Their model, as a glob, whatever the case.
        type: str
      driver:
        description: Version of their driver, as a glob.
        type: str
      vbios:
        description: The versions of their VBIOS that will do.
        type: list
        elements: str
      nvlinks:
        description: How many links of NVLink each GPU has up.
        type: int
      nvlink_speed:
        description: GB/s of each of them in one direction.
        type: float
      pcie_width:
        description: Lanes of PCIe of each GPU.
        type: int
      pcie_generation:
        description: Generation of PCIe that the link of each GPU can do, which is lower when it idles.
        type: int
      mig:
        description: Whether the GPUs are divided.
        type: bool
      fabric:
        description: Network adapters; a port counts when it is up.
        type: list
        elements: dict
        suboptions:
          kind:
            description: InfiniBand or RoCE, Slingshot, or an interface of the network.
            type: str
            choices: [infiniband, cxi, net]
            required: true
          name:
            description: Which of them, as a glob, such as V(hsn*). The name of a port of InfiniBand is V(mlx5_0/1).
            type: str
          devices:
            description: How many ports. Without it, all that are there have to be up.
            type: int
          rate:
            description: Gb/s of each at least.
            type: int
          mtu:
            description: MTU of each interface.
            type: int
  thresholds:
    description: From where on facts are findings, by name, each with the C(source) of its figure. Those of the role
      P(hpcml.torchstack.node_health#role) are in its defaults. What has no threshold is not judged.
    type: dict
    required: true
  directories:
    description: Directories in which small files are made and removed, to see how long that takes.
    type: list
    elements: path
    default: []
  files:
    description: How many of them in each directory; fewer of each node, where there are many.
    type: int
    default: 100
  timeout:
    description: Seconds for the whole look, the launcher's waiting in a queue included.
    type: int
    default: 300
  again:
    description: Look even if the record answers.
    type: bool
    default: false
notes:
  - C(bin/node-health) of this collection writes the program by itself, for sites that look at their nodes in a
    prologue. It runs as any account with the Python of the system.
seealso:
  - module: hpcml.torchstack.acceptance_run
"""

EXAMPLES = r"""
- name: See whether two nodes are fit to accept the release on
  hpcml.torchstack.node_health:
    root: /soft/torchstack
    release: "2026-11-20"
    subject: "sha256:5f1c0e3f"
    nodes: 2
    launcher: [srun, "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}"]
    expected: {gpus: 4, gpu_model: "*A100*", nvlinks: 12, fabric: [{kind: cxi, devices: 2}]}
    thresholds:
      remapped_rows_pending: {failure: 0, source: "NVIDIA: a reset is due"}
    directories: [/soft/torchstack, /scratch]

- name: Judge what a prologue has left of all nodes
  hpcml.torchstack.node_health:
    root: /soft/torchstack
    release: "2026-11-20"
    recorded: /var/spool/node-health
    thresholds:
      vbios_versions: {failure: 1, source: "the vendor: one version for all"}
"""

RETURN = r"""
passed:
  description: Whether the nodes are fit; V(null) in check mode when they would be looked at.
  returned: always
  type: bool
needed:
  description: Whether the step has to run.
  returned: with O(job)
  type: bool
state_dir:
  description: The directory of the step.
  returned: when O(job) is given and a look is needed
  type: str
script:
  description: The commands of the step.
  returned: when O(job) is given and a look is needed
  type: str
  sample: /usr/bin/env -i HOME=/home/builder ...
inputs:
  description: The inputs of the step, other ones for every look.
  returned: when O(job) is given and a look is needed
  type: dict
reason:
  description: Why the nodes were or would be looked at; empty when the record answered.
  returned: always
  type: str
  sample: the nodes were not looked at yet
command:
  description: The command, as one would type it; empty with O(recorded).
  returned: always
  type: str
  sample: srun --nodes=2 --ntasks=2 --ntasks-per-node=1 env -u PYTHONPATH -u PYTHONHOME /usr/bin/python3 node_health.pyz
record:
  description: Path of the record.
  returned: always
  type: str
log:
  description: Path of the last look's output.
  returned: always
  type: str
summary:
  description: The verdict in one sentence.
  returned: when there is a record
  type: str
  sample: "Healthy: 2 nodes looked at in 3.1 s; 0 failures, 0 warnings, 1 remarks."
table:
  description: The nodes as aligned text.
  returned: when there is a record
  type: str
  sample: |-
    node  gpus  model        driver      nvlinks  log   failure  warning  remark
    n1    2     NVIDIA H200  580.159.04  18       seen  0        0        0
findings:
  description: All findings, the worst first. C(host) (empty for what is about several), C(severity) (V(failure),
    V(warning) or V(remark)), C(check), C(subject) (of what), C(message) (what is so), C(value) (the fact itself),
    C(threshold), C(source) (who says so), and C(remedy).
  returned: when there is a record
  type: list
  elements: dict
  sample:
    - {host: n1, severity: failure, check: remapped_rows, subject: gpu 3 (0000:c1:00.0),
       message: A row could not be remapped., value: 1, threshold: 0, source: "NHC, azure_gpu_ecc",
       remedy: Drain the node.}
failures:
  description: One sentence for each failure.
  returned: when the nodes are not fit
  type: list
  elements: str
not_checked:
  description: Sentences about what this look cannot have noticed.
  returned: when there is a record
  type: list
  elements: str
  sample: ["On n1: The kernel's log was not seen, and so no Xid nor other message of it."]
last_lines:
  description: The end of what the job itself printed.
  returned: when the nodes are not fit
  type: list
  elements: str
  sample: ["slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED ***"]
failed_step:
  description: What failed, the name of a check or V(thresholds), V(launcher), V(recorded) and the like.
  returned: failure
  type: str
"""

import os
import shlex
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import (
    batch_run,
    local_run,
    login,
    module_run,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.records import Files
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.run import Run
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import collect, records, summary, thresholds
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import module_options

FABRIC = {
    "kind": {"type": "str", "choices": ["infiniband", "cxi", "net"], "required": True},
    "name": {"type": "str"}, "devices": {"type": "int"}, "rate": {"type": "int"}, "mtu": {"type": "int"},
}
EXPECTED = {
    "gpus": {"type": "int"}, "gpu_model": {"type": "str"}, "driver": {"type": "str"},
    "vbios": {"type": "list", "elements": "str"}, "nvlinks": {"type": "int"}, "nvlink_speed": {"type": "float"},
    "pcie_width": {"type": "int"}, "pcie_generation": {"type": "int"}, "mig": {"type": "bool"},
    "fabric": {"type": "list", "elements": "dict", "options": FABRIC},
}
SPEC = {
    **module_options.RELEASE, **module_options.JOB,
    "subject": {"type": "str", "default": ""},
    "recorded": {"type": "path"},
    "nodes": {"type": "int", "default": 1},
    "launcher": {"type": "list", "elements": "str", "default": []},
    "python": {"type": "str", "default": "/usr/bin/python3"},
    "module": {"type": "str", "default": ""},
    "environment": {"type": "dict", "default": {}},
    "expected": {"type": "dict", "default": {}, "options": EXPECTED},
    "thresholds": {"type": "dict", "required": True},
    "directories": {"type": "list", "elements": "path", "default": []},
    "files": {"type": "int", "default": 100},
    "timeout": {"type": "int", "default": 300},
    "again": {"type": "bool", "default": False},
}
ALL_FILES = 4000
"""Small files of all nodes together: many nodes at once would measure their own load."""

FEWEST = 10
"""Small files of each node at least."""

PLAIN = ("env", "-u", "PYTHONPATH", "-u", "PYTHONHOME")
"""Before the interpreter: what a module sets for the release's own Python is not for that of the system."""

ASKED = (
    "nodes", "python", "modulepaths", "module_init", "module_definition", "environment", "environment_keep", "expected",
    "thresholds", "directories",
)
"""Options on which an answer depends."""


def question_of(params: dict) -> dict:
    """Return what is asked; goes to the nodes and into the record.

    Raises:
        StackError: the launcher cannot be used.
    """
    nodes, words = params["nodes"], params["launcher"]
    if not words and nodes != 1:
        raise StackError("%d nodes are to be looked at, and there is no launcher." % nodes, "launcher",
                         "Set node_health_launcher, or the site's torchstack_ranks.")
    own = local_run.launcher_command(words, nodes, nodes, "node_health") if words else []
    patterns = [rule["match"] for rule in params["thresholds"].get("kernel_messages") or []]
    module = params["module"] if words else ""
    return dict(
        {key: params[key] for key in ASKED}, launcher=[*own, *PLAIN], subject=params["subject"], patterns=patterns,
        files=min(params["files"], max(FEWEST, ALL_FILES // max(1, nodes))),
        module=module, module_system=params["module_system"] if module else "none",
        prefix=os.path.join(params["root"], params["release"]))


def judge_recorded(params: dict, files: Files, check: bool) -> dict:
    """Judge what others have collected, and return the record.

    Raises:
        StackError: it cannot be read, or the nodes are not fit.
    """
    question = dict({key: params[key] for key in ("expected", "thresholds")}, subject=params["subject"], nodes=0,
                    recorded=params["recorded"])
    nodes, troubles = records.check_answers(records.read_answers(params["recorded"]), question)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    user = login.find_account("").name
    record = records.make_record(nodes, troubles, question, user, started, 0.0)
    if check:
        records.raise_failures(record, files)
        return record
    return records.write_record(files, record)


def check_nodes(params: dict, check: bool) -> dict:
    """Plan the check, run it where that is needed, and return the result.

    Raises:
        StackError: the nodes are not fit, or could not be looked at.
    """
    thresholds.check_settings(params["thresholds"], params["expected"])
    files = Files.below(params["root"], params["release"], records.STEM, params["partition"])
    result = {"changed": False, "record": files.record, "log": files.log, "command": "", "reason": "it was recorded"}
    if params["recorded"]:
        return dict(result, **summary.describe_record(judge_recorded(params, files, check)))
    question, job, judged = question_of(params), params["job"], params["state"] == "judged"
    limits = Run(login.find_account(""), [], params["timeout"])
    if job:
        batch_run.check_job(job, limits.timeout, records.STEM)
    last = files.last()
    accepted = records.is_accepted(params["root"], params["release"], params["subject"], params["partition"])
    reason = records.reason_to_run(last, question, params["again"], accepted)
    words = [*question["launcher"], params["python"], "node_health.pyz"]
    result.update(reason=reason, command=" ".join(map(shlex.quote, words)))
    if not reason:
        return dict(result, **summary.describe_record(last), **({"needed": False} if job else {}))
    if not check and (judged or not job) and not os.path.isdir(params["root"]):
        raise StackError("The root %s does not exist." % params["root"], "root", "Roll out a release there first.")
    kind = module_run.Kind("node health", records.conclude, summary.describe_record)
    result["passed"] = None
    return module_run.carry_out(kind, params, files, question, limits, program_archive(collect), result, check)


def run(module: AnsibleModule) -> dict:
    """Check the nodes, and show what is no reason to refuse them as warnings."""
    os.umask(0o022)
    result = check_nodes(module.params, module.check_mode)
    for text in summary.list_warnings(result.get("findings", []) if result["reason"] else []):
        module.warn(text)
    return result


def main() -> None:
    """Entry of the module."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()

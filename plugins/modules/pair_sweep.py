#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Measure all pairs of nodes at once, round by round, and name the nodes and links that are slow."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pair_sweep
version_added: 0.2.0
short_description: Measure between all pairs of nodes, and name slow nodes and slow links
description:
  - Starts O(ranks) ranks on O(nodes) nodes in one job, through the release's module and the site's launcher, and has
    every node measure with every other, in as few rounds as there can be. The pairs of a round work at once. All values
    that they exchange are checked.
  - A node that is slow with nearly all others is a slow node; two nodes that are slow with each other only are a slow
    link. What looks slow is measured again against good partners before it is named, and what cannot be told is
    undecided. With two nodes nobody can be named.
  - Fails when something is slow, and when it has ended early. What was measured until then is kept, and the next run
    goes on from there, as far as its job has the same nodes.
  - The record is C(<root>/.torchstack/<release>/sweep.json); all records are kept in C(sweep.jsonl), the last output in
    C(sweep.log). When it says that the same O(subject) passed what is asked here, nothing is done.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._ranks
  - hpcml.torchstack._ranks.job
  - hpcml.torchstack._ranks.launched
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
attributes:
  check_mode:
    description: Says whether a sweep would run, and with which command; runs and writes nothing.
  idempotent:
    description: Nodes that have passed what is asked are not measured again, unless O(again) says so.
options:
  prefix:
    description: Directory of the release. By default O(root)/O(release).
    type: path
  ranks:
    description: How many ranks to start, as many on every node; with GPUs, one for each.
    type: int
    required: true
  nodes:
    description: On how many nodes. It counts as a failure when the ranks ran on another number.
    type: int
    required: true
  backend:
    description: What the ranks of a pair talk through. V(nccl) and V(gloo) are those of C(torch.distributed), V(mpi) is
      MPI by way of mpi4py, and V(tcp) the network to which the names of the nodes lead, which needs nothing but Python.
    type: str
    choices: [nccl, gloo, mpi, tcp]
    default: gloo
  operation:
    description: What is measured over all ranks of a pair, as bus bandwidth with the definition of nccl-tests. With
      O(backend=tcp) every rank sends to its counterpart and receives from it at once, whatever this says.
    type: str
    choices: [all_reduce, send_recv]
    default: all_reduce
  size:
    description: Bytes, or a number with C(KiB), C(MiB) or C(GiB).
    type: str
    default: 64 MiB
  warmups:
    description: How often it is done before it counts.
    type: int
    default: 2
  trials:
    description: How often it counts.
    type: int
    default: 10
  thresholds:
    description: What counts as slow, as shares of what is usual among these nodes.
    type: dict
    default: {}
    suboptions:
      suspect:
        description: Below this, a pair or a node is measured again. By default V(0.87).
        type: float
      slow:
        description: Below this when measured again, it is named. By default V(0.85).
        type: float
      nearly_all:
        description: With this share of its partners a slow node has to be slow. By default V(0.8).
        type: float
      repeats:
        description: How often a suspect is measured again at least. By default V(5).
        type: int
  timeout:
    description: Seconds for the whole job. When no time is left for another round, the next run goes on.
    type: int
    default: 840
  again:
    description: Measure all pairs again, even if the record has them. A sweep that has ended early goes on in any case.
    type: bool
    default: false
notes:
  - The ranks meet through mpi4py or Horovod, where there is one, else at E(MASTER_ADDR) and E(MASTER_PORT), else at a
    port that follows from the job's number.
seealso:
  - module: hpcml.torchstack.acceptance_run
"""

EXAMPLES = r"""
- name: Measure between all pairs of 64 nodes with four GPUs each
  hpcml.torchstack.pair_sweep:
    root: /soft/torchstack
    release: "2026-11-20"
    subject: "sha256:5f1c0e3f"
    module: torchstack/2026-11-20
    modulepaths: {lmod: /soft/torchstack/modulefiles/lmod}
    ranks: 256
    nodes: 64
    launcher: [srun, "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}", --gpus-per-task=1]
    backend: nccl
    size: 256 MiB
    thresholds: {suspect: 0.75, slow: 0.67}
"""

RETURN = r"""
passed:
  description: Whether all pairs are measured and nothing is slow; V(null) in check mode when a sweep would run.
  returned: always
  type: bool
needed:
  description: Whether the step has to run.
  returned: with O(job)
  type: bool
state_dir:
  description: The directory of the step.
  returned: when O(job) is given and a sweep is needed
  type: str
script:
  description: The commands of the step.
  returned: when O(job) is given and a sweep is needed
  type: str
  sample: /usr/bin/env -i HOME=/home/builder ...
inputs:
  description: The inputs of the step, other ones for every sweep.
  returned: when O(job) is given and a sweep is needed
  type: dict
reason:
  description: Why a sweep ran or would run; empty when the record answered.
  returned: always
  type: str
  sample: the last sweep ended after 31 of 63 rounds
planned_after:
  description: The phase that has to come first; in check mode, where O(prefix) or O(subject) is not there yet.
  returned: in check mode, when something is missing
  type: str
command:
  description: The launcher's command, as one would type it after loading the module.
  returned: always
  type: str
  sample: srun --nodes=64 --ntasks=256 python3 ranks.pyz
summary:
  description: The verdict in one sentence.
  returned: when there is a record
  type: str
  sample: "2016 pairs of 64 nodes over nccl, 268435456 bytes, in 301.2 s: nobody is slow."
record:
  description: Path of the record.
  returned: always
  type: str
log:
  description: Path of the last run's output.
  returned: always
  type: str
hosts:
  description: The nodes.
  returned: when there is a record
  type: list
  elements: str
rounds:
  description: How many rounds all pairs need.
  returned: when there is a record
  type: int
rounds_done:
  description: How many of them are measured.
  returned: when there is a record
  type: int
slow_nodes:
  description: Nodes that are slow with nearly all others - C(host), C(ratio) (of what is usual) and C(evidence).
  returned: when there is a record
  type: list
  elements: dict
  sample:
    - {host: n3, ratio: 0.59,
       evidence: "n3 reaches 60 % of what is usual (24.1 GB/s); measured again with good partners, 59 %."}
slow_links:
  description: Pairs of nodes that are slow with each other only - C(hosts), C(ratio) and C(evidence).
  returned: when there is a record
  type: list
  elements: dict
undecided:
  description: Sentences about what is slow without it being clear who is the cause.
  returned: when there is a record
  type: list
  elements: str
not_checked:
  description: Sentences about what this sweep cannot have noticed.
  returned: when there is a record
  type: list
  elements: str
  sample: ["Two nodes are one pair: there is nothing to compare it with, and nobody can be named."]
failures:
  description: One sentence for each thing that is wrong.
  returned: when the sweep failed
  type: list
  elements: str
  sample: ["it ended early: 31 of 63 rounds are done"]
last_lines:
  description: The end of what the job itself printed.
  returned: when the sweep failed
  type: list
  elements: str
  sample: ["[31/63] 32 pairs in 4.1 s, 24.1 GB/s, least n3 and n7 12.1"]
failed_step:
  description: What failed, such as V(slow_nodes), V(slow_links), V(incomplete), V(pairs), V(ranks) or V(timeout).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import (
    batch_run,
    local_run,
    login,
    module_run,
    sweep_records,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.records import Files
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.run import Run
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import module_options, pair_sweep, units

STEM = "sweep"
KIND = module_run.Kind("pair sweep", sweep_records.conclude, sweep_records.describe_record)
ASKED = (
    "module", "module_system", "module_init", "module_definition", "modulepaths", "environment", "environment_keep",
    "ranks", "nodes", "python",
)


def sweep_request(params: dict) -> dict:
    """Return what the ranks are asked, but for what is known already.

    Raises:
        StackError: it cannot be used.
    """
    try:
        size = units.parse_size(params["size"])
    except ValueError as reason:
        raise StackError("size is %r, which %s." % (params["size"], reason), "size", "Correct it.") from None
    if params["nodes"] < 2:
        raise StackError("nodes is %d: that makes no pair." % params["nodes"], "nodes", "Ask for two or more.")
    if params["warmups"] < 0 or params["trials"] < 1:
        raise StackError("warmups and trials are numbers from 0 and from 1 on.", "trials", "Correct them.")
    given = {key: value for key, value in params["thresholds"].items() if value is not None}
    return {
        "backend": params["backend"], "operation": "exchange" if params["backend"] == "tcp" else params["operation"],
        "bytes": size, "warmups": params["warmups"], "trials": params["trials"],
        "rule": sweep_records.parse_rule(given)._asdict(),
    }


def sweep(params: dict, check: bool) -> dict:
    """Plan the sweep, run it where that is needed, and return the result.

    Raises:
        StackError: something is slow, or it could not be measured.
    """
    launcher = local_run.launcher_command(params["launcher"], params["ranks"], params["nodes"], "acceptance_sweep")
    limits = Run(login.find_account(params["user"]), params["become_command"], params["timeout"])
    question = dict(
        {key: params[key] for key in ASKED}, subject=params["subject"], launcher=launcher, user=limits.account.name,
        prefix=params["prefix"] or os.path.join(params["root"], params["release"]), sweep=sweep_request(params))
    files = Files.below(params["root"], params["release"], STEM, params["partition"])
    last = files.last()
    if params["job"]:
        batch_run.check_job(params["job"], limits.timeout, STEM)
    reason = sweep_records.reason_to_run(last, question, params["again"])
    result = module_run.plan(KIND, params, files, question, reason, check)
    question["sweep"]["known"] = sweep_records.resume_data(last, question)
    return module_run.carry_out(KIND, params, files, question, limits, program_archive(pair_sweep), result, check)


def run(module: AnsibleModule) -> dict:
    """Sweep, and show a warning for each pair of nodes that is left undecided."""
    os.umask(0o022)
    result = sweep(module.params, module.check_mode)
    for sentence in result.get("undecided", []):
        module.warn(sentence)
    return result


def main() -> None:
    """Entry of the module."""
    run_module(run, {
        **module_options.RELEASE, **module_options.JOB, **module_options.LAUNCHED,
        "prefix": {"type": "path"},
        "ranks": {"type": "int", "required": True},
        "nodes": {"type": "int", "required": True},
        "backend": {"type": "str", "default": "gloo", "choices": ["nccl", "gloo", "mpi", "tcp"]},
        "operation": {"type": "str", "default": "all_reduce", "choices": ["all_reduce", "send_recv"]},
        "size": {"type": "str", "default": "64 MiB"},
        "warmups": {"type": "int", "default": 2},
        "trials": {"type": "int", "default": 10},
        "thresholds": {
            "type": "dict", "default": {},
            "options": {
                "suspect": {"type": "float"}, "slow": {"type": "float"}, "nearly_all": {"type": "float"},
                "repeats": {"type": "int"},
            },
        },
        "timeout": {"type": "int", "default": 840},
        "again": {"type": "bool", "default": False},
    })


if __name__ == "__main__":
    main()

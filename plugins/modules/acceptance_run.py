#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Accept a release: many ranks, as an ordinary user, through the module and the launcher, with checked values."""

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_run
version_added: 0.2.0
short_description: Accept a finished release as its users will use it
description:
  - Starts O(ranks) ranks as an ordinary user, in the environment of a fresh login, through the release's module and the
    site's launcher. They all-reduce, broadcast, all-gather, reduce-scatter and send over Horovod, C(torch.distributed)
    and mpi4py, with values that are only right if every rank contributed exactly once, at its place.
  - Where O(measure) asks for it, bandwidth and latency of the backends of C(torch.distributed) are measured. By which
    network NCCL goes, how long imports took, and the memory nodes of ranks and GPUs are recorded.
  - Refused are too few ranks, two ranks on one GPU, ranks that map different MPI, PyTorch, NCCL or C++ libraries,
    Python modules from outside O(prefix), and wrong values, each in one sentence that names the rank.
  - After O(timeout) seconds the ranks print their Python stacks, and every process of the job is ended.
  - The record is C(<root>/.torchstack/<release>/acceptance.json); all records are kept in C(acceptance.jsonl), the last
    output in C(acceptance.log). When it says that the same O(subject) passed what is asked here, nothing is done.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._ranks
  - hpcml.torchstack._ranks.job
  - hpcml.torchstack._ranks.launched
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
attributes:
  check_mode:
    description: Says whether an acceptance would run, and with which command; runs and writes nothing.
  idempotent:
    description: A release that has passed what is asked is not accepted again, unless O(again) says so.
options:
  prefix:
    description: Directory below which the Python modules in O(imports) must lie. By default O(root)/O(release).
    type: path
  shared:
    description: Of ranks that O(python) starts in a container, the directories of the machine that they see. The
      modules in O(imports) must then lie in none of them and not in the user's home.
    type: list
    elements: str
  providers:
    description: Where libraries have to come from that a rank has mapped when its checks have ended, whatever its
      E(LD_LIBRARY_PATH) says. One that no rank has mapped is no failure.
    type: list
    elements: dict
    default: []
    version_added: 0.3.0
    suboptions:
      name:
        description: Glob over sonames; further numbers may follow in the name of the file.
        type: str
        required: true
      path:
        description: Glob over absolute paths. C(*) and C(?) stay within a name, C(**) spans directories.
        type: str
        required: true
      reason:
        description: Why it has to come from there.
        type: str
        default: ""
  ranks:
    description: How many ranks to start.
    type: int
    default: 2
  nodes:
    description: On how many nodes; O(ranks) has to be a multiple of it. With more than one, any other number is a
      failure.
    type: int
    default: 1
  imports:
    description: Python modules that every rank imports and that must lie below O(prefix).
    type: list
    elements: str
    default: [torch, horovod.torch]
  checks:
    description: Checks that have to run and to pass.
    type: list
    elements: str
    choices: [imports, devices, horovod, torch_gloo, torch_nccl, torch_mpi, mpi4py, cuda_graph_replay]
    default: [imports, devices, horovod, torch_gloo]
  where_possible:
    description: Checks that run where hardware and build allow it. Where they do not, RV(not_checked) says why.
    type: list
    elements: str
    choices: [imports, devices, horovod, torch_gloo, torch_nccl, torch_mpi, mpi4py, cuda_graph_replay]
    default: [torch_nccl, torch_mpi, cuda_graph_replay]
  measure:
    description:
      - What is measured of each backend after its values, and how fast it has to be. Empty for nothing. Bandwidths are
        in GB/s (10^9 bytes per second), by the definition of nccl-tests; sizes are bytes, or such as V(1 GiB).
      - The keys are C(operations), C(smallest), C(largest), C(warmups), C(trials), C(seconds) for each operation,
        C(latency) with C(bytes) and C(iterations), and C(backends), all of C(gloo), C(nccl), C(mpi) by default.
      - C(floors) has C(bandwidth), a list of C(backend), C(operation), C(bytes), C(busbw), C(source), and C(latency), a
        list of C(backend), C(bytes), C(microseconds), C(source). What is below, or was not measured, is a failure.
        Floors of a backend of which no check is in O(checks) count where it could be measured.
    type: dict
    default: {}
  transport:
    description: What NCCL has to say about its network on every rank, as patterns of a shell, whatever the case. Empty
      to record it only.
    type: dict
    default: {}
    suboptions:
      networks:
        description: Patterns of which one has to match, such as V(*libfabric*).
        type: list
        elements: str
        default: []
      providers:
        description: Patterns of which one has to match, such as V(cxi).
        type: list
        elements: str
        default: []
      forbidden:
        description: Patterns of which none may match, such as V(Socket).
        type: list
        elements: str
        default: []
  import_ceiling:
    description: Seconds that the slowest rank may take to import C(torch), all ranks at once; V(0) for any.
    type: float
    default: 0
  timeout:
    description: Seconds for the whole job, the launcher's waiting in a queue included.
    type: int
    default: 600
  again:
    description: Run even if the record says that the same passed before.
    type: bool
    default: false
notes:
  - The step has to run as O(user). Where that is another account than this task's, the step is in its home, which the
    nodes have to see, and O(become_command) reads what the job has written there.
"""

EXAMPLES = r"""
- name: Accept the release on two nodes as an ordinary user
  hpcml.torchstack.acceptance_run:
    root: /soft/torchstack
    release: "2026-11-20"
    subject: "sha256:5f1c0e3f"
    module: torchstack/2026-11-20
    modulepaths: {lmod: /soft/torchstack/modulefiles/lmod, tcl: /soft/torchstack/modulefiles/tcl}
    user: tester
    ranks: 8
    nodes: 2
    launcher: [srun, "--nodes={nodes}", "--ntasks={ranks}", --gpus-per-task=1]
    checks: [imports, devices, horovod, torch_gloo, torch_nccl]
    transport: {networks: ["*libfabric*", OFI], providers: [cxi]}
    measure:
      operations: [all_reduce]
      largest: 1 GiB
      floors:
        bandwidth: [{backend: nccl, operation: all_reduce, bytes: 1 GiB, busbw: 36, source: the site's own runs}]

- name: See whether the release has to be accepted in a job of PBS
  hpcml.torchstack.acceptance_run: &acceptance
    job: {launcher: pbs, options: {queue: prod, walltime: "00:15:00"}}
    root: /soft/torchstack
    release: "2026-11-20"
    subject: "sha256:5f1c0e3f"
    module: torchstack/2026-11-20
    ranks: 8
    nodes: 2
    launcher: [mpiexec, -n, "{ranks}", --ppn, "{per_node}"]
  register: asked

- name: Start the ranks
  hpcml.torchstack.build_step:
    name: acceptance
    state_dir: "{{ asked.state_dir }}"
    script: "{{ asked.script }}"
    inputs: "{{ asked.inputs }}"
    launcher: pbs
    launcher_options: {queue: prod, walltime: "00:15:00", nodes: 2, tasks: 4}
  when: asked.needed

- name: Judge what they say
  hpcml.torchstack.acceptance_run:
    <<: *acceptance
    state: judged
  when: asked.needed
"""

RETURN = r"""
passed:
  description: Whether the release is accepted; V(null) in check mode when an acceptance would run.
  returned: always
  type: bool
needed:
  description: Whether the step has to run.
  returned: with O(job)
  type: bool
state_dir:
  description: The directory of the step.
  returned: when O(job) is given and an acceptance is needed
  type: str
script:
  description: The commands of the step.
  returned: when O(job) is given and an acceptance is needed
  type: str
  sample: /usr/bin/env -i HOME=/home/builder ...
inputs:
  description: The inputs of the step, other ones for every acceptance.
  returned: when O(job) is given and an acceptance is needed
  type: dict
reason:
  description: Why an acceptance ran or would run; empty when the record answered.
  returned: always
  type: str
  sample: there is no acceptance of this release yet
planned_after:
  description: The phase that has to come first; in check mode, where O(prefix) or O(subject) is not there yet.
  returned: in check mode, when something is missing
  type: str
command:
  description: The launcher's command, as the ordinary user would type it after loading the module.
  returned: always
  type: str
  sample: mpiexec -n 2 python3 ranks.pyz
table:
  description: Rank, host and device of each rank as aligned text.
  returned: when there is a record
  type: str
  sample: |-
    rank  local  host  pid   device                                                 cores  numa
    0     0      n1    4711  gpu 0 0000:07:00 2704ec93-0e56-e1be-0f33-ed05520e4775  0-7    0
summary:
  description: The verdict in one sentence.
  returned: when there is a record
  type: str
  sample: "Accepted: 2 ranks on 1 host as tester, through lmod, in 4.2 s."
record:
  description: Path of the record.
  returned: always
  type: str
log:
  description: Path of the last run's output.
  returned: always
  type: str
not_checked:
  description: Sentences about what this acceptance cannot have noticed.
  returned: when there is a record
  type: list
  elements: str
  sample: ["All ranks ran on n1: nothing went from node to node."]
failures:
  description: One sentence for each thing that is wrong.
  returned: when the acceptance failed
  type: list
  elements: str
  sample: ["rank 1 on n1: sum of 1 float32 on cpu: index 0: got 6.0, expected 5.0 (1 of 1 values are wrong)"]
last_lines:
  description: The end of what the job itself printed.
  returned: when the acceptance failed
  type: list
  elements: str
  sample: ["slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED ***"]
acceptance:
  description:
    - The record itself - C(passed), C(failures) (C(check), C(message), C(remedy)), C(not_checked) and C(remarks)
      (sentences about what is no failure and costs speed).
    - What was accepted and how - C(question), C(subject), C(user), C(through) (V(lmod), V(environment-modules),
      V(environment), or empty when it did not come that far), C(module), C(modulefile), C(modulefiles) (its sha256, by
      C(lmod) or C(tcl)), C(launcher) (its words), C(started) (in UTC) and C(seconds).
    - C(ranks) has host, device, versions, files and libraries of each rank, C(transports) by which network NCCL went on
      it. C(checks) has C(status), C(seconds), C(note) and what the backend C(lacks), C(measurements) for each backend
      and operation rows by size, C(latency) each backend and size, C(import_seconds) median and slowest rank of each
      module.
  returned: success, when there is a record
  type: dict
  sample:
    measurements: [{backend: gloo, operation: all_reduce, rows: []}]
    latency: [{backend: gloo, bytes: 8, microseconds: {median: 21.0}}]
    transports: [{rank: 0, host: n1, network: AWS Libfabric, plugin: aws-ofi-nccl 1.6.0, provider: cxi}]
    import_seconds: {torch: {median: 4.1, slowest: {rank: 3, host: n1, seconds: 5.0}}}
failed_step:
  description: What failed, the name of a check or V(user), V(module), V(launcher), V(timeout) and the like.
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
    verdict,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.checks import CHECKS
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.records import Files
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.run import Run
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import module_options
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import program as rank_program
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.plan import problem
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.rule_globs import rule_path_glob

ASKED = (
    "module", "module_system", "module_init", "module_definition", "modulepaths", "environment", "environment_keep",
    "ranks", "python", "imports", "checks", "where_possible",
)
KIND = module_run.Kind("acceptance", verdict.conclude, verdict.describe_record)
WHERE_GIVEN = ("shared", "providers", "measure", "transport", "import_ceiling")


def run(module: AnsibleModule) -> dict:
    """Plan the acceptance, run it where that is needed, and return the result.

    Raises:
        StackError: it did not pass, or could not be tried.
    """
    os.umask(0o022)
    params, check = module.params, module.check_mode
    launcher = local_run.launcher_command(params["launcher"], params["ranks"], params["nodes"])
    trouble = problem(params["measure"])
    if trouble:
        raise StackError("acceptance_" + trouble, "measure", "Correct it, for the site or in the release's file.")
    for rule in params["providers"]:
        rule_path_glob("acceptance_providers", rule["path"], failed_step="libraries")
    given = dict(params, transport={key: words for key, words in params["transport"].items() if words})
    limits = Run(login.find_account(params["user"]), params["become_command"], params["timeout"])
    question = dict(
        {key: params[key] for key in ASKED}, subject=params["subject"], launcher=launcher, user=limits.account.name,
        prefix=params["prefix"] or os.path.join(params["root"], params["release"]),
        **({"nodes": params["nodes"]} if params["nodes"] > 1 else {}),
        **{key: given[key] for key in WHERE_GIVEN if given[key] not in (None, {}, [], 0)})
    files = Files.below(params["root"], params["release"], partition=params["partition"])
    if params["job"]:
        batch_run.check_job(params["job"], limits.timeout)
    result = module_run.plan(
        KIND, params, files, question, verdict.reason_to_run(files.last(), question, params["again"]), check)
    return module_run.carry_out(KIND, params, files, question, limits, program_archive(rank_program), result, check)


def main() -> None:
    """Entry of the module."""
    checks = list(CHECKS)
    run_module(run, {
        **module_options.RELEASE, **module_options.JOB, **module_options.LAUNCHED,
        "prefix": {"type": "path"},
        "shared": {"type": "list", "elements": "str"},
        "providers": {
            "type": "list", "elements": "dict", "default": [],
            "options": {
                "name": {"type": "str", "required": True}, "path": {"type": "str", "required": True},
                "reason": {"type": "str", "default": ""},
            },
        },
        "ranks": {"type": "int", "default": 2},
        "nodes": {"type": "int", "default": 1},
        "imports": {"type": "list", "elements": "str", "default": ["torch", "horovod.torch"]},
        "checks": {
            "type": "list", "elements": "str", "choices": checks,
            "default": ["imports", "devices", "horovod", "torch_gloo"],
        },
        "where_possible": {
            "type": "list", "elements": "str", "choices": checks,
            "default": ["torch_nccl", "torch_mpi", "cuda_graph_replay"],
        },
        "measure": {"type": "dict", "default": {}},
        "transport": {
            "type": "dict", "default": {},
            "options": {
                key: {"type": "list", "elements": "str", "default": []}
                for key in ("networks", "providers", "forbidden")
            },
        },
        "import_ceiling": {"type": "float", "default": 0},
        "timeout": {"type": "int", "default": 600},
        "again": {"type": "bool", "default": False},
    })


if __name__ == "__main__":
    main()

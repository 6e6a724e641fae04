#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Runs a build step once for its inputs; the work is in module_utils, by noun, begun in builds.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: build_step
short_description: Run a build step exactly once for its inputs, detached, with progress
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes
description:
  - Makes sure that a shell script has succeeded for exactly these inputs. When it has, nothing is done.
  - Otherwise the script runs detached, under a supervisor that keeps the time limits, the log and the record of
    success. A lost connection, Ctrl-C or a killed controller does not stop it; the same task again attaches to it, and
    resumes it after a failure, a kill or a reboot.
  - The script runs in bash with C(set -euo pipefail) and umask 022, and its exit code is its own. The step's directory
    holds it as a plain C(script.sh) that can be run by hand.
options:
  name:
    description: Name of the step, and of its directory - lower-case letters, digits, dot, dash and underscore.
    type: str
    required: true
  state:
    description:
      - V(present) makes sure that the step has succeeded.
      - V(absent) removes its stamp, so that it runs again, whatever O(cache) has; everything else stays. What needs it
        runs again as well where it has another result then.
      - V(cancelled) ends its build, or takes its job out of the queue, and waits for that. Everything stays, and
        V(present) resumes it. Nothing else cancels a build.
    type: str
    choices: [present, absent, cancelled]
    default: present
  context:
    description:
      - The release that the step belongs to, as the role P(hpcml.torchstack.release#role) hands it on in
        C(release_context). It says what the task does not say by itself; O(state_dir) is C(steps) below the release's
        records.
      - A step that compiles, or imports what was compiled, gets O(modules), O(module_init), O(environment) and O(unset)
        from the toolchain, and O(launcher) and O(launcher_options) from the site's jobs, by its O(name). What the task
        says wins, key by key; its O(environment) and O(unset) are added. With O(launcher), the site's jobs are not
        used. Other steps run on the machine itself.
    type: dict
  compilers:
    description: Variables that name compilers, such as C(CC). Those of the toolchain of O(context) replace them, or are
      added. They win over O(environment), and become part of it.
    type: dict
  state_dir:
    description: Directory of all steps of a release; required, unless O(context) says it. In a directory of its name,
      the step keeps C(script.sh), C(inputs.json), C(log), C(exit), C(job.json) and, after success only, C(stamp.json).
    type: path
  script:
    description:
      - The commands, as shell text. Required with O(state=present).
      - Their environment is what a list allows of the caller's, then what the modules change, without O(unset), with
        O(environment). Start-up files of the shell are not read. Allowed are the account and its session (C(HOME),
        C(PATH), C(LANG), C(TMPDIR) and their like), the ways to servers, the module system's variables and Cray's, and
        what a batch system gives its job. The log names what was kept back, such as C(PYTHONPATH), C(CC) and
        C(LD_LIBRARY_PATH). No secret is among it, see O(secrets).
    type: str
  chdir:
    description: Directory the commands start in. The default is the step's own directory.
    type: path
  setup:
    description: Shell text, or the absolute path of a script, that is sourced before O(modules) are loaded and after
      the purge, such as C(. /opt/spack/share/spack/setup-env.sh; spack load gcc@13). Its last command has to succeed.
      Part of the digest where it is given.
    type: str
  modules:
    description: Environment modules to load after a purge, or behind a dash to unload where they are loaded. Without
      these and O(module_init) the module system is not touched. What is sticky survives the purge, and is unloaded with
      C(--force) where it is named.
    type: list
    elements: str
    default: []
  module_init:
    description: What defines the C(module) command in a plain shell - an absolute path of a file that is sourced, or
      shell text, such as C(. /usr/share/lmod/lmod/init/bash; module use /opt/modulefiles). By default the caller's own
      C(module) function, where it is exported.
    type: str
  module_system:
    description: Whose C(module) has to be. A step with O(modules) fails in one sentence where it is the other's. Not
      part of the digest.
    type: str
    choices: [lmod, environment-modules]
  environment:
    description: Environment variables for the commands, literally - texts and whole numbers, as YAML would have changed
      C(ON) and C(2.10) already. Everybody may read them there; what looks like a secret is refused, see O(secrets).
    type: dict
    default: {}
  unset:
    description: Environment variables that the commands must not see, those of modules included.
    type: list
    elements: str
    default: []
  secrets:
    description:
      - Names of variables with secrets, such as V(HF_TOKEN), that the commands need. Values come from the environment
        of the task, are written nowhere, are no part of the digest, and are masked in the log. No other variable whose
        name promises a secret is handed on.
      - Not with O(launcher=pbs), where everybody could read them of the job.
    type: list
    elements: str
    default: []
  private_logs:
    description: Keep the records of a step with O(secrets), its log among them, to their owner. No part of the digest;
      a step that is done already stays as it is.
    type: bool
    default: false
  inputs:
    description: Anything else that the result depends on, such as commits and checksums; it is digested, not used. In
      check mode, C({"planned_after":"<step>"}) anywhere inside stands for a value that is not known yet.
    type: raw
  needs:
    description:
      - Names of steps below the same O(state_dir) that have to be complete. What they have made joins this step's
        digest - the content of what they produce (O(produces)), what they stand for (O(judged_by)), or else their
        inputs.
      - A step that produces nothing is also judged by the runs of each foundation below it, see O(foundation).
    type: list
    elements: str
    default: []
  judged_by:
    description: Those of O(needs) whose results are this step's own, as it does nothing but install what they produced.
      Steps that need it run again when that has changed, and only then.
    type: list
    elements: str
    default: []
  foundation:
    description: Whether each run takes away what others have installed there, as one that empties a prefix does.
      Whatever is installed on it is installed again then; what is produced is not.
    type: bool
    default: false
  creates:
    description: Paths, from O(chdir) on, that have to exist after the script, or else the step has failed.
    type: list
    elements: path
    default: []
  produces:
    description: Files and directories that are all that the script makes, such as a wheel. They have to exist
      afterwards, and their content is what steps that need this one are judged by. They have to be the same in any
      release with the same inputs, but for where they lie; see O(cache).
    type: list
    elements: path
    default: []
  launcher:
    description: Where the step runs - V(local) is the machine itself, the others submit a job. The nodes have to see
      O(state_dir) and O(chdir) at the same path.
    type: str
    choices: [local, slurm, pbs, flux]
    default: local
  launcher_options:
    description: What to ask the batch system for. It is no part of the digest. What is not known or of another type is
      refused.
    type: dict
    suboptions:
      account:
        description: The account or project that is charged.
        type: raw
      partition:
        description: Partition of Slurm, where others have a queue.
        type: raw
      queue:
        description: Queue of PBS or Flux; with V(slurm) another name of O(launcher_options.partition).
        type: raw
      qos:
        description: Quality of service of Slurm.
        type: raw
      walltime:
        description: C(HH:MM:SS) or C(D-HH:MM:SS), in quotes.
        type: raw
      nodes:
        description: How many nodes.
        type: raw
      cores:
        description: Cores per node.
        type: raw
      memory:
        description: Memory per node with its unit, such as V(240G). Flux knows none; whole nodes have all of theirs.
        type: raw
      memory_per_gpu:
        description: Memory for each GPU, in the place of memory per node; Slurm.
        type: raw
      gpus:
        description: GPUs per node.
        type: raw
      gpu_type:
        description: What the batch system calls these GPUs, such as V(l40s); Slurm.
        type: raw
      constraint:
        description: Features that the nodes have to have, such as V(a100&hbm80g); Slurm, and properties of Flux.
        type: raw
      reservation:
        description: Reservation of Slurm. That of PBS is a queue.
        type: raw
      licenses:
        description: Licences of Slurm.
        type: raw
      exclusive:
        description: V(true) for whole nodes; with Slurm also V(user), V(mcs) or V(topo).
        type: raw
      hint:
        description: How the job uses cores, such as V(nomultithread); Slurm.
        type: raw
      tasks:
        description: Processes per node that a launcher within the job may start, which share C(cores). Else one.
        type: raw
      directives:
        description: List of further directives, each as it stands after C(#SBATCH), C(#PBS) or C(#flux:).
        type: raw
      requeue:
        description: How often the job may be put back or submitted again after an end that
          O(launcher_options.requeue_on) names.
        type: raw
      requeue_on:
        description: List of V(preempted), V(node_failed) and V(time_limit); by default the first two.
        type: raw
      tmpdir:
        description: Directory on the nodes, of at most 60 characters, in which the job makes one for its temporary
          files, C(TMPDIR), and removes it at its end. The default is what C(TMPDIR) names there.
        type: raw
      python:
        description: A Python of at least 3.8 on the nodes, for the supervisor. The default is the target's.
        type: raw
      bin:
        description: Directory of the batch system's commands, where they are not on PATH.
        type: raw
  network:
    description:
      - Whether the script may use the network. V(false), which is part of the digest, refuses at once what programs ask
        for that honour proxy variables. The failure names host, address and step, C(refused.jsonl) in the step's
        directory has all of it, and a step that succeeds all the same gives a warning.
      - That is no wall. A program that opens its own connections is not held up on a machine that has a network.
    type: bool
    default: true
  timeout:
    description: Seconds the script may take as a whole; V(0) for no limit.
    type: float
    default: 0
  no_output_timeout:
    description: Seconds the script may be silent; V(0) for no limit.
    type: float
    default: 0
  hang_signal:
    description:
      - Signal by which silent processes are asked for their stack before they are stopped. Only processes with a
        handler for it get it, such as Python programs that called C(faulthandler.register).
      - Other Python processes are asked by C(py-spy), where it is on the caller's PATH, or print their stack by
        themselves, unless they are isolated, as O(no_output_timeout) sets C(PYTHONFAULTHANDLER). V(none) asks C(py-spy)
        only.
    type: str
    choices: [USR1, USR2, QUIT, none]
    default: USR1
  on_hang:
    description:
      - Commands of the site that run where the step runs, after the stacks are in the log, when O(no_output_timeout)
        has passed - for at most a minute each, and printing into its log. That they fail changes nothing.
      - In their words, C({step}), C({host}), C({log}), C({pid}) and C({job_id}) stand for the step, its host, its log,
        its supervisor's process and its batch job.
    type: dict
    suboptions:
      notify:
        description: A command that tells somebody, as a list of words.
        type: list
        elements: str
      kill:
        description: A command that ends what no signal of the supervisor reaches, as a list of words.
        type: list
        elements: str
  grace:
    description: Seconds between SIGTERM and SIGKILL when the step is stopped.
    type: float
    default: 10
  cache:
    description:
      - Directory that keeps what steps produced, by digest. When it holds all of O(produces), each file with its
        recorded sha256, they are copied instead of running the script. What names the directory of its release, where
        that matters, is not kept; the log says which file that is.
      - In C(.torchstack/builds) below the root of the releases, an entry is removed when no release has it and nobody
        has used it for 30 days. Another directory is never cleaned.
    type: path
  index:
    description: Whether the script fetches packages by pip, so that the places where it looks are part of the digest.
    type: bool
    default: false
  trees:
    description: Source trees whose patch journals must be closed before the script may start.
    type: list
    elements: dict
    default: []
    suboptions:
      src:
        description: The tree.
        type: path
        required: true
      state_dir:
        description: Where M(hpcml.torchstack.patch_series) keeps the tree's records.
        type: path
        required: true
  wait:
    description: Follow the step until it ends. V(false) starts it, or looks at it where it runs already, and returns at
      once with RV(state=running) and RV(progress).
    type: bool
    default: true
  planned:
    description: Internal, and refused in a task. The action plugin says by it, in check mode, which steps this play
      would run before this one, with what is known of their results.
    type: dict
    default: {}
  follow:
    description: Internal, and refused in a task. The action plugin asks by it for the job with this identifier.
    type: str
  unchanged:
    description: Internal, and refused in a task. Seconds since the action plugin has seen a sign of life of that job.
    type: float
attributes:
  check_mode:
    description: Reports whether the step would run, and its digest where it can be known. Writes nothing.
  diff_mode:
    description: Shows what changed in inputs and script since the last run.
notes:
  - The digest covers script, chdir, setup, modules, module_init, environment, unset, inputs, creates, produces and
    the results of the needed steps, but neither the step's name nor limits, launcher, cache and trees. Where
    O(state_dir) ends in C(.torchstack/steps), it knows neither the path of the release above that nor that of the
    root's own C(.torchstack), so that another release can have the same.
  - From another host a build is followed by its heartbeat. One that is silent for more than five minutes is never taken
    for dead; the error says what to do.
  - A job has a name of its own, which is written down before it is submitted. After a lost connection or a killed
    controller the next run asks the scheduler for that name, and attaches to the job or resumes the step. When the
    scheduler does not answer, nothing is submitted.
  - The batch script, C(batch.sh) in the step's directory, relies on no start-up file. With Slurm it has the environment
    of the caller, with PBS nothing of that, so that steps with O(modules) need O(module_init). When a batch system ends
    a job, the script has at most eight seconds for its end, whatever O(grace) says.
  - Processes that a script leaves running are stopped when it ends.
  - When the supervisor is killed, the script ends with its next output; the next run stops what is left and runs it
    again.
  - A script that ended well counts once its stamp is written. When records cannot be written, the supervisor tries
    again for a minute; then the step has failed, and the error says why.
seealso:
  - module: hpcml.torchstack.patch_series
  - module: hpcml.torchstack.compute_preflight
  - plugin: hpcml.torchstack.step_job
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Build PyTorch in a job
  hpcml.torchstack.build_step:
    name: pytorch
    state_dir: /soft/torch/2024-10/.torchstack/steps
    chdir: /soft/torch/2024-10/src/pytorch
    module_init: /usr/share/lmod/lmod/init/bash
    modules: [gcc/12.2.0, cudatoolkit/12.4]
    environment: {USE_SYSTEM_NCCL: 1, TORCH_CUDA_ARCH_LIST: "8.0"}
    inputs: {commit: ee1b6804381c57161c477caa380a840a84167676}
    needs: [nccl]
    script: python3 setup.py bdist_wheel
    produces: [dist/torch-2.4.1-cp311-cp311-linux_x86_64.whl]
    no_output_timeout: 3600
    cache: /soft/torch/.torchstack/builds
    launcher: slurm
    launcher_options: {account: proj1, partition: gpu, walltime: "04:00:00", cores: 64, requeue: 2}

- name: Build Horovod in the toolchain of its release, where the site builds it
  hpcml.torchstack.build_step:
    name: horovod
    context: "{{ release_context }}"
    compilers: "{{ release_context.compilers }}"
    script: python3 setup.py bdist_wheel
    environment: {HOROVOD_WITH_PYTORCH: "1"}
    needs: [pytorch-install]
    produces: [dist/horovod-0.28.1-cp311-cp311-linux_x86_64.whl]
    chdir: "{{ release_context.prefix }}/src/horovod"

- name: Stop building PyTorch
  hpcml.torchstack.build_step:
    name: pytorch
    state_dir: /soft/torch/2024-10/.torchstack/steps
    state: cancelled
"""

RETURN = r"""
state:
  description: V(planned), V(unchanged), V(done), V(cached), V(absent), V(cancelled), or V(running) with O(wait=false).
  returned: success
  type: str
step:
  description: Name of the step.
  returned: always
  type: str
digest:
  description: sha256 of everything that the result depends on; null when it is not known yet.
  returned: when O(state=present)
  type: str
planned_after:
  description: The step that has to run before the digest can be known.
  returned: in check mode, when the digest is not known
  type: str
attached:
  description: Whether a build that was running already has been followed.
  returned: when O(state=present)
  type: bool
resumed:
  description: Why the step ran although there had been an attempt; null for a first one.
  returned: when O(state=present)
  type: str
  sample: the machine rebooted while pytorch was running (host login01, pid 4711, started 2026-11-20T02:12:09Z); resumed
from_cache:
  description: Whether what it produces was taken over instead of running it.
  returned: when the step has run
  type: bool
taken_over:
  description: Of whom it was taken over, or in check mode would be - the C(step), C(release) (empty where that is not
    known) and C(host) that produced it, when that had C(finished), in UTC, and in how many C(seconds); null where it
    was not.
  returned: when O(state=present)
  type: dict
result:
  description: What steps that need this one are judged by; null when that is not known before it runs.
  returned: when O(state=present), and it is done or planned
  type: str
ground:
  description: The runs of foundations that it was made on; null for what O(produces), and when it is not known yet.
  returned: when O(state=present), and it is done or planned
  type: str
seconds:
  description: How long the step took.
  returned: when the step has run
  type: float
started:
  description: When the attempt began, in UTC.
  returned: when the step has run
  type: str
log:
  description: The log of all attempts.
  returned: success
  type: str
script:
  description: The script that can be run by hand.
  returned: success
  type: str
progress:
  description: The last progress that was seen in the log.
  returned: when the step ran
  type: dict
  sample: {done: 1234, total: 2210, percent: 55, text: "pytorch  [1234/2210]  55 %  12 min"}
reason:
  description:
    - V(exit), V(signal), V(timeout), V(no_output_timeout), V(stopped), V(creates), V(needs), V(killed), V(rebooted) or
      V(error).
    - For jobs of a batch system also V(rejected) (not accepted), V(never_started) (accepted, and given up before it
      could start), V(time_limit), V(preempted), V(node_failed), V(cancelled), V(out_of_memory), V(boot_failed),
      V(requeued) (put back too often), V(tmpdir) (no place for temporary files) and V(lost) (known to nobody).
    - With V(needs) a needed step was run again during the build, which may hold parts of both then.
  returned: when the script did not succeed
  type: str
job_id:
  description: The batch system's identifier of the job; null while its answer to the submission is missing.
  returned: when a batch system runs the step
  type: str
job_name:
  description: The job's name, which no other submission has.
  returned: when a batch system runs the step
  type: str
node:
  description: Where the step's supervisor runs or ran, or where the scheduler has ended the job; null while it waits.
  returned: when a batch system runs the step
  type: str
queue:
  description:
    - How the job waits, or waited when it was cancelled; null as soon as its supervisor is at work.
    - C(state) is V(pending), V(held), V(requeued) (put back), or V(starting) (it has nodes, and has not reported),
      C(reason) is why, in the scheduler's words, and C(advice) what can be done about it. C(node) is where it is being
      started, C(former) where an earlier start of it may still be, whose end it waits for. What does not apply is
      empty.
    - C(position) is its place among the C(of) jobs that wait in its C(partition), from 1; null where that is not seen.
      C(estimated_start) is in UTC.
  returned: when a batch system runs the step
  type: dict
  sample: {advice: "", estimated_start: "2026-11-20T14:20:00Z", former: "", job_id: "4711", node: "", of: 17,
    partition: gpu, position: 3, reason: Priority, state: pending}
attempt:
  description: How many attempts have been made at the step.
  returned: when the script did not succeed
  type: int
exit_code:
  description: The script's exit code.
  returned: when the script ended by itself
  type: int
missing:
  description: Paths of O(creates) that the script did not create.
  returned: when the script did not succeed
  type: list
  elements: str
errors:
  description: What the log names as the cause, the most telling first. Its lines are in C(msg). Empty where nothing was
    recognised, or where the step did not end by itself.
  returned: when the script did not succeed
  type: list
  elements: dict
  sample: [{kind: cuda_toolkit, line: 62}]
log_tail:
  description: The last lines of this attempt.
  returned: when the script did not succeed, and RV(errors) is empty
  type: list
  elements: str
  sample: ["ninja: build stopped: subcommand failed."]
stacks:
  description: Where the Python processes of a silent step were, by their own word, as far as it fits; the log has all.
  returned: when the script did not succeed
  type: list
  elements: str
notes:
  description: What else went wrong, such as a command of O(on_hang).
  returned: when the script did not succeed
  type: list
  elements: str
refused:
  description: What the script was refused, as it has no network; the first addresses.
  returned: when the script did not succeed
  type: list
  elements: dict
  sample:
    - {command: git-remote-https origin https://git.example.org/gloo.git, host: git.example.org, pid: 4711,
       step: horovod, time: "2026-11-20T02:12:11Z", url: https://git.example.org/gloo.git, way: connect}
retry:
  description: The command that repeats the step by hand.
  returned: when the script did not succeed
  type: str
  sample: bash /soft/torch/2024-10/.torchstack/steps/pytorch/script.sh
failed_step:
  description:
    - V(options), V(needs), V(trees), V(records), V(lock), V(start), V(run), V(creates), V(follow) or V(forget).
    - With a batch system also V(submit) (refused) and V(scheduler) (no answer); with O(state=cancelled) V(cancel).
  returned: on failure
  type: str
"""

import os
from typing import NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.options import KEYS
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.registry import (
    LAUNCHERS,
    LOCAL,
    check_options,
    system_of,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.inputs import (
    describe_inputs,
    need_value,
    pending_input,
    result_of,
    step_digest,
    step_record,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.needs import ground_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Limits, Stamp
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import Request, check_request

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent", "cancelled"], "default": "present"},
    "context": {"type": "dict"},
    "compilers": {"type": "dict"},
    "state_dir": {"type": "path"},
    "script": {"type": "str"},
    "chdir": {"type": "path"},
    "setup": {"type": "str"},
    "modules": {"type": "list", "elements": "str", "default": []},
    "module_init": {"type": "str"},
    "module_system": {"type": "str", "choices": ["lmod", "environment-modules"]},
    "environment": {"type": "dict", "default": {}},
    "unset": {"type": "list", "elements": "str", "default": []},
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "private_logs": {"type": "bool", "default": False},
    "inputs": {"type": "raw"},
    "needs": {"type": "list", "elements": "str", "default": []},
    "judged_by": {"type": "list", "elements": "str", "default": []},
    "foundation": {"type": "bool", "default": False},
    "creates": {"type": "list", "elements": "path", "default": []},
    "produces": {"type": "list", "elements": "path", "default": []},
    "launcher": {"type": "str", "choices": list(LAUNCHERS), "default": "local"},
    "launcher_options": {"type": "dict", "options": {key: {"type": "raw"} for key in KEYS}},
    "network": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 0},
    "no_output_timeout": {"type": "float", "default": 0},
    "hang_signal": {"type": "str", "choices": ["USR1", "USR2", "QUIT", "none"], "default": "USR1"},
    "on_hang": {
        "type": "dict",
        "options": {"notify": {"type": "list", "elements": "str"}, "kill": {"type": "list", "elements": "str"}},
    },
    "grace": {"type": "float", "default": 10},
    "cache": {"type": "path"},
    "index": {"type": "bool", "default": False},
    "trees": {
        "type": "list", "elements": "dict", "default": [],
        "options": {"src": {"type": "path", "required": True}, "state_dir": {"type": "path", "required": True}},
    },
    "wait": {"type": "bool", "default": True},
    "planned": {"type": "dict", "default": {}},
    "follow": {"type": "str"},
    "unchanged": {"type": "float"},
}


class Known(NamedTuple):
    """What is known of a step before it runs."""

    needs: dict[str, str]
    """what it is judged by of each step that it needs"""
    result: str | None
    ground: str | None
    pending: str | None
    """the step that has to run before the rest is known"""


def known_needs(request: Request, params: dict) -> Known:
    """Return what the needed steps have made, or would in this play."""
    results: dict[str, str] = {}
    grounds: dict[str, str] = {}
    for need in request.needs:
        stamp, planned = Stamp.read(step_files(params["state_dir"], need)), params["planned"].get(need)
        result = planned.get("result") if planned else stamp.result if stamp else None
        ground = ground_under(need, params)
        if result is not None:
            results[need] = result
        if ground is not None:
            grounds[need] = ground
    missing = [need for need in request.needs if need not in results]
    # What is produced is of use on any ground.
    unsettled = [need for need in request.needs if need not in grounds]
    pending = pending_input(request.inputs) or next(iter(missing or ([] if request.produces else unsettled)), None)
    needs = {name: need_value(request, made, grounds.get(name, "")) for name, made in results.items()}
    result = None if missing or pending_input(request.inputs) else result_of(request, results)
    return Known(needs, result, None if unsettled else ground_of(list(grounds.values())), pending)


def ground_under(name: str, params: dict) -> str | None:
    """Return what a step was made on, or would be; None where that is not known yet.

    What produces has none of its own: it passes on what is below it now.
    """
    if name in params["planned"]:
        return params["planned"][name].get("ground")
    stamp = Stamp.read(step_files(params["state_dir"], name))
    if stamp is None or stamp.ground is not None:
        return stamp and stamp.ground
    below = [ground_under(need, params) for need in stamp.needs]
    return ground_of([ground or "" for ground in below]) if None not in below else None


def difference(request: Request, digest: str, needs: dict[str, str]) -> dict:
    """Show what changed in inputs and script since the last run."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.script import render_script

    script = None
    if os.path.exists(request.files.script):
        with open(request.files.script, encoding="utf-8", errors="replace") as stream:
            script = stream.read()
    return text_diff(
        "step %s" % request.files.name, describe_inputs(read_record(request.files.inputs), script),
        describe_inputs(step_record(request, digest, needs), render_script(request, digest, needs)))


def refuse_unready(request: Request, trees: list[dict], launcher: str) -> None:
    """Refuse what would make the script build from half a source, or fail before its first command.

    Raises:
        StackError: a patch journal is open, or there is no working directory, or a secret that the script needs.
    """
    if request.secrets and launcher != LOCAL and system_of(launcher).environment_is_public:
        raise StackError(
            "Step %s has secrets, and everybody may read the environment of a %s job."
            % (request.files.name, system_of(launcher).title),
            "options", "Let its program read a file that only this account can read.")
    absent = [name for name in request.secrets if not os.environ.get(name)]
    if absent:
        raise StackError(
            "Step %s needs %s, which the environment of its task does not have."
            % (request.files.name, " and ".join(absent)),
            "options", "Set it in the environment of the task.")
    if trees:
        from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.journal import has_open_journal

        for tree in trees:
            if has_open_journal(tree["src"], tree["state_dir"]):
                raise StackError(
                    "The patching of %s was interrupted." % tree["src"], "trees",
                    "Run patch_series on it again: it completes or undoes what was begun.", tree["src"])
    if request.chdir is not None and not os.path.isdir(request.chdir):
        raise StackError(
            "The directory %s of step %s does not exist." % (request.chdir, request.files.name), "start",
            "Correct chdir, or extract the source first.", request.chdir)


def present(params: dict, check: bool, diff: bool) -> dict:
    """Return the result of ``state: present``."""
    request = with_index(check_request(params), params)
    launcher_options = check_options(params["launcher"], params["launcher_options"])
    known = known_needs(request, params)
    if known.pending and not check:
        raise StackError(
            "Step %s needs step %s, which is not complete." % (request.files.name, known.pending), "needs",
            "Run that step first.", request.files.directory)
    digest = None if known.pending else step_digest(request, known.needs)
    stamp = Stamp.read(request.files)
    files = {"step": request.files.name, "log": request.files.log, "script": request.files.script}
    base: dict = {"attached": False, "resumed": None, "digest": digest, "taken_over": None}
    if stamp and digest and stamp.digest == digest and all(map(os.path.lexists, request.created_paths)):
        return dict(base, **from_stamp(stamp), changed=False, state="unchanged", **files)
    if diff:
        base["diff"] = difference(request, digest or "known after step %s" % known.pending, known.needs)
    if check or digest is None:
        return dict(base, **would_be(request, params, known, digest), changed=True, state="planned", **files)
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.attempt import Order
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.hang_actions import check_actions
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.start import begin

    refuse_unready(request, params["trees"], params["launcher"])
    keys = ("timeout", "no_output_timeout", "grace", "hang_signal")
    limits = Limits(**{key: params[key] for key in keys}, on_hang=check_actions(params["on_hang"]))
    order = Order(
        digest, known.needs, known.result, known.ground, limits, params["cache"], params["launcher"], launcher_options)
    return dict(base, **begin(request, order))


def with_index(request: Request, params: dict) -> Request:
    """Return the step with where pip looks for packages, where it fetches some."""
    if not params["index"]:
        return request
    from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.pip_config import places_digest

    return request._replace(places=places_digest(dict(os.environ, **request.environment)))


def from_stamp(stamp: Stamp) -> dict:
    """Return what a stamp says of a step that is done."""
    keys = ("from_cache", "ground", "result", "seconds", "started", "taken_over")
    return {key: getattr(stamp, key) for key in keys}


def would_be(request: Request, params: dict, known: Known, digest: str | None) -> dict:
    """Say in check mode of a step that would run: what its result would be, and whether it would be taken over."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.build_cache import origin_of

    result, ground, origin = known.result, known.ground, None
    if request.produces and digest and params["cache"] and not os.path.exists(request.files.again):
        origin = origin_of(params["cache"], digest)
        result = origin.pop("result") if origin else None
    if request.foundation:
        ground = None
    return {"planned_after": known.pending, "taken_over": origin, "result": result, "ground": ground}


def choose(params: dict, check: bool, diff: bool) -> dict:
    """Do what the options ask for, and return the result."""
    if params["follow"] is None and params["state"] == "present":
        return present(params, check, diff)
    files = step_files(params["state_dir"], params["name"])
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.cancel import cancel, forget
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query

    if params["follow"] is not None:
        return query(files, params["follow"], params["unchanged"])
    return (cancel if params["state"] == "cancelled" else forget)(files, check)


def run(module: AnsibleModule) -> dict:
    """Bring the step to its state, and show its warnings."""
    params, name = module.params, module.params["name"]
    if params["state_dir"] is None:
        raise StackError("Step %s has no state_dir." % name, "options", "Give it, or context with a release.")
    if (params["state"], params["script"], params["follow"]) == ("present", None, None):
        raise StackError("Step %s has no script." % name, "options", "Give its commands in script.")
    try:
        result = choose(params, module.check_mode, module._diff)
    except OSError as error:
        raise StackError(
            "Step %s: %s: %s." % (name, error.filename or name, error.strerror), "records",
            "Check that this account may write there and that there is space.") from error
    for warning in result.pop("warnings", []):
        module.warn(warning)
    return result


def describe_failure(module: AnsibleModule, failed: dict) -> dict:
    """Shorten the message of a step's failure, which its log has in full."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.results import in_short

    return dict(in_short(failed), step=module.params["name"])


def main() -> None:
    """Entry point."""
    run_module(run, ARGUMENTS, with_path=False, describe=describe_failure)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Looks at a machine before a rollout; the work is in module_utils/site_facts.py and preflight.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_preflight
short_description: Look at a machine before a rollout
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes.reading
description:
  - Looks in one go at everything that a rollout needs of a machine, and returns facts and findings. Fails when a
    finding is an error, with the sentences of all errors. Warnings are shown and do not fail.
  - On a machine that is not the site it says only that.
notes:
  - Commands, compilers and MPI are looked for in the environment of the task. Set the keyword C(environment) to what
    the site's modules set, to look at what the steps will see.
  - Compilers are called as they are given and never resolved, as those of Cray systems look at the name they were
    called by.
options:
  root:
    description: The directory below which releases are installed, or the nearest one above it that exists. This account
      must own it, with everything in it that records earlier rollouts. Its name must be absolute, without spaces,
      quotes and other characters that break compiler wrappers and the first lines of scripts.
    type: str
    required: true
  module_system:
    description: The module system that the site's users have, which is looked for. V(auto) takes the one that is there.
    type: str
    choices: [auto, lmod, environment-modules]
    default: auto
  site:
    description: The site's name, for the sentences.
    type: str
    default: ""
  expect:
    description: What tells the site from other machines.
    type: dict
    default: {}
    suboptions:
      hostname_globs:
        description: Patterns, one of which the host name matches, with or without its domain.
        type: list
        elements: str
        default: []
      paths:
        description: Paths that all exist.
        type: list
        elements: str
        default: []
      machine:
        description: What the nodes that releases are for call themselves (C(uname -m)), such as V(aarch64). Another
          machine is refused. Empty for any.
        type: str
        default: ""
      rehearsal:
        description: The command that plays the site on any machine, for the sentence.
        type: str
        default: ""
  only_site:
    description: Whether to look at O(expect) alone, before anything is asked of the site's modules.
    type: bool
    default: false
  only_root:
    description: Whether to look at O(expect), the account, and name and owner of O(root) alone, and write nothing,
      before records of a release are looked for.
    type: bool
    default: false
  release_done:
    description: Whether the release is built already, so that space, latency and compilers are not tried out.
    type: bool
    default: false
  release:
    description: Name of the release's directory below the root. What it holds already, from a rollout that was
      interrupted, is taken off what is needed; a tenth of that is always needed. Empty where nothing can be there.
    type: str
    default: ""
  required_bytes:
    description: Bytes that the release needs as a whole.
    type: int
    default: 0
  required_inodes:
    description: Files and directories that the release needs as a whole.
    type: int
    default: 0
  reserve:
    description: Whether to reserve what is needed for a moment, which shows a quota. Not in check mode.
    type: bool
    default: true
  shebang_reserve:
    description: Characters of the first line of an installed script beside the root. Above 127 in all, a warning is
      given.
    type: int
    default: 60
  latency:
    description: How fast the file system is with small files. Not in check mode.
    type: dict
    default: {}
    suboptions:
      files:
        description: Files to create, look at and remove; 0 for none.
        type: int
        default: 50
      warn_ms:
        description: Milliseconds for one file from which a warning is given; 0 only measures.
        type: float
        default: 0
  python:
    description: The Python that the release is built on, as a path or a name, not inside a virtual environment. Empty
      for the interpreter that Ansible uses on the target, or its base where that one is inside a virtual environment.
    type: str
    default: ""
  python_minimum:
    description: The oldest version of it that will do.
    type: str
    default: "3.8"
  module_python_minimum:
    description: The oldest version that will do of the interpreter that Ansible uses on the target, if that is another.
    type: str
    default: "3.8"
  python_venv:
    description: Whether that Python needs C(venv) and C(ensurepip).
    type: bool
    default: true
  python_headers:
    description: Whether that Python needs its header files.
    type: bool
    default: true
  compilers:
    description: Compilers to find and to try on a small program in Ansible's temporary directory.
    type: list
    elements: dict
    default: [{name: CC, language: c}, {name: CXX, language: c++}]
    suboptions:
      name:
        description: The variable that builds take the compiler from, such as C(CXX).
        type: str
        required: true
      language:
        description: Its language.
        type: str
        choices: [c, c++]
        required: true
      command:
        description: The command with its words; empty for the value of the variable in the environment, or a search.
        type: str
        default: ""
      candidates:
        description: Commands to search for; empty for C(cc) and C(gcc), or C(c++) and C(g++).
        type: list
        elements: str
        default: []
      standard:
        description: The language standard; empty for C++17, and for the compiler's own in C.
        type: str
        default: ""
      cross:
        description: Whether it compiles for other machines than this one, so that its program is not run.
        type: bool
        default: false
  required_commands:
    description: Commands that must be on PATH.
    type: list
    elements: str
    default: []
  package_index:
    description: A package to ask pip's index for, with pip's own configuration, so that an index that cannot be reached
      is known before anything is built. Empty does not ask, and neither does O(release_done).
    type: str
    default: ""
  mpi:
    description: The MPI that the release is built with - the one that is named, else the C(mpicc) on PATH, else the one
      that comes as a Python wheel. Without this option none is looked for.
    type: dict
    suboptions:
      prefix:
        description: Its installation.
        type: str
        default: ""
      cc:
        description: Its C wrapper, where that is not C(mpicc).
        type: str
        default: ""
      cxx:
        description: Its C++ wrapper, where that is not beside the C wrapper.
        type: str
        default: ""
      launcher:
        description: Its launcher, where that is neither C(mpiexec) nor C(mpirun).
        type: str
        default: ""
      allow_path:
        description: Whether the one on PATH may be taken.
        type: bool
        default: true
      wheel:
        description: Whether the wheel may be taken.
        type: bool
        default: true
      start:
        description: Whether the launcher is to start a process on this machine, as the acceptance will.
        type: bool
        default: false
  timeout:
    description: Seconds for each command that is run.
    type: float
    default: 10
attributes:
  check_mode:
    description: Writes nothing outside Ansible's temporary directory, so that quota and latency stay unknown.
  idempotent:
    description: What it writes to try the file system out is removed at once.
"""

EXAMPLES = r"""
- name: Look at the machine before the rollout
  hpcml.torchstack.site_preflight:
    site: mysite
    root: /soft/stacks
    expect:
      hostname_globs: ["login-*", "node[0-9]*"]
      paths: [/soft]
      rehearsal: ansible-playbook -i inventories/rehearsal/mysite playbooks/mysite.yml
    required_bytes: "{{ '60 GB' | human_to_bytes }}"
    required_inodes: 400000
    latency: {warn_ms: 20}
    python: python3.11
    compilers:
      - {name: CC, language: c, command: gcc-12}
      - {name: CXX, language: c++, command: g++-12}
    required_commands: [git, make]
    mpi: {cc: cc, cxx: CC}
  environment: "{{ site_environment.set }}"
"""

RETURN = r"""
findings:
  description: Everything that was looked at, in that order. C(check), C(ok), C(severity) (V(error), V(warning) or
    V(note)), C(message) (what is so) and C(remedy) (what to do).
  returned: always
  type: list
  elements: dict
  sample:
    - {check: root.writable, ok: false, severity: error,
       message: "/soft/stacks cannot be created, because stacks may not write in /soft.",
       remedy: Run this as the account that owns it.}
python:
  description: The Python that the release is built on. There are also C(base_executable), C(prefix), C(base_prefix),
    C(in_venv), C(implementation), C(include_dir), C(headers), C(venv), C(ensurepip), C(externally_managed) (the marker
    of PEP 668), C(command) (as given) and C(problem) (why it did not answer).
  returned: on the site
  type: dict
  sample: {executable: /usr/bin/python3.11, version: 3.11.2, minor: "3.11", tag: cp311, abi_tag: cp311,
    soabi: cpython-311-x86_64-linux-gnu, platform: linux_x86_64}
compilers:
  description: The command of each compiler, as it is typed; empty where none was found.
  returned: on the site
  type: dict
  sample: {CC: cc, CXX: c++}
mpi:
  description: The MPI, if one was asked for. C(provider) is V(named), V(path) or V(wheel). There are also
    C(include_dirs), C(library_dirs), C(cxx_library_dirs), C(launcher_vendor), C(launcher_version), C(header),
    C(complaint) and C(looked_for).
  returned: on the site
  type: dict
  sample: {provider: path, vendor: MPICH, version: 4.3.2, prefix: /opt/mpich, bin: /opt/mpich/bin,
    cc: /opt/mpich/bin/mpicc, cxx: /opt/mpich/bin/mpicxx, launcher: /opt/mpich/bin/mpiexec}
facts:
  description: What else was found. C(host), C(machine) and C(missing_paths) tell the site from others, C(account) has
    C(uid), C(user) and C(umask). On the site there are also C(root), C(compilers) (in detail), C(commands) (paths),
    C(module_python) and C(module_system).
  returned: always
  type: dict
  sample:
    account: {uid: 1001, user: stacks, umask: "0022"}
    host: login-01
    machine: x86_64
    missing_paths: []
    module_system: {kind: lmod, version: 8.7.60, command: /usr/share/lmod/lmod/libexec/lmod, problem: ""}
seconds:
  description: How long it took.
  returned: always
  type: float
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import Finding, conclude, failure
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.site_system import OPTION
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import (
    machine_checks,
    machine_facts,
    root_checks,
)

TEXT = {"type": "str", "default": ""}
TEXTS = {"type": "list", "elements": "str", "default": []}
YES = {"type": "bool", "default": True}
NO = {"type": "bool", "default": False}
COMPILER = {
    "name": {"type": "str", "required": True}, "language": {"type": "str", "choices": ["c", "c++"], "required": True},
    "command": TEXT, "candidates": TEXTS, "standard": TEXT, "cross": NO,
}
SPEC = {
    "root": {"type": "str", "required": True},
    "site": TEXT,
    "expect": {
        "type": "dict", "default": {},
        "options": {"hostname_globs": TEXTS, "paths": TEXTS, "machine": TEXT, "rehearsal": TEXT},
    },
    "only_site": NO,
    "only_root": NO,
    "release_done": NO,
    "release": TEXT,
    "required_bytes": {"type": "int", "default": 0},
    "required_inodes": {"type": "int", "default": 0},
    "reserve": YES,
    "shebang_reserve": {"type": "int", "default": 60},
    "latency": {
        "type": "dict", "default": {},
        "options": {"files": {"type": "int", "default": 50}, "warn_ms": {"type": "float", "default": 0}},
    },
    "python": TEXT,
    "python_minimum": {"type": "str", "default": "3.8"},
    "module_python_minimum": {"type": "str", "default": "3.8"},
    "python_venv": YES,
    "python_headers": YES,
    "compilers": {
        "type": "list", "elements": "dict", "options": COMPILER,
        "default": [{"name": "CC", "language": "c"}, {"name": "CXX", "language": "c++"}],
    },
    "required_commands": TEXTS,
    "package_index": TEXT,
    "mpi": {
        "type": "dict", "options": {
            "prefix": TEXT, "cc": TEXT, "cxx": TEXT, "launcher": TEXT, "allow_path": YES, "wheel": YES, "start": NO,
        },
    },
    "timeout": {"type": "float", "default": 10},
    **OPTION,
}


def examine(wanted: dict, directory: str, write: bool) -> tuple[list[Finding], dict]:
    """Gather the facts and judge them; ``directory`` is temporary, ``write`` allows probe files below the root."""
    facts: dict = dict(machine_facts.identity(wanted["expect"]), account=machine_facts.account())
    findings = machine_checks.judge_site(facts, wanted["expect"], wanted["site"])
    if wanted["only_site"] or failure(findings):
        return findings, {"facts": facts}
    uid, user = facts["account"]["uid"], facts["account"]["user"]
    findings += machine_checks.judge_account(uid, user, facts["account"]["umask"])
    findings += root_checks.judge_path(wanted["root"], wanted["shebang_reserve"])
    if wanted["only_root"]:
        if not failure(findings):
            facts["root"] = machine_facts.root(dict(wanted, release_done=True), write=False)
            findings += root_checks.judge_root(facts["root"], uid, user, dict(wanted, release_done=True))
        return findings, {"facts": facts}
    facts.update(machine_facts.gather(wanted, directory, write, not failure(findings)))
    if facts["root"]:
        findings += root_checks.judge_root(facts["root"], uid, user, wanted)
    findings += machine_checks.judge_python(facts["python"], facts["module_python"], wanted)
    findings += machine_checks.judge_compilers(facts["compilers"], wanted["compilers"])
    findings += machine_checks.judge_commands(facts["commands"])
    if facts["mpi"]:
        findings += machine_checks.judge_mpi(facts["mpi"])
    if facts["package_index"]:
        findings += machine_checks.judge_index(facts["package_index"])
    findings += machine_checks.judge_modules(facts["module_system"])
    commands = {name: compiler["command"] for name, compiler in facts["compilers"].items()}
    return findings, {"python": facts.pop("python"), "mpi": facts.pop("mpi"), "compilers": commands, "facts": facts}


def run(module: AnsibleModule) -> dict:
    """Check this machine, and return the findings with how long that took."""
    begin = time.monotonic()
    findings: list[Finding] = []
    result: dict = {"facts": {}}
    trouble = ""
    try:
        findings, result = examine(module.params, module.tmpdir, not module.check_mode)
    except OSError as error:
        trouble = "The machine could not be looked at: %s. Look at that path by hand." % error
    seconds = round(time.monotonic() - begin, 3)
    return conclude(module, findings, "preflight", dict(result, seconds=seconds), trouble=trouble)


def main() -> None:
    """Entry point."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()

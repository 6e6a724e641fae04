#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Make a directory hold all that a release fetches."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_mirror
version_added: 0.2.0
short_description: Mirror what a release fetches, or say what a mirror lacks
description:
  - Brings everything that a release file names - wheels and source archives of all its locks, the sources and archives
    of its packages, the packages of its conda base - into one directory, from which the release is then rolled out
    without network. All is chosen as pip would choose it for the interpreter, and has to have the sha256 or the commit
    that the release file names.
  - What is there with the right content is not fetched again. A half file never has the name of a whole one, and the
    next run goes on where it ends. Nothing is fetched before everything is found; what is not is said at once.
  - The files for pip lie flat in C(pip), a directory for C(--find-links); each conda channel is a channel in C(conda);
    git commits, with their submodules, are archives in C(git). C(mirror.json) lists all files with digest and origin
    and is written last.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
requirements:
  - git, for packages from git repositories
  - py-rattler >= 0.28 in the interpreter that runs the module, for the part V(conda)
attributes:
  check_mode:
    description: Fetches nothing, and returns what would be fetched, with sizes where the index tells them.
  diff_mode:
    description: The files that would be or were fetched, one line each.
options:
  path:
    description: The directory of the mirror. Several releases may share it.
    type: path
    required: true
  state:
    description: V(present) fetches what is lacking. V(complete) fails with a list of it.
    type: str
    choices: [present, complete]
    default: present
  definition:
    description: The resolved release file.
    type: dict
    required: true
  parts:
    description: What to mirror - V(python) is all but the packages of a conda base, which are V(conda).
    type: list
    elements: str
    choices: [python, conda]
    default: [python, conda]
  python:
    description: The machine's interpreter where the release file names none. Empty for the one that runs the module, or
      its base where that is inside a virtual environment.
    type: str
    default: ""
  interpreter:
    description: What differs on the machine that the mirror is for. Not needed when the mirror is made there.
    type: dict
    default: {}
    suboptions:
      version:
        description: Version of its Python, as C(3.11.2).
        type: str
      platform:
        description: Its platform as in the names of wheels, as C(linux_x86_64).
        type: str
      glibc:
        description: Version of its glibc, as C(2.31).
        type: str
  mpi_wheel:
    description: Whether the release takes its MPI from the wheel of the release file.
    type: bool
    default: true
  conda_channels:
    description: The site's channels, for a release file that names none.
    type: list
    elements: str
    default: []
  conda_mirrors:
    description: Where the site fetches channels from, by channel, while it has a network.
    type: dict
    default: {}
  conda_platform:
    description: Conda's name of the platform. This machine's by default.
    type: str
    default: ""
  timeout:
    description: Seconds that a server may be silent.
    type: float
    default: 60
  phase:
    description: Internal, and refused in a task. What a call of the action plugin does of the whole.
    type: str
    choices: [plan, fetch, finish]
  files:
    description: Internal, and refused in a task. For which files it does that.
    type: list
    elements: dict
    default: []
notes:
  - Places are those that pip is configured to look at on this machine, by its configuration files, the variables
    C(PIP_*) and those for proxies; pip itself is not called. Logins in addresses, and those of the account's C(.netrc),
    are used and never recorded.
  - The CPU build of PyTorch is taken where the release file knows its hash for the interpreter and a place has it, as
    in a rollout; else what the lock of PyTorch has, with what a CUDA build needs besides.
  - Packages with C(build_isolation) are refused, as nothing says what their build will ask for.
seealso:
  - module: hpcml.torchstack.conda_environment
  - module: hpcml.torchstack.build_step
"""

EXAMPLES = r"""
- name: Fetch all that a release needs, for another machine
  hpcml.torchstack.release_mirror:
    path: /data/mirror
    definition: "{{ release_definition }}"
    interpreter: {version: 3.11.9, glibc: "2.31"}

- name: Refuse to begin without network unless everything is there
  hpcml.torchstack.release_mirror:
    path: /soft/pytorch/mirror
    state: complete
    definition: "{{ release_definition }}"
"""

RETURN = r"""
fetched:
  description: The files that were, or in check mode would be, fetched.
  returned: O(state=present)
  type: list
  elements: dict
  sample:
    - {path: pip/einops-0.8.2-py3-none-any.whl, sha256: 54058201ac70, size: 65638,
       url: https://files.example.org/einops-0.8.2-py3-none-any.whl, name: einops, version: 0.8.2, commit: ""}
kept:
  description: How many files were there already.
  returned: success
  type: int
bytes:
  description: Bytes of all files of the release that are there.
  returned: success
  type: int
written:
  description: What else was written or removed in the mirror - its list, indexes of channels, files that no release
    wants.
  returned: O(state=present)
  type: list
  elements: str
remarks:
  description: Sentences about what was chosen.
  returned: success
  type: list
  elements: str
missing:
  description: What is nowhere, or what the mirror lacks.
  returned: failure, where something is
  type: list
  elements: dict
  sample: [{name: einops, version: 0.8.2, hashes: [54058201ac70], commit: "", needed_by: package einops, problem: ""}]
planned_after:
  description: The step that brings py-rattler.
  returned: check mode, where it is not there yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(look at the interpreter), C(read the configuration of pip), C(read the release file),
    C(read the mirror), C(look at the mirror), C(plan), C(fetch), C(write the list), or a step of
    M(hpcml.torchstack.conda_environment).
  returned: failure
  type: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import rattler
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.index import Item
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.lack import missing_error
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.mirror import PARTS, Mirror

BATCH_SECONDS = 8.0
"""How long the action plugin waits for a sign of progress, but for a file that takes longer."""


def planned(mirror: Mirror, may_fetch: bool) -> dict[str, Any]:
    """Plan what is there and what would be fetched.

    Raises:
        StackError: something is nowhere, or the mirror lacks something.
    """
    if not may_fetch and not os.path.isdir(mirror.directory):
        raise StackError(
            "There is no mirror %s." % mirror.directory, "look at the mirror",
            "Correct the directory, or fill it where there is a network: make mirror RELEASE=%s TO=<the mirror>."
            % mirror.release)
    plan = mirror.plan(may_fetch)
    if plan.lacks:
        raise missing_error(mirror.directory, mirror.release, plan.lacks, may_fetch)
    return {
        "changed": bool(plan.fetch), "kept": len(plan.there), "bytes": sum(item.size for item in plan.there),
        "remarks": plan.remarks, "there": [item._asdict() for item in plan.there],
        "fetched": [item._asdict() for item in plan.fetch], "written": [],
    }


def completed(mirror: Mirror) -> dict[str, Any]:
    """Do all of it in one call."""
    fetched: list[Item] = []
    while True:
        result = planned(mirror, True)
        lacking = [Item(**entry) for entry in result["fetched"]]
        if not lacking:
            break
        fetched += mirror.fetch(lacking, float("inf"))
    written = mirror.finish([Item(**entry) for entry in result["there"]])
    return dict(
        result, changed=bool(fetched or written), written=written, kept=result["kept"] - len(fetched),
        fetched=[item._asdict() for item in fetched])


def carry_out(mirror: Mirror, params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do what the options ask for, and return the result."""
    files = [Item(**entry) for entry in params["files"]]
    if params["phase"] == "fetch":
        return {"changed": True, "fetched": [item._asdict() for item in mirror.fetch(files, BATCH_SECONDS)]}
    if params["phase"] == "finish":
        written = mirror.finish(files)
        return {"changed": bool(written), "written": written}
    if params["state"] == "complete":
        return dict(planned(mirror, False), changed=False)
    if check or params["phase"] == "plan":
        return planned(mirror, True)
    return completed(mirror)


def run(module: AnsibleModule) -> dict[str, Any]:
    """Fill the mirror, or plan that."""
    params = module.params
    os.umask(0o022)
    try:
        return carry_out(Mirror(params, os.environ, module.tmpdir), params, module.check_mode)
    except StackError as error:
        if module.check_mode and params["planned_after"] and error.failed_step == rattler.LOAD:
            return {
                "changed": True, "planned_after": params["planned_after"], "fetched": [], "there": [], "kept": 0,
                "bytes": 0, "written": [], "remarks": [error.message],
            }
        raise


def main() -> None:
    """Run the module."""
    run_module(run, {
        "path": {"type": "path", "required": True},
        "state": {"choices": ["present", "complete"], "default": "present"},
        "definition": {"type": "dict", "required": True},
        "parts": {"type": "list", "elements": "str", "choices": list(PARTS), "default": list(PARTS)},
        "python": {"type": "str", "default": ""},
        "interpreter": {
            "type": "dict", "default": {},
            "options": {"version": {"type": "str"}, "platform": {"type": "str"}, "glibc": {"type": "str"}},
        },
        "mpi_wheel": {"type": "bool", "default": True},
        "conda_channels": {"type": "list", "elements": "str", "default": []},
        "conda_mirrors": {"type": "dict", "default": {}},
        "conda_platform": {"type": "str", "default": ""},
        "timeout": {"type": "float", "default": 60},
        "planned_after": {"type": "str"},
        "phase": {"choices": ["plan", "fetch", "finish"]},
        "files": {"type": "list", "elements": "dict", "default": []},
    }, "write the list", with_path=False)


if __name__ == "__main__":
    main()

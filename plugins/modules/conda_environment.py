#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Make a conda prefix hold exactly these specs, or this lock."""

from __future__ import annotations

DOCUMENTATION = r"""
module: conda_environment
version_added: 0.2.0
short_description: Make a conda prefix hold exactly these specs or this lock
description:
  - Solves specs, or takes a lock, and makes the prefix hold exactly those packages, through py-rattler. No C(conda) is
    needed, and none of the account's conda configuration is read.
  - A prefix that an equal request made, and whose files are all there, is left alone without reading a channel. Other
    specs change as few of the installed packages as they can. Files that no package owns are overwritten by those of
    packages.
  - A journal beside the prefix is open during changes. While it is, the prefix counts as half - the next run removes
    what no package owns and was not there before, and completes it.
  - What fails is taken back. Of a new prefix nothing is left; of another one, what was taken out, changes made by hand
    included, is put back. The error says so, or else that the prefix is half changed, as where O(link_scripts) ran
    programs.
  - History and requested specs are written as conda writes them, so that a real C(conda) understands the prefix.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
requirements:
  - py-rattler >= 0.28 in the interpreter that runs the module, which it needs Python 3.10 for
attributes:
  check_mode:
    description: Changes neither prefix nor cache, and returns the transaction.
  diff_mode:
    description: The packages before and after, each with version, build and channel.
  idempotent:
    description: A second run with O(state=present) only reads. With O(state=latest) it solves again.
options:
  prefix:
    description: The prefix, an absolute path, which becomes part of what is installed.
    type: path
    required: true
  state:
    description: V(present) leaves packages that satisfy the request as they are, V(latest) takes the newest that do,
      V(absent) removes the prefix with everything in it.
    type: str
    choices: [present, latest, absent]
    default: present
  channels:
    description: Channels for O(specs), the preferred one first - addresses (also C(file://)), directories, or names.
    type: list
    elements: str
    default: []
  specs:
    description: What the prefix shall hold, with all that this needs, as C(python 3.11.*) or C(numpy >=1.26,<2).
    type: list
    elements: str
  optional_specs:
    description: Further specs, each left out where no channel has a package of that name (see RV(left_out)), as
      C(conda) and C(mamba). Only with O(specs).
    type: list
    elements: str
    default: []
  lock:
    description: A lock file on the target - an explicit list (C(@EXPLICIT)) with sha256 digests, as this module returns
      and C(conda list --explicit --sha256) writes, or a C(pixi.lock) or C(conda-lock.yml).
    type: path
  cache:
    description: Directory of extracted packages and of the channels' indexes, for any number of prefixes. Needed unless
      O(state=absent).
    type: path
  shared_caches:
    description: Further caches that are only read, such as another account's; O(cache) holds links to what they have.
    type: list
    elements: path
    default: []
  mirrors:
    description: Where channels are really fetched from - by the channel's address, name or directory, the mirror's, or
      a list, of which the first that can be read is used. Records, the history and RV(lock) keep the channel's own
      address.
    type: dict
  virtual_packages:
    description: Versions of virtual packages that differ from this machine's, as C(__cuda) and C(__glibc) on a login
      node; an empty one takes the package away.
    type: dict
  channel_priority:
    description: Whether a package comes from the first channel that has it, or from any.
    type: str
    choices: [strict, disabled]
    default: strict
  platform:
    description: Conda's name of the platform, C(linux-64) for instance. This machine's by default.
    type: str
  link_method:
    description: V(copy) copies files out of the cache, as clones where the file system shares blocks. V(hardlink) gives
      files of the cache a second name, which saves space, and lets a change of one prefix reach the cache and all other
      prefixes.
    type: str
    choices: [copy, hardlink]
    default: copy
  link_scripts:
    description: Run the scripts that packages bring for after they were linked, which are arbitrary programs.
    type: bool
    default: false
  verify:
    description: What is looked at in installed packages before a prefix counts as right - only their V(records), that
      their V(files) are there, or their V(contents). Damaged packages are linked again.
    type: str
    choices: [records, files, contents]
    default: files
  accept_defaults_licence:
    description: The terms of service of Anaconda's channels (C(defaults), C(repo.anaconda.com)), otherwise refused, are
      agreed to.
    type: bool
    default: false
  state_dir:
    description: Directory for record, journal and lock of the prefix, outside of it. By default the one that holds it.
    type: path
  log:
    description: A file on the target that gets a line for each package while it is worked on.
    type: path
notes:
  - Everything is created under umask 022, whatever the caller has. Directories inherit setgid as usual.
  - The sha256 of every package is checked before it is extracted. An entry of the cache of which a file was changed
    since, or whose origin is not certain, or with O(verify=contents) any, is read as a whole, and extracted anew where
    it is damaged.
seealso:
  - module: hpcml.torchstack.tree_permissions
  - module: hpcml.torchstack.tree_manifest
"""

EXAMPLES = r"""
- name: Create the base of a release
  hpcml.torchstack.conda_environment:
    prefix: /soft/pytorch/2026-11-20/base
    channels: [conda-forge]
    specs: [python 3.11.*, pip, "numpy >=1.26,<2"]
    virtual_packages: {__cuda: "12.4", __glibc: "2.31"}
    cache: /soft/pytorch/.conda
  register: base

- name: Create the same base from its lock, without network
  hpcml.torchstack.conda_environment:
    prefix: /soft/pytorch/2026-12-01/base
    lock: /soft/pytorch/2026-11-20/.torchstack/base.lock
    mirrors: {conda-forge: /soft/mirror/conda-forge}
    cache: /soft/pytorch/.conda
"""

RETURN = r"""
added:
  description: Packages that were, or in check mode would be, added.
  returned: always, once it is planned
  type: list
  elements: dict
  sample:
    - {name: numpy, version: 1.26.4, build: py311h64a7726_0, subdir: linux-64,
       channel: https://conda.anaconda.org/conda-forge,
       url: https://conda.anaconda.org/conda-forge/linux-64/numpy-1.26.4-py311h64a7726_0.conda,
       sha256: 3f4365e11b28e244}
removed:
  description: Packages that were removed.
  returned: always, once it is planned
  type: list
  elements: dict
changed_packages:
  description: Packages of which another version, build or archive replaced the installed one.
  returned: always, once it is planned
  type: list
  elements: dict
  sample:
    - {name: numpy, version_before: 1.26.3, build_before: py311h64a7726_0,
       channel_before: https://conda.anaconda.org/conda-forge, version: 1.26.4, build: py311h64a7726_0,
       channel: https://conda.anaconda.org/conda-forge}
repaired:
  description: Packages whose files were damaged or missing, and which were linked again.
  returned: always, once it is planned
  type: list
  elements: dict
packages:
  description: All packages of the prefix as it is, or in check mode would be, afterwards, sorted by name.
  returned: always, once it is planned
  type: list
  elements: dict
lock:
  description: The same packages as an explicit list with digests.
  returned: always, once it is planned
  type: str
left_out:
  description: The O(optional_specs) of which no channel has a package, and which the prefix does not hold.
  returned: always, once it is planned
  type: list
  elements: str
resumed:
  description: Whether an interrupted transaction was completed.
  returned: always, once it is planned
  type: bool
swept:
  description: What an interrupted transaction had left and was removed, relative to the prefix.
  returned: always, once it is planned
  type: list
  elements: str
planned_after:
  description: The step that brings what is missing.
  returned: check mode, where something is not there yet and O(planned_after) was given
  type: str
planned_reason:
  description: What is not there yet.
  returned: check mode, where something is not there yet and O(planned_after) was given
  type: str
explanation:
  description: What the solver, or the library, said in full.
  returned: failure, where it said something
  type: str
requirement:
  description: What the interpreter lacks, as pip would be asked for it.
  returned: failure, where py-rattler is missing
  type: str
interpreter:
  description: The interpreter that lacks it.
  returned: failure, where py-rattler is missing
  type: str
failed_step:
  description: What failed - C(check the options), C(check the channels), C(read the lock), C(read the prefix), C(lock
    the prefix), C(load py-rattler), C(read the channel), C(solve), C(fetch the packages), C(link), C(check the prefix),
    C(remove the prefix), C(record the transaction) or C(complete the prefix).
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import package, request
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.environment import LATER, Environment, as_result
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module


def run(module: AnsibleModule) -> dict:
    """Bring the environment to its state, or plan that."""
    params = module.params
    try:
        environment = Environment(params, not module.check_mode, module.tmpdir)
        outcome = environment.absent() if params["state"] == "absent" else environment.present()
        platform = params["platform"] or request.this_platform()
    except StackError as error:
        if module.check_mode and params["planned_after"] and error.failed_step in LATER:
            return {"changed": True, "planned_after": params["planned_after"], "planned_reason": error.message}
        raise
    result = as_result(outcome, platform, params["optional_specs"])
    if module._diff and result["changed"]:
        result["diff"] = package.render_transaction(outcome.transaction)
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        "prefix": {"type": "path", "required": True},
        "state": {"choices": ["present", "latest", "absent"], "default": "present"},
        "channels": {"type": "list", "elements": "str", "default": []},
        "specs": {"type": "list", "elements": "str"},
        "optional_specs": {"type": "list", "elements": "str", "default": []},
        "lock": {"type": "path"},
        "cache": {"type": "path"},
        "shared_caches": {"type": "list", "elements": "path", "default": []},
        "mirrors": {"type": "dict"},
        "virtual_packages": {"type": "dict"},
        "channel_priority": {"choices": ["strict", "disabled"], "default": "strict"},
        "platform": {"type": "str"},
        "link_method": {"choices": ["copy", "hardlink"], "default": "copy"},
        "link_scripts": {"type": "bool", "default": False},
        "verify": {"choices": ["records", "files", "contents"], "default": "files"},
        "accept_defaults_licence": {"type": "bool", "default": False},
        "state_dir": {"type": "path"},
        "log": {"type": "path"},
        "planned_after": {"type": "str"},
    }, mutually_exclusive=[("specs", "lock")], required_if=[
        ("state", "present", ("specs", "lock"), True), ("state", "latest", ("specs",)),
        ("state", "present", ("cache",)), ("state", "latest", ("cache",)),
    ])


if __name__ == "__main__":
    main()

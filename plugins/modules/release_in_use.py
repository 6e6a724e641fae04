#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Find who uses a release on this host; the work is in module_utils/trees/processes_in_tree.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_in_use
version_added: 0.2.0
short_description: Say which processes of a host use a release, and what could not be seen
description:
  - Looks for processes that run a program of the release, have a file mapped or open, or work in a directory of it.
  - C(/proc) names processes, accounts and commands, but shows an ordinary account nothing of others' processes.
  - Besides, the kernel is asked for a write lease on each file, which it refuses while any process of the host has the
    file open or mapped. Only the files' owner may ask, and network file systems such as NFS and Lustre have no leases.
  - What neither way could tell is in RV(unseen), in sentences.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
  - hpcml.torchstack._release
options:
  release:
    description: The release's name. Where its tree has been put aside to be removed, it is looked for there.
  leases:
    description: Ask for leases. V(false) looks at C(/proc) only.
    type: bool
    default: true
seealso:
  - module: hpcml.torchstack.release_retire
"""

EXAMPLES = r"""
- name: See who uses the release
  hpcml.torchstack.release_in_use:
    root: /soft/torchstack
    release: "2026-05-02"
  register: uses
"""

RETURN = r"""
host:
  description: The host's own name.
  returned: success
  type: str
path:
  description: The tree that was looked for; empty where the host sees none.
  returned: success
  type: str
in_use:
  description: Whether any process uses it, as far as that could be seen.
  returned: success
  type: bool
files:
  description: How many regular files it has.
  returned: success
  type: int
process_count:
  description: How many processes are seen to use it.
  returned: success
  type: int
processes:
  description: The first twenty of them, and how - V(program), V(mapped), V(open) or V(works in it).
  returned: success
  type: list
  elements: dict
  sample:
    - {pid: 4711, account: alice, command: python3 train.py, how: program,
       path: /soft/torchstack/2026-05-02/base/bin/python3.11}
held_count:
  description: How many files are open in some process, by what the kernel says to a lease.
  returned: success
  type: int
held:
  description: The first twenty of them.
  returned: success
  type: list
  elements: path
unseen:
  description: What could not be seen. Empty where everything could.
  returned: success
  type: list
  elements: str
  sample: ["whether 214 processes of other accounts use it: its file system has no leases"]
failed_step:
  description: What failed - C(look for processes).
  returned: failure
  type: str
"""

import os
import stat

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.retire import ASIDE
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import stage_directory
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import processes_in_tree


def tree_of(root: str, release: str) -> str:
    """Find where a release lies; empty where this host has none.

    Raises:
        OSError: this account may not see whether it has.
    """
    for path in (os.path.join(root, release), os.path.join(stage_directory(root, release), ASIDE)):
        try:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                return path
        except (FileNotFoundError, NotADirectoryError):
            continue
    return ""


def find_processes(params: dict) -> dict:
    """Find what uses the release, and return what the module returns."""
    if not params["release"] or os.path.basename(params["release"]) != params["release"] or params["release"][0] == ".":
        raise StackError(
            "%r is not the name of a release." % params["release"], "look for processes",
            "Give the directory's name below %s." % params["root"])
    place = os.path.join(params["root"], params["release"])
    try:
        path = tree_of(params["root"], params["release"])
        found = processes_in_tree.find_users(path or place, params["leases"], before=place)
    except OSError as error:
        raise StackError(
            "Cannot look for processes that use %s: %s." % (place, error), "look for processes",
            "Run as the account that owns the root, or as root.", place) from error
    return {"changed": False, "host": os.uname().nodename, "path": path, **found}


def main() -> None:
    """Entry point."""
    run_module(lambda module: find_processes(module.params), {
        **RELEASE, "leases": {"type": "bool", "default": True},
    })


if __name__ == "__main__":
    main()

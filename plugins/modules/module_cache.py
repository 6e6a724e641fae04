#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Renew the site's cache of the module system for the module tree as users see it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: module_cache
version_added: 0.2.0
short_description: Renew the site's cache of the module system when the module tree has changed
description: Runs the site's command, such as C(update_lmod_system_cache_files), when the module tree below
  C(<root>/modulefiles) is another one than the last time that it ran, also where a publication was killed before, and
  records that in C(<root>/.torchstack/module_cache.json).
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes
attributes:
  check_mode:
    description: Says whether the command would be run.
  diff_mode:
    description: The digest of the tree that the cache was renewed for, before and after.
  idempotent:
    description: The same command is not run again for the same tree.
options:
  root:
    description: The directory that holds the module tree.
    type: path
    required: true
  command:
    description: The command, one word per item. Empty where the site has no cache; nothing is done then.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that it may take.
    type: int
    default: 600
seealso:
  - module: hpcml.torchstack.modulefile_publish
"""

EXAMPLES = r"""
- name: Renew Lmod's spider cache after a publication
  hpcml.torchstack.module_cache:
    root: /soft/torchstack
    command: [update_lmod_system_cache_files, -d, /soft/lmod/cache, -t, /soft/lmod/cache/timestamp,
              /soft/torchstack/modulefiles/lmod]
"""

RETURN = r"""
renewed_at:
  description: When the cache was last renewed, in UTC; empty where it never was.
  returned: success
  type: str
tree:
  description: Digest of the module tree that users see.
  returned: success
  type: str
failed_step:
  description: What failed - C(renew the module cache) or C(read).
  returned: failure
  type: str
rc:
  description: What the command ended with.
  returned: when it failed
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.spider_cache import (
    Cache,
    read_cache,
    record_path,
    renew_cache,
)


def run(module: AnsibleModule) -> dict:
    """Renew the cache where it is not of the current tree."""
    root, words = module.params["root"], module.params["command"]
    before = read_cache(root, words)
    needed = bool(words) and not before.is_current
    if needed and not module.check_mode:
        renew_cache(root, before, module.params["timeout"])
    after = read_cache(root, words)
    recorded = before.record.get("tree", "")
    return {
        "changed": needed, "renewed_at": str(after.record.get("renewed_at", "")), "tree": after.tree,
        "diff": text_diff(record_path(root), line(before, recorded), line(before, before.tree if needed else recorded)),
    }


def line(cache: Cache, tree: str) -> str:
    """Render the record for the diff."""
    return "cache of the module tree %s, renewed by %s\n" % (tree, " ".join(cache.command)) if tree else ""


def main() -> None:
    """Entry point."""
    run_module(run, {
        "root": {"type": "path", "required": True}, "command": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 600},
    })


if __name__ == "__main__":
    main()

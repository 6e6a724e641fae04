#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Keep the package cache in order that releases share."""

from __future__ import annotations

DOCUMENTATION = r"""
module: conda_package_cache
version_added: 0.2.0
short_description: Keep the package cache of conda releases in order
description:
  - Makes the cache that M(hpcml.torchstack.conda_environment) extracts packages into, lets everybody read it and only
    its owner write it. setuid, setgid and sticky are never taken away, and what the owner may do with files stays.
  - Lets C(conda) use the entries for environments of other users, by C(repodata_record.json) of each entry, from the
    records of the releases, and C(urls.txt).
  - Lists what killed downloads left behind and packages that no release below the root uses any more, and removes them
    where O(keep) says so. A removal that is killed leaves a left-over, never half an entry.
  - Nothing is removed while another release of the root is rolled out, or packages are installed; see RV(postponed).
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes
attributes:
  check_mode:
    description: Writes nothing, and returns what would be removed, with sizes.
  diff_mode:
    description: The modes before and after, what becomes known to conda, and what is removed.
options:
  path:
    description: The cache, an absolute path.
    type: path
    required: true
  root:
    description: The directory that holds the releases. What any C(conda-meta) in them lists is in use.
    type: path
    required: true
  release:
    description: The release whose rollout this is, which does not count as another one.
    type: str
    default: ""
  keep:
    description: What is kept although no release needs it.
    type: dict
    suboptions:
      leftovers:
        description: What killed downloads left behind.
        type: bool
        default: true
      unused:
        description: Packages that no release uses.
        type: bool
        default: true
      days:
        description: Age in days below which packages that no release uses are kept in any case.
        type: int
        default: 0
seealso:
  - module: hpcml.torchstack.conda_environment
  - module: hpcml.torchstack.rollout_lock
"""

EXAMPLES = r"""
- name: Remove what no release has used for a month
  hpcml.torchstack.conda_package_cache:
    path: /soft/pytorch/.torchstack/conda-pkgs
    root: /soft/pytorch
    keep: {leftovers: false, unused: false, days: 30}
"""

RETURN = r"""
made:
  description: Whether the cache was, or in check mode would be, made.
  returned: success
  type: bool
changed_files:
  description: Files that got another mode.
  returned: success
  type: int
changed_directories:
  description: Directories that got another mode.
  returned: success
  type: int
described:
  description: Entries that became known to conda, and C(urls.txt) where it was made.
  returned: success
  type: list
  elements: str
entries:
  description: How many packages were extracted in the cache, before anything was removed.
  returned: success
  type: int
used:
  description: How many of the cache's packages a release uses.
  returned: success
  type: int
unused:
  description: Packages that no release uses, with the bytes of their files and their age.
  returned: success
  type: list
  elements: dict
  sample: [{name: numpy-1.26.3-py311h64a7726_0, bytes: 37012345, days: 92}]
leftovers:
  description: What killed downloads left behind; one that runs at the moment is among them.
  returned: success
  type: list
  elements: dict
  sample: [{name: .scipy-1.14.1-py311he9a78e4_1qbTzXw, bytes: 12582912, days: 3}]
removed:
  description: What of that was, or in check mode would be, removed.
  returned: success
  type: list
  elements: dict
removed_bytes:
  description: The bytes of these files.
  returned: success
  type: int
postponed:
  description: Why nothing was removed although O(keep) asked for it; empty where nothing stood against it.
  returned: success
  type: str
failed_step:
  description: What failed - C(check the boundary), C(look at the cache), C(make the cache), C(apply) or C(remove from
    the cache).
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import cache_maintain
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module


def run(module: AnsibleModule) -> dict:
    """Remove from the cache what nothing uses, or plan that."""
    params, keep = module.params, module.params["keep"]
    cache = cache_maintain.Cache(params["path"], params["root"], params["release"], not module.check_mode)
    kept = cache.keep(keep["leftovers"], keep["unused"], keep["days"])
    result = cache_maintain.as_result(kept)
    if module._diff and kept.changed:
        result["diff"] = cache_maintain.render(cache.path, kept)
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        "path": {"type": "path", "required": True},
        "root": {"type": "path", "required": True},
        "release": {"type": "str", "default": ""},
        "keep": {
            "type": "dict", "apply_defaults": True,
            "options": {
                "leftovers": {"type": "bool", "default": True}, "unused": {"type": "bool", "default": True},
                "days": {"type": "int", "default": 0},
            },
        },
    })


if __name__ == "__main__":
    main()

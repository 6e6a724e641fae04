#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""List the frozen releases of a root, and what users see of them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: releases_info
version_added: 0.2.0
short_description: List the frozen releases below a root and what users see of each
description: Reads the records below C(<root>/.torchstack) and the module tree. What is no release, or was never frozen,
  is left out.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes.reading
options:
  root:
    description: The directory that holds the releases and the module tree.
    type: path
    required: true
  release:
    description: Only this release, which has to be one. Empty for all.
    type: str
    default: ""
seealso:
  - module: hpcml.torchstack.modulefile_publish
"""

EXAMPLES = r"""
- name: Look at the releases
  hpcml.torchstack.releases_info:
    root: /soft/torchstack
  register: found

- name: Name those that users see
  ansible.builtin.debug:
    msg: "{{ found.releases | selectattr('visible.lmod') | map(attribute='release') }}"
"""

RETURN = r"""
releases:
  description:
    - The frozen releases in the order in which they were frozen. C(root), C(release) (its name), C(prefix) (where it
      is), C(frozen) (the record of the freeze), C(name) (of its module; empty where it has none) and C(version).
    - By syntax, C(visible) is whether C(module avail) lists it, C(default) whether it is the default, C(hidden) whether
      it loads by its full name only, C(gone) whether loading it fails with one sentence. C(is_default) is whether it is
      the default of any.
    - C(deprecated) is what loading it says, C(retired) the record of its retirement, C(thawed) that of a thaw that is
      open (null where there is none), and C(defaulted_at) when it last became the default, in UTC; empty where it never
      was.
  returned: success
  type: list
  elements: dict
  sample:
    - root: /soft/torchstack
      release: "2026-11-20"
      prefix: /soft/torchstack/2026-11-20
      frozen: {frozen_at: "2026-11-20T08:15:00Z"}
      name: torchstack
      version: "2026-11-20"
      visible: {tcl: true, lmod: true}
      default: {tcl: true, lmod: true}
      is_default: true
      hidden: {tcl: false, lmod: false}
      deprecated: ""
      gone: {tcl: false, lmod: false}
      retired: null
      thawed: null
      defaulted_at: "2026-11-20T08:15:00Z"
default:
  description: The release whose module is the default; empty where there is none. Lmod's, where the two differ.
  returned: success
  type: str
previous_default:
  description: The release whose module a rollback of that one makes the default; empty where there is none.
  returned: success
  type: str
removed:
  description: The releases whose files are going or gone, and of which the records are kept.
  returned: success
  type: list
  elements: str
failed_step:
  description: What failed - C(find the releases) or C(read).
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication import former_default
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import read_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import (
    REMOVED,
    ReleaseState,
    all_releases,
    one_release,
)


def current(states: list[ReleaseState]) -> ReleaseState | None:
    """Return the release whose module is the default."""
    found = [state for state in states if state.is_default]
    return next((state for state in found if state.default["lmod"]), found[0] if found else None)


def previous(states: list[ReleaseState], state: ReleaseState | None) -> str:
    """Return the release that a rollback of the default leads to."""
    if state is None:
        return ""
    facts = read_facts(state.root, state.release)
    version = former_default(facts, "lmod" if state.default["lmod"] else "tcl")
    return next((other.release for other in states if version and (other.name, other.version) == (
        state.name, version)), "")


def run(module: AnsibleModule) -> dict:
    """Read the states of the releases below the root."""
    root, release = module.params["root"], module.params["release"]
    every = all_releases(root, removed=True)
    states = [state for state in every if (state.retired or {}).get("state") not in REMOVED]
    default = current(states)
    wanted = [one_release(root, release)] if release else states
    return {
        "changed": False,
        "releases": [state.as_dict() for state in wanted],
        "default": default.release if default else "",
        "previous_default": previous(states, default),
        "removed": [state.release for state in every if state not in states],
    }


def main() -> None:
    """Entry point."""
    run_module(run, {"root": {"type": "path", "required": True}, "release": {"type": "str", "default": ""}})


if __name__ == "__main__":
    main()

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
description:
  - Reads the records below C(<root>/.torchstack) and the module tree. Nothing is written.
  - What is no release of this collection, or was never frozen, is left out.
author:
  - The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
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
  description: The frozen releases in the order in which they were frozen.
  returned: success
  type: list
  elements: dict
  contains:
    root: {description: The root., type: str, returned: always, sample: /soft/torchstack}
    release: {description: The release's name., type: str, returned: always, sample: "2026-11-20"}
    prefix: {description: Where it is., type: str, returned: always, sample: /soft/torchstack/2026-11-20}
    frozen: {description: The record of the freeze., type: dict, returned: always,
             sample: {frozen_at: "2026-11-20T08:15:00Z"}}
    name: {description: Name of the module; empty where it has none., type: str, returned: always, sample: torchstack}
    version: {description: Its version., type: str, returned: always, sample: "2026-11-20"}
    visible: {description: "By syntax, whether C(module avail) lists it.", type: dict, returned: always,
              sample: {tcl: true, lmod: true}}
    default: {description: "By syntax, whether it is the default.", type: dict, returned: always,
              sample: {tcl: true, lmod: true}}
    is_default: {description: Whether it is the default of any., type: bool, returned: always, sample: true}
    hidden: {description: "By syntax, whether it loads by its full name only.", type: dict, returned: always,
             sample: {tcl: false, lmod: false}}
    deprecated: {description: What loading it says; empty for nothing., type: str, returned: always, sample: ""}
    gone: {description: "By syntax, whether loading it fails with one sentence.", type: dict, returned: always,
           sample: {tcl: false, lmod: false}}
    retired: {description: The record of its retirement; null where there is none., type: dict, returned: always,
              sample: null}
    thawed: {description: The record of a thaw that is open; null where there is none., type: dict, returned: always,
             sample: null}
    defaulted_at: {description: "When it last became the default, in UTC; empty where it never was.", type: str,
                   returned: always, sample: "2026-11-20T08:15:00Z"}
default:
  description: The release whose module is the default; empty where there is none. Lmod's, where the two differ.
  returned: success
  type: str
  sample: "2026-11-20"
previous_default:
  description: The release whose module a rollback of that one makes the default; empty where there is none.
  returned: success
  type: str
  sample: "2026-05-02"
removed:
  description: The releases whose files are going or gone, and of which the records are kept.
  returned: success
  type: list
  elements: str
  sample: ["2025-12-01"]
failed_step:
  description: What failed - C(find the releases) or C(read).
  returned: failure
  type: str
  sample: find the releases
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
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "required": True}, "release": {"type": "str", "default": ""}},
        supports_check_mode=True,
    )
    run_module(module, run)


if __name__ == "__main__":
    main()

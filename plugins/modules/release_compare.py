#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_compare; the work is in module_utils/release/compare_trees.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_compare
short_description: Say in which ways two releases differ
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes.reading
description:
  - Compares two releases path by path, and sorts what differs into classes - of no consequence are another place, times
    in records, archives and bytecode, and what the loader does not load of an object; all else are real differences.
    Nothing of them is run.
  - For a release that was rolled out a second time, from its stored file. Without Ansible, C(bin/compare) does the
    same.
options:
  first:
    description: The directory of the one release.
    type: path
    required: true
  second:
    description: The directory of the other one, seen from the same machine.
    type: path
    required: true
  max_listed:
    description: How many paths of each class are listed.
    type: int
    default: 100
  fail_on_differences:
    description: Whether real differences are a failure.
    type: bool
    default: true
seealso:
  - module: hpcml.torchstack.tree_manifest
  - module: hpcml.torchstack.release_sbom
"""

EXAMPLES = r"""
- name: See whether the release was reproduced
  hpcml.torchstack.release_compare:
    first: /soft/pytorch/2026-11-20
    second: /scratch/reproduced/2026-11-20
"""

RETURN = r"""
counts:
  description:
    - How many paths are in each class.
    - V(same) are those with the same bytes, type and mode. In V(place) only the release's own directory differs, or the
      one above it; V(bytecode) was compiled from the same source; V(records) are of the build and of installers;
      V(times) are archives with the same members; of V(elf) only what is not loaded differs, or their own place;
      V(layout) are objects with the same symbols, libraries and code, in which a path of another length lies; V(other)
      are real differences.
  returned: once both were read
  type: dict
  sample: {same: 25212, place: 41, bytecode: 310, records: 97, times: 3, elf: 2, layout: 0, other: 0}
differences:
  description: The first paths of each class but C(same), with what is the matter where that is not plain.
  returned: once both were read
  type: dict
  sample: {other: [{path: base/lib/libmpi.so.12, detail: the content of .text}]}
equivalent:
  description: Whether there are no real differences.
  returned: once both were read
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import shortly
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import compare_trees


def run(module: AnsibleModule) -> dict:
    """Compare the two releases."""
    params = module.params
    if params["max_listed"] < 0:
        raise StackError("max_listed cannot be negative.", "options", "Correct it.")
    result = compare_trees.compare(params["first"], params["second"]).as_result(params["max_listed"])
    if params["fail_on_differences"] and not result["equivalent"]:
        paths = [one["path"] for one in result["differences"].get("other", [])]
        raise StackError(
            "%s and %s differ in %d paths%s." % (
                params["first"], params["second"], result["counts"]["other"],
                ", first %s" % shortly(paths) if paths else ""),
            "compare", "The list says in what; see docs/how-to/reproduce-and-compare.md for what each class means.",
            params["second"], **result)
    return dict(result, changed=False)


def main() -> None:
    """Run the module."""
    run_module(run, {
        "first": {"type": "path", "required": True}, "second": {"type": "path", "required": True},
        "max_listed": {"type": "int", "default": 100}, "fail_on_differences": {"type": "bool", "default": True},
    })


if __name__ == "__main__":
    main()

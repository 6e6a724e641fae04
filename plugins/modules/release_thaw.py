#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_thaw."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_thaw
short_description: Change named files of a frozen release, and freeze it again
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
description:
  - Makes named paths of a frozen release writable for its owner, puts files there, and freezes the release again with a
    new manifest. Who did it, why, and every difference between the two manifests go into a journal.
  - Files are replaced and never edited where they are. A file that is named by itself, and any file with further names
    (hard links), gets a copy of its own before it becomes writable, so that no process that has it mapped and no other
    release that shares it sees the fix.
  - The release is refused while anything differs from its manifest that is not among what is thawed.
  - An interrupted run is completed by the next one.
attributes:
  diff_mode:
    description: The paths and files when the thaw is opened, the entries of the manifest when it is closed.
options:
  state:
    description:
      - V(open) makes O(paths) writable, and puts those of O(files) into place that were sent.
      - V(refrozen) compiles the bytecode of what was changed, takes write permissions away, and records the new
        manifest.
      - V(abandoned) does the same for a thaw in which nothing was changed, and refuses one in which something was.
    type: str
    choices: [open, refrozen, abandoned]
    default: open
  paths:
    description: Files and directories to thaw, relative to the release, in addition to those of an open thaw. No
      wildcards, symbolic links, or records of the build.
    type: list
    elements: str
    default: []
  reason:
    description: Why. Needed when paths are thawed.
    type: str
    default: ""
  files:
    description: Files to put into place. Each is taken from C(ROOT/.torchstack/RELEASE/thaw/files/SHA256); see
      RV(wanted).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file, relative to the release; it is, or lies in, one of O(paths).
        type: str
        required: true
      sha256:
        description: SHA-256 of its new content.
        type: str
        required: true
      mode:
        description: Octal permissions. Write bits go when the release is frozen. By default those of the file there is.
        type: str
  only_for_files:
    description: Open nothing where each of O(files) is in place already.
    type: bool
    default: false
  python:
    description: The interpreter that compiles what was changed, the release's. Empty to compile nothing.
    type: str
    default: ""
notes:
  - How changed libraries are linked is not verified again; RV(objects) names them.
seealso:
  - module: hpcml.torchstack.tree_manifest
  - module: hpcml.torchstack.tree_permissions
"""

EXAMPLES = r"""
- name: Open one file for a hot fix
  hpcml.torchstack.release_thaw:
    root: /soft/torchstack
    release: "2026-11-20"
    paths: [base/lib/python3.12/site-packages/horovod/torch/mpi_ops.py]
    reason: Allreduce of empty tensors hangs

- name: Freeze the release again
  hpcml.torchstack.release_thaw:
    root: /soft/torchstack
    release: "2026-11-20"
    state: refrozen
    python: /soft/torchstack/2026-11-20/base/bin/python
"""

RETURN = r"""
open:
  description: Whether the release is thawed now, or would be.
  returned: always
  type: bool
thaw:
  description: Number of the thaw; null where none is open.
  returned: always
  type: int
paths:
  description: What is thawed.
  returned: always
  type: list
  elements: str
who:
  description: Who opened the thaw.
  returned: always
  type: str
why:
  description: For which reason.
  returned: always
  type: str
since:
  description: Since when it is open, in UTC.
  returned: always
  type: str
thawed:
  description: The first paths that became writable.
  returned: always
  type: list
  elements: str
differed:
  description: Paths among the thawed ones that differed from the manifest before the thaw.
  returned: always
  type: list
  elements: str
put:
  description: Files that were put into place; in check mode those that would be.
  returned: always
  type: list
  elements: str
wanted:
  description: Files that are not in place and were not sent yet.
  returned: always
  type: list
  elements: dict
stage:
  description: The directory for what is on its way into the release.
  returned: always
  type: str
difference:
  description: The first differences between the manifests; C(before) and C(after) are null in check mode.
  returned: always
  type: list
  elements: dict
  sample:
    - path: base/lib/libz.so
      change: changed
      before: {type: file, mode: "0444", size: 120, sha256: 9f86d081884c}
      after: {type: file, mode: "0444", size: 124, sha256: 2c26b46b68ff}
difference_total:
  description: How many there are; the journal C(thaw.jsonl) has all of them.
  returned: always
  type: int
objects:
  description: Programs and libraries among them.
  returned: always
  type: list
  elements: str
digest:
  description: Digest of the release's manifest, the new one once it is frozen again.
  returned: always
  type: str
subject:
  description: What an acceptance of the release belongs to from now on.
  returned: always
  type: str
outside:
  description: The first paths that differ from the manifest and are not among what is thawed.
  returned: failure
  type: list
  elements: str
outside_total:
  description: How many.
  returned: failure
  type: int
"""

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw, thaw_release


def main() -> None:
    """Run the module."""
    run_module(lambda module: thaw.carry_out(thaw_release.Request(**module.params), not module.check_mode), {
        **RELEASE,
        "state": {"type": "str", "choices": list(thaw.STATES), "default": thaw_release.OPEN},
        "paths": {"type": "list", "elements": "str", "default": []},
        "reason": {"type": "str", "default": ""},
        "files": {
            "type": "list", "elements": "dict", "default": [],
            "options": {
                "path": {"type": "str", "required": True}, "sha256": {"type": "str", "required": True},
                "mode": {"type": "str"},
            },
        },
        "only_for_files": {"type": "bool", "default": False},
        "python": {"type": "str", "default": ""},
    })


if __name__ == "__main__":
    main()

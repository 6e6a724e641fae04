#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Frozen releases are compared with what was recorded of them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_drift
version_added: 0.2.0
short_description: Compare frozen releases with their manifests
description:
  - Compares frozen releases of a root with the manifests that their freezes wrote, and says of each difference what it
    is, and who and when as far as the file system tells - the owner, and the times of content and inode, of a file that
    is gone those of the directory that it was in.
  - A manifest that is not the one of the freeze, none at all, and a directory that is gone are differences, too.
  - Differences of what an open thaw names are told as explained by it, and are no drift.
  - Never fails for what it finds, so that one release does not hide another; see RV(drifted).
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.root
attributes:
  check_mode:
    description: Compares all the same, and records nothing.
  diff_mode:
    description: The findings of the last look of that level and of this one.
  idempotent:
    description: The record is only written when something else was found. Its time of modification shows the look.
options:
  releases:
    description: Names of frozen releases. Empty for all of the root.
    type: list
    elements: str
    default: []
  level:
    description:
      - V(quick) looks at type, mode, size and link target of every entry, and reads the files whose inode was changed
        since the manifest was written; these are few, but for a tree that was copied or restored.
      - V(full) reads every file, V(none) compares nothing and lists the releases.
    type: str
    choices: [quick, full, none]
    default: quick
  max_listed:
    description: How many findings of a release are listed and recorded. Totals count all.
    type: int
    default: 200
  workers:
    description: Threads, as M(hpcml.torchstack.tree_manifest) has them; V(0) chooses.
    type: int
    default: 0
seealso:
  - module: hpcml.torchstack.tree_manifest
  - module: hpcml.torchstack.system_drift
"""

EXAMPLES = r"""
- name: Read every file of one release
  hpcml.torchstack.release_drift:
    root: /soft/torchstack
    releases: ["2026-11-20"]
    level: full
  register: drift
"""

RETURN = r"""
drifted:
  description: Names of the releases that differ from their manifests, apart from what an open thaw explains.
  returned: success
  type: list
  elements: str
releases:
  description: The releases, in the order in which they were frozen. C(loadable) says whether users can load its module,
    C(removal) whether its files are meant to be gone; such a release is not compared. RV(ignore:outcome) is what was
    found, and C(since) when it was first found; null where nothing was compared.
  returned: success
  type: list
  elements: dict
  sample:
    - release: "2026-11-20"
      prefix: /soft/torchstack/2026-11-20
      loadable: true
      removal: ""
      seconds: 0.61
      outcome:
        level: quick
        manifest: e3e331962f5d
        files: 183214
        matches: false
        drifted: true
        totals: {added: 0, removed: 1}
        findings:
          - {path: base/lib/libz.so.1, kind: removed, owner: rollout, changed: "2026-11-24T09:12:44Z",
             modified: "2026-11-24T09:12:44Z", seen_on: base/lib}
        findings_total: 1
        explained: 0
        touched: []
        touched_total: 0
        thawed: null
summary:
  description: The same in lines for a reader.
  returned: success
  type: list
  elements: str
  sample: ["2026-05-02: all 183214 files are as recorded (quick)."]
failed_step:
  description: What failed - C(options), C(find the releases) or C(record).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import drift, drift_record, drift_text


def run(module: AnsibleModule) -> dict:
    """Compare the releases with their records, and record what was found."""
    os.umask(0o022)
    params = module.params
    if params["workers"] < 0 or params["max_listed"] < 1:
        raise StackError("workers is negative, or max_listed is not positive.", "options", "Correct them.")
    result: dict = {"changed": False, "drifted": [], "releases": [], "summary": []}
    sides: dict[str, list[str]] = {"before": [], "after": []}
    for found in drift.find_frozen(params["root"], params["releases"]):
        entry = {
            "release": found.release, "prefix": found.prefix, "loadable": found.loadable, "removal": found.removal,
            "seconds": 0.0, "outcome": None,
        }
        result["releases"].append(entry)
        if found.removal:
            result["summary"].append("%s: its files are %s, and nothing is compared." % (
                found.release, "gone" if found.removal == "removed" else "being removed"))
        if found.removal or params["level"] == "none":
            continue
        outcome, entry["seconds"] = drift.compare_release(
            params["root"], found, params["level"], params["max_listed"], params["workers"])
        entry["outcome"] = outcome
        changed, earlier = drift_record.keep_outcome(
            params["root"], found.release, params["level"], outcome, not module.check_mode)
        result["changed"] = result["changed"] or changed
        result["summary"] += drift_text.summary_lines(found.release, outcome)
        if outcome["drifted"]:
            result["drifted"].append(found.release)
        for side, judged in (("before", earlier), ("after", outcome)):
            sides[side] += ["%s: %s\n" % (found.release, line) for line in drift_text.outcome_lines(judged)]
    if module._diff:
        result["diff"] = {side: "".join(lines) for side, lines in sides.items()}
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        "root": {"type": "path", "required": True}, "releases": {"type": "list", "elements": "str", "default": []},
        "level": {"type": "str", "choices": ["quick", "full", "none"], "default": "quick"},
        "max_listed": {"type": "int", "default": 200}, "workers": {"type": "int", "default": 0},
    })


if __name__ == "__main__":
    main()

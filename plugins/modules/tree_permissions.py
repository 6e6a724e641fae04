#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Freeze a tree, or make it writable again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tree_permissions
version_added: 0.2.0
short_description: Freeze or thaw the permissions of a whole tree
description:
  - Brings every file and directory of a tree to a permission policy, in one pass. By default V(frozen) leaves no write
    bit and lets everyone read - files get 0444, executables (any x bit) 0555, directories 0555, the end state of
    C(chmod -R a-w,a+rX) - and V(writable) gives the owner the write bit back and changes nothing else.
  - setuid, setgid and sticky are never taken away, so a setgid directory ends as 2555.
  - Symbolic links are never followed, neither in the tree nor when somebody swaps a name for a link meanwhile.
  - Entries that cannot be changed (of another owner, setgid for a group that the account is not in, immutable) are one
    error at the end, when everything else is done; running again goes on from there.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
attributes:
  check_mode:
    description: Changes nothing and reports what would change. What lies in directories that only the change makes
      readable cannot be seen; these are named in RV(unseen).
  diff_mode:
    description: Counts per kind, and the first paths with old and new mode.
  idempotent:
    description: Only entries whose mode differs are touched.
options:
  path:
    description: The tree, an absolute path. No symbolic link, home directory, or directory that holds one.
    type: path
    required: true
  root:
    description: The safety boundary, an absolute path. The tree must lie in it, or be it, after links are resolved.
      C(/) and directories that hold home directories are refused.
    type: path
    required: true
  state:
    description: What the tree becomes.
    type: str
    choices: [frozen, writable]
    required: true
  policy:
    description: Rules in place of the state's own - an octal mode, or clauses such as V(a-w,a+rX) with an explicit
      C(u), C(g), C(o) or C(a). A rule that does not bring about the state (a write bit left by V(frozen), none for the
      owner by V(writable)), or takes r or x from the owner of a directory, is refused.
    type: dict
    suboptions:
      files:
        description: Rule for files without any x bit, named pipes and sockets included.
        type: str
      executables:
        description: Rule for files with an x bit.
        type: str
      directories:
        description: Rule for directories; an octal mode may add setgid or sticky, as 2555 does.
        type: str
  exclude:
    description: Globs, relative to the tree, of what is left alone, with everything below it. C(*) and C(?) stay within
      a name, C(**) spans directories. A file that has another name elsewhere in the tree has one mode for both.
    type: list
    elements: str
    default: []
  keep_private:
    description: Globs, relative to the tree, of directories that V(frozen) leaves to their owner where they are their
      owner's only, with everything below. Those that others may read or enter are frozen like all else.
    type: list
    elements: str
    default: []
  workers:
    description: Threads. V(0) begins with one and uses sixteen once calls to the file system turn out to be slow, as on
      Lustre; where they are quick, a large tree is shared with as many processes as this one may use processors, at
      most four.
    type: int
    default: 0
  max_listed:
    description: How many paths each list of the result has at most. Totals count all.
    type: int
    default: 100
notes:
  - Modes belong to the file, not to its name. A file with names outside the tree (hard links, from a shared package
    cache for instance) changes there too; RV(hardlinked_outside) counts these.
seealso:
  - module: hpcml.torchstack.tree_manifest
"""

EXAMPLES = r"""
- name: Freeze a release for the members of its group only
  hpcml.torchstack.tree_permissions:
    path: /soft/pytorch/2026-11-20
    root: /soft/pytorch
    state: frozen
    policy: {files: "0440", executables: "0550", directories: "2550"}

- name: Make the metadata of conda writable for its owner
  hpcml.torchstack.tree_permissions:
    path: /soft/pytorch/2026-11-20/base/conda-meta
    root: /soft/pytorch
    state: writable
"""

RETURN = r"""
files:
  description: Names of files, and of everything else that is neither directory nor symbolic link.
  returned: always, once the tree was walked
  type: int
directories:
  description: Directories, the tree itself included.
  returned: always, once the tree was walked
  type: int
symlinks:
  description: Symbolic links, which have no mode of their own.
  returned: always, once the tree was walked
  type: int
hardlinked:
  description: Names of files that have more than one name.
  returned: always, once the tree was walked
  type: int
hardlinked_outside:
  description: Files with names that the walk did not meet, so outside the tree or excluded.
  returned: always, once the tree was walked
  type: int
changed_files:
  description: Files changed, or to be changed in check mode.
  returned: always, once the tree was walked
  type: int
changed_directories:
  description: Directories changed, or to be changed in check mode.
  returned: always, once the tree was walked
  type: int
drift:
  description: The first entries whose mode differed from the policy, sorted by path.
  returned: always, once the tree was walked
  type: list
  elements: dict
  sample: [{path: base/lib, from: "2500", to: "2555"}]
drift_total:
  description: How many differed.
  returned: always, once the tree was walked
  type: int
special:
  description: The first setuid and setgid files, named pipes, sockets and devices. With O(state=frozen) also programs
    with C(file capabilities), and directories whose C(default access list) lets others than the owner write what is
    made there, as after a thaw; the module warns of these.
  returned: always, once the tree was walked
  type: list
  elements: dict
  sample: [{path: libexec/helper, kind: setuid, mode: "4755"}]
special_total: &total
  description: How many there are.
  returned: always, once the tree was walked
  type: int
vanished:
  description: Entries that others removed or replaced during the walk.
  returned: always, once the tree was walked
  type: int
excluded:
  description: Entries that O(exclude) matched.
  returned: always, once the tree was walked
  type: int
unseen:
  description: The first directories that check mode cannot look into before they are repaired.
  returned: always, once the tree was walked
  type: list
  elements: str
unseen_total: *total
seconds:
  description: How long the walk took.
  returned: always, once the tree was walked
  type: float
planned_after:
  description: The step that creates the tree.
  returned: check mode, where the tree does not exist yet and O(planned_after) was given
  type: str
  sample: pytorch install
foreign:
  description: The first entries that would have to change and belong to another account.
  returned: failure
  type: list
  elements: str
foreign_total: &failed_total
  description: How many there are.
  returned: failure
  type: int
setgid_lost:
  description: The first entries that a chmod by this account would take setgid from; they are not touched.
  returned: failure
  type: list
  elements: str
setgid_lost_total: *failed_total
refused:
  description: The first entries that the system did not let change, with its reason.
  returned: failure
  type: list
  elements: str
refused_total: *failed_total
failed_step:
  description: What failed - C(policy), C(check the boundary) or C(apply).
  returned: failure
  type: str
"""

import os
from typing import Sequence, cast

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import shortly
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import (
    boundary,
    counters,
    mode_changes,
    permissions,
    private_parts,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.policy import FROZEN, WRITABLE, Policy


def render(result: dict) -> dict[str, str]:
    """Render the plan as a difference of two texts."""
    sides: dict[str, list[str]] = {"before": [], "after": []}
    for side, key in (("before", "from"), ("after", "to")):
        sides[side] = ["%s %s" % (entry[key], entry["path"]) for entry in result["drift"]]
    counts = "%(changed_files)d of %(files)d files and %(changed_directories)d of %(directories)d directories" % result
    left = result["drift_total"] - len(result["drift"])
    sides["after"].append("# %s change%s" % (counts, ", %d more not listed" % left if left else ""))
    return {side: "".join(line + "\n" for line in lines) for side, lines in sides.items()}


def set_permissions(params: dict, apply: bool) -> dict[str, object]:
    """Bring the tree to its policy, or plan it, and return what the module returns."""
    policy = Policy(params["state"], params["policy"])
    if params["workers"] < 0 or params["max_listed"] < 0:
        raise StackError("workers and max_listed cannot be negative.", "policy", "Correct them.")
    owner = os.stat(params["path"]).st_uid if os.path.exists(params["path"]) else os.geteuid()
    root, relative = boundary.locate(params["path"], params["root"], boundary.home_directories(owner))

    def walk(rules: Policy, part: str, left_out: Sequence[str]) -> dict[str, object]:
        exclude = params["exclude"] if not part else ()
        one_pass = permissions.Pass(
            rules, apply, [*exclude, *left_out], params["workers"], params["max_listed"])
        total = one_pass.over(root, os.path.normpath(os.path.join(relative, part)))
        error = counters.permission_error(total, os.path.join(params["path"], part) if part else params["path"])
        if error is not None:
            raise error
        return counters.as_result(total)

    patterns = params["keep_private"] if params["state"] == FROZEN else ()
    parts = private_parts.private_parts(os.path.join(root, relative), patterns)
    return private_parts.over_all(walk, policy, parts, params["max_listed"])


def run(module: AnsibleModule) -> dict:
    """Bring the tree to its policy; or plan that where it is still to come."""
    later = module.params["planned_after"]
    if module.check_mode and later and not os.path.lexists(module.params["path"]):
        return {"changed": True, "planned_after": later}
    result = set_permissions(module.params, not module.check_mode)
    result["changed"] = bool(result["changed_files"] or result["changed_directories"])
    special = cast("list[dict[str, str]]", result["special"])
    writable = [entry["path"] for entry in special if entry["kind"] == mode_changes.DEFAULT_LIST]
    if writable:
        module.warn(
            "The default access control list of %d directories below %s lets others write what is made there, as after "
            "a thaw; first %s. To take it away: setfacl --remove-default (-R for all)." % (
                len(writable), module.params["path"], shortly(writable)))
    if module._diff and result["changed"]:
        result["diff"] = render(result)
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        "path": {"type": "path", "required": True},
        "root": {"type": "path", "required": True},
        "state": {"choices": [FROZEN, WRITABLE], "required": True},
        "policy": {
            "type": "dict",
            "options": {"files": {"type": "str"}, "executables": {"type": "str"}, "directories": {"type": "str"}},
        },
        "exclude": {"type": "list", "elements": "str", "default": []},
        "keep_private": {"type": "list", "elements": "str", "default": []},
        "workers": {"type": "int", "default": 0},
        "max_listed": {"type": "int", "default": 100},
        "planned_after": {"type": "str"},
    })


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Record a tree, or compare it with its record."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tree_manifest
version_added: 0.2.0
short_description: Record what a tree holds, or compare it with its record
description:
  - Records type, mode, size, SHA-256 digest and link target of every path of a tree, or says how it differs from that.
    With O(content=full) also access control lists, file capabilities and attributes C(user.*), where there are any; a
    record of an older version has none of these, and stays as it is.
  - Paths are relative to the tree. Times and owners are not recorded, so a tree that was moved, or copied with its
    modes, still matches. The record is the same whatever the file system's order, the locale and the number of threads.
  - Symbolic links are never followed. Named pipes, sockets and devices are recorded by type and mode and never opened.
    Names of one file (hard links) are entries of their own with the same digest.
  - A file that changes while it is read, or a directory while it is listed, is in RV(unstable) and never recorded.
  - The record is JSON in ASCII, with a header and one entry per line, sorted by the bytes of the path; the tree itself
    is C(.) and comes first. Bytes of a name that are not UTF-8 are lone surrogates C(\udcXX), as Python has them.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
attributes:
  check_mode:
    description: Reads the tree and says how the record would change.
  diff_mode:
    description: Digest and counts of the record before and after, and the first paths that differ.
options:
  path:
    description: The tree, an absolute path. No symbolic link, home directory, or directory that holds one.
    type: path
    required: true
  root:
    description: The safety boundary, an absolute path. The tree, and the record that is written, must lie in it.
    type: path
    required: true
  record:
    description:
      - The file of the record, an absolute path. It may lie in the tree and is left out of itself then; where its
        directory is frozen, that gets its owner's write bit for the moment of writing.
      - Who may read its directory may read it, and its owner may write it if the directory has a write bit for its
        owner, so that a frozen tree stays frozen.
    type: path
    required: true
  state:
    description:
      - V(recorded) brings the record up to date. It fails, and writes nothing, where files change or cannot be read.
      - V(compared) compares the tree with the record and never writes.
    type: str
    choices: [recorded, compared]
    default: recorded
  content:
    description: V(full) reads every file for its digest. V(quick) takes type, mode, size and link target only, and does
      not notice other bytes of the same number. A record without content cannot be compared in full.
    type: str
    choices: [full, quick]
    default: full
  exclude:
    description: Globs, relative to the tree, of what is left out, with everything below it. C(*) and C(?) stay within a
      name, C(**) spans directories. The record keeps them. With O(state=compared) what the record left out is left out
      again, and these too.
    type: list
    elements: str
    default: []
  fail_on_drift:
    description: Whether O(state=compared) fails when the tree does not match. The results are the same either way.
    type: bool
    default: true
  workers:
    description: Threads that look at entries and read files. V(0) takes as many as this process may use processors, two
      to eight, for large files, and for everything once calls to the file system turn out to be slow, as on Lustre;
      where they are quick, up to three other processes help. The record does not depend on it.
    type: int
    default: 0
  max_listed:
    description: How many paths each list of the result has at most. Totals count all.
    type: int
    default: 100
notes:
  - Without Ansible, the files of a recorded tree are checked, standing in it, by C(jq -r '.entries[] | select(.sha256)
    | .sha256 + " " + .path' .torchstack/manifest.json | sha256sum -c), as long as their names are UTF-8 without line
    breaks and backslashes.
  - The record's digest shows accidents, not forgers, who could write another one. Keep RV(digest) elsewhere for that.
seealso:
  - module: hpcml.torchstack.tree_permissions
"""

EXAMPLES = r"""
- name: Record a frozen release
  hpcml.torchstack.tree_manifest:
    path: /soft/pytorch/2026-11-20
    root: /soft/pytorch
    record: /soft/pytorch/2026-11-20/.torchstack/manifest.json

- name: See quickly whether files came, went, or have another mode or size
  hpcml.torchstack.tree_manifest:
    path: /soft/pytorch/2026-11-20
    root: /soft/pytorch
    record: /soft/pytorch/2026-11-20/.torchstack/manifest.json
    state: compared
    content: quick
    exclude: ["**/__pycache__"]
    fail_on_drift: false
"""

RETURN = r"""
digest:
  description: SHA-256 over the lines of the record's entries. With O(state=recorded) of the new record, which is not
    given when recording fails; with O(state=compared) of the one on disk.
  returned: once the tree was read
  type: str
previous:
  description: The same of the record that was there before; null where there was none, or none that can be used.
  returned: with O(state=recorded), once the tree was read
  type: str
matches:
  description: Whether the tree is as recorded.
  returned: with O(state=compared), once the tree was read
  type: bool
counts:
  description: Names of files, directories (the tree included), symbolic links and others in the record.
  returned: once the tree was read
  type: dict
  sample: {files: 183214, directories: 14002, symlinks: 3120, others: 0}
bytes:
  description: Bytes of all files in the record. A file with several names counts once for each.
  returned: once the tree was read
  type: int
totals:
  description: How many paths were C(added), C(removed), of another C(type), C(mode), C(size), C(content), C(target) or
    with other C(attributes) than recorded, and how many are in RV(unstable), RV(unreadable) and RV(foreign). Another
    type is the whole difference of a path. Another size implies another content, which is then not counted.
  returned: once the tree was read
  type: dict
added:
  description: The first paths that are in the tree and not in the record.
  returned: once the tree was read
  type: list
  elements: str
removed:
  description: The first paths that are in the record and not in the tree.
  returned: once the tree was read
  type: list
  elements: str
differing:
  description: The first differences of paths that are in both. Modes are octal, content is a SHA-256 digest.
  returned: once the tree was read
  type: list
  elements: dict
  sample: [{path: base/bin/python3.13, kind: mode, from: "0555", to: "0755"}]
unstable:
  description: The first paths that changed while they were read, with the reason.
  returned: once the tree was read
  type: list
  elements: str
unreadable:
  description: The first paths that could not be read, with the reason.
  returned: once the tree was read
  type: list
  elements: str
  sample: [base/private (Permission denied)]
foreign:
  description: The first paths whose owner is not the tree's. They are no difference.
  returned: once the tree was read
  type: list
  elements: str
hardlinked:
  description: Names of files that have more than one name, here or elsewhere.
  returned: once the tree was read
  type: int
excluded:
  description: Entries left out, the record among them.
  returned: once the tree was read
  type: int
workers:
  description: Threads used, beside the one that lists directories, unless it was one in all.
  returned: once the tree was read
  type: int
seconds:
  description: How long it took.
  returned: once the tree was read
  type: float
record_problem:
  description: Why the record that was there cannot be used. It is replaced, and every path counts as added.
  returned: with O(state=recorded), where there is such a record
  type: str
planned_after:
  description: The step that creates the tree.
  returned: check mode, where tree or record do not exist yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(options), C(check the boundary), C(read the record), C(read the tree), C(write the
    record) or C(compare).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest


def render(result: dict) -> dict[str, str]:
    """Render the difference between the record before and after: digests, counts, and the first paths."""
    before = ["# digest %s" % (result["previous"] or "none")]
    after = [
        "# digest %s" % result["digest"],
        "# %(files)d files, %(directories)d directories, %(symlinks)d symlinks, %(others)d others" % result["counts"],
        "# %d bytes" % result["bytes"],
    ]
    before += ["removed: %s" % path for path in result["removed"]]
    after += ["added: %s" % path for path in result["added"]]
    for entry in result["differing"]:
        before.append("%(kind)s: %(path)s: %(from)s" % entry)
        after.append("%(kind)s: %(path)s: %(to)s" % entry)
    listed = len(before) + len(after) - 4 - len(result["differing"])
    left = sum(result["totals"][kind] for kind in manifest.KINDS) - listed
    if left > 0:
        after.append("# %d more not listed" % left)
    return {"before": "\n".join(before) + "\n", "after": "\n".join(after) + "\n"}


def is_planned(params: dict) -> bool:
    """Tell whether what this needs is still to be made by the step that ``planned_after`` names."""
    needed = [params["path"], os.path.dirname(params["record"])]
    if params["state"] == "compared":
        needed.append(params["record"])
    return bool(params["planned_after"]) and not all(os.path.lexists(path) for path in needed)


def record_or_compare(params: dict, check_mode: bool) -> dict:
    """Record or compare the tree, and return what the module returns."""
    request = manifest.Request(
        params["path"], params["root"], params["record"], params["content"] == "full", tuple(params["exclude"]),
        params["workers"], params["max_listed"])
    if params["state"] == "recorded":
        result = manifest.record(request, apply=not check_mode)
        if result["changed"]:
            result["diff"] = dict(render(result), before_header=params["record"], after_header=params["record"])
        return result
    result = manifest.compare(request)
    if params["fail_on_drift"] and not result["matches"]:
        raise manifest.difference_error(params["path"], params["record"], result)
    return result


def run(module: AnsibleModule) -> dict:
    """Record or compare the tree; or plan that where it is still to come."""
    params = module.params
    if module.check_mode and is_planned(params):
        return {"changed": params["state"] == "recorded", "planned_after": params["planned_after"]}
    return record_or_compare(params, module.check_mode)


def main() -> None:
    """Run the module."""
    run_module(run, {
        "path": {"type": "path", "required": True},
        "root": {"type": "path", "required": True},
        "record": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["recorded", "compared"], "default": "recorded"},
        "content": {"type": "str", "choices": ["full", "quick"], "default": "full"},
        "exclude": {"type": "list", "elements": "str", "default": []},
        "fail_on_drift": {"type": "bool", "default": True},
        "workers": {"type": "int", "default": 0},
        "max_listed": {"type": "int", "default": 100},
        "planned_after": {"type": "str"},
    })


if __name__ == "__main__":
    main()

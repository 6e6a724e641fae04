#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Apply a directory of patches to a source tree, or undo it, as one change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: patch_series
version_added: 0.2.0
short_description: Apply a directory of patches to a source tree, all or nothing
description:
  - Applies every C(*.patch) and C(*.diff) of a directory to a tree, in byte order of their names, as one change. Either
    all patches are in or the tree is untouched.
  - The whole series is applied in memory first, with exact context and never with fuzz, so that check mode and diff are
    right for patches that build on each other.
  - A tree is pristine, or patched up to a patch of the series, or foreign, which is an error that names the file and
    the hunk. A patch appended to the series is applied on top. A series that changed otherwise, on a tree that carries
    the old one, is an error that says to extract the source again.
  - The header of each patch has to name the git blobs it was made for, as C(git diff) and C(git format-patch) do in
    their C(index) lines. For other diffs, a line C(Torchstack-Pristine:) with a git blob id and a path, before the
    diff, does the same; the path is the one below the tree, the blob the one that the patches before this one leave. A
    file that is created, or changes its name or mode only, needs none. Without, or where the tree has another blob
    although the hunks fit, the series is unverified and refused unless O(allow_unverified) is set.
  - An interrupted run leaves a journal in O(state_dir). The next run completes the change when it has the same wish,
    and takes it back otherwise, and goes on from there; M(hpcml.torchstack.build_step) refuses the tree until then.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
attributes:
  diff_mode:
    description: Shows every touched file before and after the whole change.
options:
  src:
    description: The tree, an existing directory.
    type: path
    required: true
  series:
    description: Directory on the target with the patches. It, and each patch, may be a symbolic link. Hidden files and
      names with other endings, a C(series) as of quilt among them, are passed over and listed in RV(ignored).
      Compressed patches are an error.
    type: path
    required: true
  state_dir:
    description: Directory for the record, the journal and the lock of the tree, outside of it. Created when missing.
      Several trees may share it. Its position relative to O(src) must stay the same.
    type: path
    required: true
  state:
    description: Whether the series is applied to the tree or undone.
    type: str
    choices: [present, absent]
    default: present
  strip:
    description: Leading components to take off the names in the patches, as C(patch -p) does.
    type: int
    default: 1
  max_offset:
    description: How many lines a hunk may lie away from the line in its header, as RV(patches) says. The search is that
      of GNU patch.
    type: int
    default: 0
  allow_unverified:
    description: Accept a series that was never applied to exactly these files, as long as every hunk fits.
    type: bool
    default: false
notes:
  - Only regular files are patched. Binary differences, symbolic links, submodules, and names that are absolute, leave
    the tree or pass a symbolic link are refused.
  - Replaced files keep their permission bits; new ones get 0644 or 0755, new directories 0755, whatever the umask is.
  - Directories that the series created go when it is undone. Directories of the source stay, also empty ones.
"""

EXAMPLES = r"""
- name: Apply the PyTorch patch series
  hpcml.torchstack.patch_series:
    src: /soft/pytorch/2026-11-20/src/pytorch
    series: /soft/pytorch/2026-11-20/src/patches/pytorch/v2.4.1
    state_dir: /soft/pytorch/2026-11-20/.torchstack/patches

- name: Undo it
  hpcml.torchstack.patch_series:
    src: /soft/pytorch/2026-11-20/src/pytorch
    series: /soft/pytorch/2026-11-20/src/patches/pytorch/v2.4.1
    state_dir: /soft/pytorch/2026-11-20/.torchstack/patches
    state: absent
"""

RETURN = r"""
state_before:
  description: The tree as it was found, after a journal was closed. C(kind) is C(pristine), C(applied) or C(foreign),
    C(applied) how many of the C(of) patches are in it; null for a foreign one.
  returned: always, once the tree was read
  type: dict
  sample: {kind: pristine, applied: 0, of: 3}
state_after:
  description: The same of the tree as it is now, or in check mode would be.
  returned: success
  type: dict
patches:
  description: The series in order. C(name) and C(sha256) of the patch file, the C(files) that it touches, and in
    C(offsets) the hunks that are not at the line of their header, with the number of lines between. C(notes) tell what
    GNU patch and git take as well and its author may not have meant, such as blank lines that the end has lost; the
    module warns of them.
  returned: success
  type: list
  elements: dict
  sample:
    - name: 0001-ask-the-mpi-at-run-time.patch
      sha256: 9f86d081
      files: [torch/ProcessGroupMPI.cpp]
      offsets: [{file: torch/ProcessGroupMPI.cpp, hunk: 2, offset: -3}]
      notes: []
series_digest:
  description: Identity of the series, to put among the inputs of a build step - the sha256 over each patch's name, a
    NUL, its own sha256 and a newline, in order.
  returned: always, once the tree was read
  type: str
files:
  description: Paths below the tree that this run changed, or in check mode would change.
  returned: success
  type: list
  elements: str
ignored:
  description: Names in the series directory that are not patches.
  returned: success
  type: list
  elements: str
verified:
  description: Whether every patch header names the blobs that are really there.
  returned: success, once the tree was read
  type: bool
unverified:
  description: What a header does not name (C(named) is null) or names differently, C(before) or C(after) its patch.
  returned: when RV(verified) is false, and when that is refused
  type: list
  elements: dict
  sample: [{patch: 0001-local.patch, file: setup.py, side: before, named: ce1cd90, actual: c0c1050f8c1f}]
recovered:
  description: What became of an interrupted run, or would in check mode. C(direction) is C(forward) when it was
    completed, C(back) when it was undone; C(files) are those that it was about.
  returned: when one was found
  type: dict
planned_after:
  description: The step that creates the tree.
  returned: check mode, where the tree or the series does not exist yet and O(planned_after) was given
  type: str
  sample: pytorch source
failed_step:
  description: What failed - C(check options), C(read series), C(parse series), C(lock), C(read record), C(recover),
    C(read tree), C(detect state), C(verify series) or C(write).
  returned: failure
  type: str
patch:
  description: The patch that is concerned.
  returned: failure, where it is one patch's
  type: str
file:
  description: The file below the tree that is concerned.
  returned: failure, where it is one file's
  type: str
hunk:
  description: The number of the hunk in that file's part of the patch.
  returned: failure, where it is one hunk's
  type: int
line:
  description: The line of the patch file that is concerned.
  returned: failure, where it is known
  type: int
"""

import contextlib
import functools
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches import journal, transaction
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.header_paths import display
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import (
    Series,
    load_series,
    reconcile_series,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series_plan import desired, plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series_record import Place, locked
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series_state import Trial, detect
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.source_files import TreeFile, read_tree_file


def check_options(params: dict) -> Place:
    """Check the options before anything else happens, and return the tree's place on disk."""
    place = Place(params["src"], params["state_dir"])
    if not os.path.isdir(place.src):
        raise StackError("src %s is not a directory." % params["src"], "check options", "Extract the source first.",
                         path=params["src"])
    if os.path.join(place.state_dir, b"").startswith(os.path.join(place.src, b"")):
        raise StackError("state_dir %s lies in the tree." % params["state_dir"], "check options",
                         "Name a directory outside of src.", path=params["state_dir"])
    if params["strip"] < 0 or params["max_offset"] < 0:
        raise StackError("strip and max_offset cannot be negative.", "check options", "Correct them.")
    return place


def render(change: journal.Change) -> dict[str, str]:
    """Render one file of the plan as a difference of two texts, or in words where the text stays the same."""
    sides = (change.before, change.after)
    texts = ["" if side is None else side.content.decode("utf-8", "backslashreplace") for side in sides]
    headers = [
        "/dev/null" if side is None else "%s (mode %04o)" % (display(change.path), side.mode)
        for side in (change.before, change.after)
    ]
    if texts[0] == texts[1]:
        return {"prepared": "%s -> %s\n" % tuple(headers)}
    return {"before": texts[0], "after": texts[1], "before_header": headers[0], "after_header": headers[1]}


def state(level: int, total: int) -> dict[str, object]:
    """Describe a level for the result."""
    return {"kind": "applied" if level else "pristine", "applied": level, "of": total}


def describe(series: Series, trial: Trial | None) -> list[dict[str, object]]:
    """Describe the series for the result, with the offsets that the trial needed."""
    described: list[dict[str, object]] = []
    for index, patch in enumerate(series.patches):
        used = trial.offsets[index] if trial else []
        described.append({
            "name": display(patch.name),
            "sha256": patch.sha256, "notes": list(patch.notes),
            "files": sorted({display(path) for section in patch.files for path in (section.old, section.new)}),
            "offsets": [
                {"file": display(section.new), "hunk": number, "offset": offset}
                for section, offsets in zip(patch.files, used) for number, offset in enumerate(offsets, 1) if offset
            ],
        })
    return described


def reconcile(params: dict, check: bool, diff: bool) -> dict[str, object]:
    """Plan, carry the plan out unless this is a check, and return what the module returns."""
    place = check_options(params)
    series = load_series(params["series"], params["strip"])
    with contextlib.nullcontext() if check else locked(place):
        recovered, reconciled, record = transaction.recover(place, desired(series, params), check)

        @functools.lru_cache(maxsize=None)
        def read(path: bytes) -> TreeFile | None:
            return reconciled[path] if path in reconciled else read_tree_file(place.src, path)

        try:
            series = reconcile_series(series, read)
            trial = detect(series, read, record, params["max_offset"], params["allow_unverified"])
        except StackError as error:
            error.details.update(series_digest=series.digest, **({"recovered": recovered} if recovered else {}))
            raise
        planned = plan(place, series, trial, params, record)
        if not check and (planned.changes or planned.record != record):
            transaction.commit(place, planned)
    total = len(series.patches)
    goal = total if params["state"] == "present" else 0
    result: dict[str, object] = {
        "changed": bool(planned.changes or recovered or trial.level != goal),
        "state_before": state(trial.level, total),
        "state_after": state(goal, total),
        "patches": describe(series, trial),
        "series_digest": series.digest,
        "files": [display(change.path) for change in planned.changes],
        "ignored": [display(name) for name in series.ignored],
        "verified": not trial.notes,
    }
    if trial.notes:
        result["unverified"] = [note.as_result() for note in trial.notes]
    if recovered:
        result["recovered"] = recovered
    if diff:
        result["diff"] = [render(change) for change in planned.changes]
    return result


def plan_later(params: dict) -> dict[str, object]:
    """Return the plan for a tree, or a series, that an earlier step will make."""
    result: dict[str, object] = {"changed": True, "planned_after": params["planned_after"]}
    if os.path.isdir(params["series"]):
        series = load_series(params["series"], params["strip"])
        result.update(patches=describe(series, None), series_digest=series.digest)
    return result


def run(module: AnsibleModule) -> dict[str, object]:
    """Bring the tree to the state of the series, or plan that."""
    params = module.params
    missing = not all(os.path.isdir(params[key]) for key in ("src", "series"))
    if module.check_mode and params["planned_after"] and missing:
        return plan_later(params)
    result: dict[str, Any] = reconcile(params, module.check_mode, module._diff)
    for patch in result["patches"]:
        for note in patch["notes"]:
            module.warn(note + ".")
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        "src": {"type": "path", "required": True},
        "series": {"type": "path", "required": True},
        "state_dir": {"type": "path", "required": True},
        "state": {"choices": ["present", "absent"], "default": "present"},
        "strip": {"type": "int", "default": 1},
        "max_offset": {"type": "int", "default": 0},
        "allow_unverified": {"type": "bool", "default": False},
        "planned_after": {"type": "str"},
    })


if __name__ == "__main__":
    main()

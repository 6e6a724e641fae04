#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_record."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_record
short_description: Read and write the records of a release
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
description: Reads what is recorded of a release, opens a release for building, or records that it is frozen. It is
  never opened again then.
attributes:
  diff_mode:
    description: The resolved release file before and after.
options:
  state:
    description:
      - V(present) only reads. V(collected) also reads every record of the steps and roles.
      - V(open) makes the release's directories and writes O(content) as its resolved release file.
      - V(freezing) records that the freeze begins; the release is not built any more from then on. V(frozen) records
        that the release is frozen. The permissions are M(hpcml.torchstack.tree_permissions)'s matter.
      - V(partitions) records O(partitions), for the gate of the publication and for the report.
    type: str
    choices: [present, collected, open, freezing, frozen, partitions]
    default: present
  content:
    description: The text of the resolved release file. Needed with O(state=open).
    type: str
  digest:
    description: The digest of everything that was asked for. Needed with O(state=freezing) and O(state=frozen).
    type: str
  partitions:
    description: The partitions of the site by name, as C(release_context.partitions) has them. C(optional) and
      C(left_out) of each are recorded, where they say anything. Empty for a site that names none.
    type: dict
    default: {}
  manifest:
    description: The manifest of the frozen release, for the record with O(state=frozen).
    type: dict
    suboptions:
      digest:
        description: Digest of the manifest.
        type: str
        required: true
      files:
        description: How many files it lists.
        type: int
      bytes:
        description: How much they hold.
        type: int
  logs:
    description: The archive of the build logs, for the record with O(state=frozen).
    type: dict
    suboptions:
      archive:
        description: Path of the archive.
        type: path
        required: true
      digest:
        description: Digest of the archive.
        type: str
      commit:
        description: The commit that holds the logs, where a repository is named.
        type: str
"""

EXAMPLES = r"""
- name: Open the release
  hpcml.torchstack.release_record:
    root: /soft/torchstack
    release: "2026-11-20"
    state: open
    content: "{{ resolved | to_nice_yaml }}"
"""

RETURN = r"""
content:
  description: The resolved release file as it was before this task; null where there is none.
  returned: always
  type: str
frozen:
  description: The record of the freeze; null where the release is not frozen.
  returned: always
  type: dict
  sample:
    digest: 9f86d081884c
    frozen_at: "2026-11-20T12:00:00Z"
    manifest: {digest: 2c26b46b68ff, files: 12730, bytes: 1100000000}
freezing:
  description: The record of a freeze that began and was interrupted; null where there is none.
  returned: always
  type: dict
thawed:
  description: The record of a thaw that is open; null where there is none. See M(hpcml.torchstack.release_thaw).
  returned: always
  type: dict
retired:
  description: The record of its retirement; null where that has not begun. See M(hpcml.torchstack.release_retire).
  returned: always
  type: dict
partitions:
  description: On which partitions of the site the release has to be accepted, as this was recorded last; empty without.
  returned: always
  type: dict
subject:
  description: What acceptances of the frozen release belong to - the digest of what was asked for, and after a thaw
    that changed files a digest over that and the new manifest. Empty where the release is not frozen.
  returned: always
  type: str
prefix:
  description: The release's directory.
  returned: always
  type: str
records:
  description: The records of the steps (C(steps)), of the build (C(build)), of what came after it (C(afterwards)) and
    of that on each partition of the site (C(partitions)), and what could not be read of them (C(unreadable), paths with
    the reason).
  returned: with O(state=collected)
  type: dict
  sample: {steps: {horovod: {seconds: 151.2}}, build: {}, afterwards: {}, partitions: {}, unreadable: []}
last:
  description: How long the steps of the C(release) took that was frozen last below this root, besides this one, in
    C(seconds); of one that was taken over, what its build had taken. Empty where there is none.
  returned: with O(state=collected), in check mode
  type: dict
  sample: {release: "2026-10-01", seconds: {horovod: 473.0}}
directories:
  description: Directories made, or to be made in check mode.
  returned: with O(state=open)
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import now
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import root_lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import records as release_records


def run(module: AnsibleModule) -> dict:
    """Read the records of the release, and bring them to their state."""
    os.umask(0o022)
    params, check_mode = module.params, module.check_mode
    files = release_records.ReleaseFiles(params["root"], params["release"])
    recorded = release_records.read(files)
    result = {"changed": False, "prefix": files.prefix, **recorded}
    if params["state"] == "collected":
        result["records"] = release_records.collect(files)
        if check_mode:
            result["last"] = release_records.last_durations(files)
    elif params["state"] == "open":
        result.update(open_release(files, recorded, params["content"], check_mode))
    elif params["state"] == "freezing":
        record = {"digest": params["digest"], "begun_at": now()}
        begun = recorded["freezing"] or recorded["frozen"]
        result["changed"] = not begun or begun.get("digest") != params["digest"]
        if result["changed"] and not check_mode:
            with root_lock.held(params["root"]):
                release_records.begin_freeze(files, record)
    elif params["state"] == "frozen":
        record = {"digest": params["digest"]}
        for key in ("manifest", "logs"):
            if params[key]:
                record[key] = {name: value for name, value in params[key].items() if value is not None}
        before = recorded["frozen"] or {}
        result["changed"] = any(before.get(key) != value for key, value in record.items())
        if result["changed"] and not check_mode:
            with root_lock.held(params["root"]):
                release_records.record_freeze(files, {**record, "frozen_at": now()})
    elif params["state"] == "partitions":
        wanted = {
            name: {key: said[key] for key in ("optional", "left_out") if said.get(key)}
            for name, said in params["partitions"].items()}
        result["changed"] = release_records.write_partitions(files, wanted, check_mode)
    return result


def open_release(files: release_records.ReleaseFiles, recorded: dict, content: str, check_mode: bool) -> dict:
    """Make the directories of the release and store its definition.

    Raises:
        StackError: the release is frozen.
    """
    frozen = recorded["frozen"]
    if frozen:
        raise StackError(
            "Release %s is frozen since %s and is not opened again." % (files.release, frozen.get("frozen_at")),
            "open", "Make a new release: a release file of another name.", files.prefix)
    missing = release_records.planned_directories(files)
    changed = bool(missing) or recorded["content"] != content or recorded["freezing"] is not None
    if changed and not check_mode:
        release_records.open_release(files, content, missing)
    return {
        "directories": missing, "changed": changed, "diff": text_diff(files.resolved, recorded["content"], content)}


def main() -> None:
    """Run the module."""
    run_module(run, {
        **RELEASE,
        "state": {
            "type": "str", "choices": ["present", "collected", "open", "freezing", "frozen", "partitions"],
            "default": "present"},
        "content": {"type": "str"},
        "digest": {"type": "str"},
        "partitions": {"type": "dict", "default": {}},
        "manifest": {
            "type": "dict", "options": {
                "digest": {"type": "str", "required": True}, "files": {"type": "int"}, "bytes": {"type": "int"}},
        },
        "logs": {
            "type": "dict", "options": {
                "archive": {"type": "path", "required": True}, "digest": {"type": "str"}, "commit": {"type": "str"}},
        },
    }, required_if=[
        ("state", "open", ["content"]), ("state", "freezing", ["digest"]), ("state", "frozen", ["digest"])])


if __name__ == "__main__":
    main()

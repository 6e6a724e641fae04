#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_notice; the work is in module_utils/notice_*.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_notice
short_description: Gather what users have to know about a new release
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
description:
  - Compares a frozen release with the default before it, as both are installed, and writes what differs as
    C(<root>/.torchstack/<release>/notice.json). The role notice makes the announcement from it.
  - The default before it is the same before the release becomes the default, while it is, and when it no longer is. The
    same releases in the same state give the same bytes.
attributes:
  diff_mode:
    support: none
    description: The role shows the differences of the text that it makes from these facts.
options:
  release:
    description: The name of the release that is announced.
  since:
    description: The name of the release whose users the announcement is for. Empty for the default before O(release).
    type: str
    default: ""
  state:
    description: V(found) only says which releases the announcement is about, and hands over their resolved release
      files, as YAML cannot be read where there is only a Python. V(written) gathers the facts and writes them.
    type: str
    choices: [found, written]
    default: written
  resolved:
    description: The content of the resolved release file of O(release). Needed with O(state=written).
    type: dict
  resolved_since:
    description: That of the other release. Empty where there is none, or where its files are gone.
    type: dict
    default: {}
  known_problems:
    description: What is known to be wrong with the release. Left out, the facts say that it is not known.
    type: list
    elements: dict
    suboptions: &problem
      problem:
        description: What is wrong.
        type: str
        required: true
      workaround:
        description: What to do about it.
        type: str
        default: ""
      url:
        description: Where there is more about it.
        type: str
        default: ""
  known_problems_since:
    description: What is known to be wrong with the other release.
    type: list
    elements: dict
    suboptions: *problem
  until:
    description: Until when the other release stays, in words. Empty for what the record of its retirement says.
    type: str
    default: ""
seealso:
  - module: hpcml.torchstack.modulefile_publish
"""

EXAMPLES = r"""
- name: See which release is the one before
  hpcml.torchstack.release_notice:
    root: /soft/torchstack
    release: "2026-11-21"
    state: found
  register: found

- name: Gather what is to be announced
  hpcml.torchstack.release_notice:
    root: /soft/torchstack
    release: "2026-11-21"
    resolved: "{{ found.content | from_yaml }}"
    resolved_since: "{{ found.content_since | from_yaml or {} }}"
"""

RETURN = r"""
since:
  description: The release before; empty for a first release.
  returned: success
  type: str
content:
  description: The text of the resolved release file.
  returned: with O(state=found)
  type: str
content_since:
  description: That of the release before; empty where there is none, or where its files are gone.
  returned: with O(state=found)
  type: str
facts:
  description:
    - The facts, as they are in the file, of the version C(format). C(release) (name, title, site, module and standing),
      C(outgoing) (the same of the one before, and C(until)), and whether both could be C(compared).
    - What differs - C(components) (versions, commits, places, patches), C(flags) (build options), C(packages), C(files)
      (the site's own), C(compatibility) (interfaces) and C(settings) (what loading the module does otherwise); for a
      first release, C(contents) has its parts.
    - C(actions) that users have to take, C(known_problems) of the release (null where that is not known), and
      C(solved_problems), which the one before had.
  returned: with O(state=written)
  type: dict
  sample:
    components: [{key: pytorch, name: PyTorch, change: up, before: 2.0.1, after: 2.13.0}]
    flags: [{component: Horovod, name: HOROVOD_WITH_MPI, change: removed, before: "1", after: ""}]
    packages: [{name: einops, kind: python, change: added, before: "", after: 0.8.2}]
    files: [{name: site-packages/sitecustomize.py, change: changed}]
    compatibility: [{key: python, name: Python, before: "3.10", after: "3.12"}]
    settings: [{kind: variable, name: NCCL_CROSS_NIC, change: added, before: "", after: "1", reason: ""}]
path:
  description: Path of the document.
  returned: with O(state=written)
  type: str
planned_after:
  description: The role that freezes the release; in check mode, where that has not been done.
  returned: in check mode, when the release is not frozen
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_document
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import stage_directory

PROBLEM = {
    "problem": {"type": "str", "required": True}, "workaround": {"type": "str", "default": ""},
    "url": {"type": "str", "default": ""},
}


def run(module: AnsibleModule) -> dict:
    """Find the two releases, or write what a notice says of them."""
    os.umask(0o022)
    params = module.params
    frozen = os.path.join(stage_directory(params["root"], params["release"]), "frozen.json")
    if module.check_mode and not os.path.exists(frozen):
        return {"changed": params["state"] == "written", "since": params["since"], "planned_after": "freeze"}
    found = notice_document.compared_releases(params["root"], params["release"], params["since"])
    since = found[1].release if found[1] else ""
    if params["state"] == "found":
        content, content_since = (notice_document.resolved_text(state) for state in found)
        return {"changed": False, "since": since, "content": content, "content_since": content_since}
    result = notice_document.write_notice(
        found, (params["resolved"], params["resolved_since"]),
        (params["known_problems"], params["known_problems_since"]), params["until"], module.check_mode)
    return dict(result, since=since)


def main() -> None:
    """Run the module."""
    run_module(run, {
        **RELEASE,
        "since": {"type": "str", "default": ""},
        "state": {"type": "str", "choices": ["found", "written"], "default": "written"},
        "resolved": {"type": "dict"},
        "resolved_since": {"type": "dict", "default": {}},
        "known_problems": {"type": "list", "elements": "dict", "options": PROBLEM},
        "known_problems_since": {"type": "list", "elements": "dict", "options": PROBLEM},
        "until": {"type": "str", "default": ""},
    }, required_if=[("state", "written", ["resolved"])])


if __name__ == "__main__":
    main()

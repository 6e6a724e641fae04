#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""What users see of a release: visible, default, and back again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: modulefile_publish
version_added: 0.1.0
short_description: Make a release visible to users or its version the default, and undo both
description:
  - Makes the verified modulefiles of a release visible under C(<root>/modulefiles/{tcl,lmod}/<name>/), byte for byte,
    and moves the default - C(.version) for Environment Modules, C(.modulerc.lua) for Lmod.
  - Each change is one file renamed into place, in this order - Tcl modulefile, Lua modulefile, Tcl default, Lua
    default. On the way back it is Tcl default, Lua default, Tcl modulefile, Lua modulefile. At no moment does a user
    see half of a file, or a default that is not there.
  - Each change is written to C(<root>/.torchstack/<release>/publish.jsonl) before it is done; the file only ever grows.
    An interrupted run is run again.
  - Refused are a release without a successful verification of its modulefiles, modulefiles that are not the verified
    ones, a release whose last acceptance failed, is missing, or was one of another O(subject) or of other modulefiles
    (C(acceptance.json) beside the journal), and to replace files in the module tree that this collection did not
    write.
author:
  - The hpcml.torchstack contributors (@hpcml)
attributes:
  check_mode:
    support: full
    description:
      - Returns the actions and does none. RV(planned_after) names the role whose record is not there yet.
  diff_mode:
    support: full
    description: The text of each file that users see, before and after.
  idempotent:
    support: full
    description: Does nothing, and writes nothing to the journal, when users see already what they shall see.
options:
  root:
    description: The directory that holds the releases and the module tree.
    type: path
    required: true
  release:
    description: The release's name.
    type: str
    required: true
  state:
    description:
      - V(published) does what O(visible) and O(default) say.
      - V(rolled_back) gives the default back to the version that had it before this one, if it is still visible, and
        takes the default away otherwise. It does nothing if this version is not the default.
      - V(withdrawn) does the same and hides the modulefiles too.
    type: str
    choices: [published, rolled_back, withdrawn]
    default: published
  visible:
    description: Make the modulefiles visible. V(false) leaves them as they are.
    type: bool
    default: false
  default:
    description: Make this version the default. V(false) leaves the default as it is.
    type: bool
    default: false
  subject:
    description:
      - Digest of the frozen release. An acceptance of another one does not count.
      - Empty where whoever publishes does not know it; the last acceptance counts then, whatever it was of.
    type: str
    default: ""
  without_acceptance:
    description:
      - The reason why the release is published without a successful acceptance. It goes into the journal.
      - Empty means never.
    type: str
    default: ""
seealso:
  - module: hpcml.torchstack.modulefile_verify
"""

EXAMPLES = r"""
- name: Make the release visible and the default
  hpcml.torchstack.modulefile_publish:
    root: /soft/torchstack
    release: "2026-11-20"
    visible: true
    default: true

- name: Give the default back
  hpcml.torchstack.modulefile_publish:
    root: /soft/torchstack
    release: "2026-11-20"
    state: rolled_back
"""

RETURN = r"""
actions:
  description: What was done, or would be done in check mode, in order.
  returned: success
  type: list
  elements: dict
  sample:
    - {action: default, syntax: tcl, path: modulefiles/tcl/torchstack/.version, version: "2026-11-20",
       previous: "2026-05-02", sha256: 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef}
previous_default:
  description: The version that was the default before, by syntax; empty where there was none.
  returned: success
  type: dict
  sample: {tcl: "2026-05-02", lmod: "2026-05-02"}
not_verified:
  description: The syntaxes that could not be loaded, because the verifying machine had no such module system.
  returned: success
  type: list
  elements: str
  sample: [tcl]
planned_after:
  description: The role that writes the record that is missing.
  returned: in check mode, when a record is missing
  type: str
  sample: acceptance
failed_step:
  description: What failed - C(check what is to be published), C(read), C(show), C(default) or C(hide).
  returned: failure
  type: str
  sample: check what is to be published
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_layout import SYNTAXES
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_publication import (
    STATES,
    carry_out,
    current_default,
    make_plan,
    not_verified,
    read_facts,
)

NOTHING: dict = {"actions": [], "previous_default": {}, "not_verified": []}


def run(module: AnsibleModule) -> dict:
    """Plan from what is on disk, and do it."""
    params = module.params
    if params["state"] == "published" and not (params["visible"] or params["default"]):
        return {"changed": False, **NOTHING}
    facts = read_facts(params["root"], params["release"], params["subject"])
    actions = make_plan(facts, params["state"], params["visible"], params["default"], params["without_acceptance"])
    unverified = not_verified(facts)
    if any(action.action == "show" for action in actions) and unverified:
        module.warn(
            "The %s modulefile of %s was loaded by nothing: where it was verified, no such module system was found." % (
                " and the ".join(unverified), facts.release)
        )
    if not module.check_mode:
        carry_out(facts, actions, params["without_acceptance"].strip())
    return {
        "changed": bool(actions),
        "actions": [action.as_dict() for action in actions],
        "previous_default": {syntax: current_default(facts, syntax) for syntax in SYNTAXES},
        "not_verified": unverified,
        "diff": [
            {
                "before_header": os.path.join(facts.root, action.path), "before": text(action.before),
                "after_header": os.path.join(facts.root, action.path), "after": text(action.after),
            }
            for action in actions
        ],
    }


def text(content: object) -> str:
    """A file's content for the diff."""
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else ""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release": {"type": "str", "required": True},
            "state": {"type": "str", "choices": list(STATES), "default": "published"},
            "visible": {"type": "bool", "default": False},
            "default": {"type": "bool", "default": False},
            "subject": {"type": "str", "default": ""},
            "without_acceptance": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except StackError as error:
        planned_after = error.details.get("planned_after")
        if module.check_mode and planned_after:
            module.exit_json(changed=True, planned_after=planned_after, **NOTHING)
        module.fail_json(**error.as_result())


if __name__ == "__main__":
    main()

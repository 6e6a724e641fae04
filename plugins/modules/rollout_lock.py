#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Holds or releases the lock of a rollout; the work is in module_utils/lock.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_lock
short_description: One rollout of a release at a time
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes
description:
  - Takes or gives back the lock of one release below one root, the file C(ROOT/.torchstack/RELEASE/lock.json) on the
    target. It names the process that rolls out, which is C(ansible-playbook) itself on the control node.
  - A second rollout is refused in a sentence that names the first one. The same process can take the lock again.
  - The lock of a process that has ended is replaced and reported. That is only judged on its own host and in its own
    process id namespace, by this module on the target and by its action plugin on the control node.
  - The lock is made by link(2), or by exclusive creation where there are no hard links, also on network file systems.
notes:
  - Control nodes without C(/proc) cannot be judged, so their locks always count as those of another host.
options:
  root:
    description: The directory below which releases are installed.
    type: str
    required: true
  release:
    description: Name of the release.
    type: str
    required: true
  state:
    description: V(held) takes the lock, V(released) gives it back. That of somebody else is left alone.
    type: str
    choices: [held, released]
    default: held
  holder:
    description: The process that rolls out. The action plugin fills this in.
    type: dict
    suboptions:
      host:
        description: Host name of the control node.
        type: str
        required: true
      machine:
        description: A digest of the control node's C(/etc/machine-id).
        type: str
        default: ""
      boot_id:
        description: Boot id of the control node.
        type: str
        default: ""
      pid_namespace:
        description: Process id namespace.
        type: str
        default: ""
      pid:
        description: Process id of C(ansible-playbook).
        type: int
        required: true
      start_time:
        description: Start time of that process, in clock ticks since boot.
        type: str
        default: ""
      started:
        description: Start time of that process, in UTC.
        type: str
        default: ""
      user:
        description: Its account.
        type: str
        default: ""
      playbook:
        description: What it runs.
        type: str
        default: ""
  dead:
    description: Tokens of locks whose process the control node has found to be gone. The action plugin fills this in.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Takes and gives back nothing, and says whether a rollout would be refused.
  diff_mode:
    support: none
    description: A lock is no change of the target.
  idempotent:
    description: Never reports a change; the same process can take or give back the lock any number of times.
"""

EXAMPLES = r"""
- name: Take the lock of the release
  hpcml.torchstack.rollout_lock:
    root: /soft/stacks
    release: "2026-11-20"
"""

RETURN = r"""
acquired:
  description: Whether this rollout has the lock now.
  returned: always
  type: bool
released:
  description: Whether the lock was given back.
  returned: always
  type: bool
stale:
  description: Whether the lock was left behind by a process that has ended.
  returned: always
  type: bool
would_block:
  description: Whether the lock is somebody else's, or may be.
  returned: always
  type: bool
holder:
  description: The record in the lock file; empty when there is none.
  returned: always
  type: dict
  sample: {host: login-01, machine: 51c6e1c6a1f3b0aa, boot_id: 3f2a6f0e-9a4e-4a2c-9c44-6b6f1a1d2c11, pid: 41237,
    pid_namespace: "pid:[4026531836]", start_time: "8123345", started: "2026-11-20T10:15:00Z",
    playbook: playbooks/local.yml, user: stacks, since: "2026-11-20T10:15:02Z", token: 9d0cc1e1f2f04a55}
previous:
  description: The record of the process that left the lock behind; empty when there was none.
  returned: always
  type: dict
path:
  description: The lock file.
  returned: always
  type: str
"""

import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock as lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module

_HOLDER = {name: {"type": "str", "default": ""} for name in (
    "machine", "boot_id", "pid_namespace", "start_time", "started", "user", "playbook")}
SPEC = {
    "root": {"type": "str", "required": True},
    "release": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
    "holder": {
        "type": "dict",
        "options": dict(_HOLDER, host={"type": "str", "required": True}, pid={"type": "int", "required": True}),
    },
    "dead": {"type": "list", "elements": "str", "default": []},
}


def lock_path(root: str, release: str) -> str:
    """Return the lock file of a release.

    Raises:
        StackError: the root is no absolute path, or the release no name of a directory.
    """
    if not os.path.isabs(root):
        raise StackError("The root %r is no absolute path." % root, "options", "Write it in full.")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", release):
        raise StackError(
            "The release name %r cannot be a directory's name." % release, "options",
            "Use letters, digits, dot, plus, dash and underscore, and no dot or dash in front.")
    return os.path.join(root, ".torchstack", release, "lock.json")


def plan(module: AnsibleModule, path: str, place: lock.Place) -> dict:
    """Say what taking or giving back the lock would meet, without doing it."""
    current = lock.read_lock(path)
    mine = current is not None and lock.same_holder(current, module.params["holder"])
    verdict = ""
    if current is not None and not mine:
        verdict = lock.DEAD if current["token"] in module.params["dead"] else lock.judge(current, place)
    blocked = module.params["state"] == "held" and verdict in (lock.ALIVE, lock.UNKNOWN)
    if blocked and current is not None:
        held = lock.LockHeld(current, path, verdict)
        refusal = lock.refusal(held, module.params["release"], module.params["root"], place.host)
        module.warn("A rollout would be refused now. %s %s" % (refusal.message, refusal.remedy))
    stale = verdict == lock.DEAD
    return {"holder": current or {}, "would_block": blocked, "stale": stale, "previous": current if stale else {}}


def hold(module: AnsibleModule, path: str, place: lock.Place) -> dict:
    """Take the lock.

    Raises:
        StackError: somebody else has it, or may have it.
    """
    lock.make_directory(os.path.dirname(path))
    try:
        taken = lock.acquire(path, module.params["holder"], place, module.params["dead"])
    except lock.LockHeld as held:
        raise lock.refusal(held, module.params["release"], module.params["root"], place.host) from held
    if taken.replaced:
        module.warn(
            "An earlier rollout has ended without giving its lock back: %s, which held it since %s. "
            "Its lock was taken over." % (lock.describe(taken.replaced), taken.replaced["since"]))
    return {
        "acquired": True, "holder": taken.record, "stale": bool(taken.replaced), "previous": taken.replaced or {}}


def give_back(module: AnsibleModule, path: str) -> dict:
    """Give the lock back, if it is ours."""
    released, found = lock.release(path, module.params["holder"])
    if found and not released:
        module.warn("The lock was left alone, because %s has held it since %s." % (
            lock.describe(found), found["since"]))
    return {"released": released, "holder": {} if released else found or {}}


def run(module: AnsibleModule) -> dict:
    """Take the lock, give it back, or say what that would meet."""
    result: dict = dict.fromkeys(("changed", "acquired", "released", "stale", "would_block"), False)
    result.update(holder={}, previous={})
    place = lock.this_place()
    path = ""
    try:
        path = lock_path(module.params["root"], module.params["release"])
        result["path"] = path
        if not module.params["holder"]:
            raise StackError("No holder is named.", "options", "Use this module through its action plugin, in a task.")
        if module.check_mode:
            result.update(plan(module, path, place))
        elif module.params["state"] == "held":
            result.update(hold(module, path, place))
        else:
            result.update(give_back(module, path))
    except StackError as error:
        error.details = dict(result, **error.details)
        raise
    except OSError as error:
        failure = StackError(
            "The lock %s cannot be changed: %s." % (path, error.strerror or error), "lock",
            "Run this as the account that owns %s." % module.params["root"], path)
        failure.details = result
        raise failure from error
    return result


def main() -> None:
    """Entry point."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Judges whether a release may be retired, and records and does what the role does around it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_retire
version_added: 0.2.0
short_description: Judge whether a release may be retired, put it aside, and record what became of it
description:
  - Keeps the states of a release that is retired, as the role C(retire) brings them about. What users see is changed by
    M(hpcml.torchstack.modulefile_publish), and files are removed by a step of M(hpcml.torchstack.build_step). All
    reasons against it are reported at once.
  - C(<root>/.torchstack/<release>/retired.json) holds the state, and C(retire.jsonl) beside it what was done, when and
    by whom. They stay when the release is gone, so that its name is not used again.
  - An interrupted run is run again.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
attributes:
  check_mode:
    description: Judges and returns the same, and changes nothing.
  diff_mode:
    description: The record before and after.
options:
  state:
    description:
      - V(judged) fails with every reason why the release may not be brought to O(to), and changes nothing.
      - V(deprecated) and V(hidden) record that users see it so, V(kept) forgets that it was to be, as long as it is not
        removed.
      - V(aside) moves the release, and a copy of its image that no other uses, to C(removing) beside its records by
        renaming.
      - V(deleting) records that its files are about to go, or brings it back where O(uses) says that a process has it
        open.
      - V(removed) records that it is gone, once it is.
    type: str
    choices: [judged, deprecated, hidden, kept, aside, deleting, removed]
    default: judged
  to:
    description: What the release is to become. By default what O(state) leads to.
    type: str
    choices: [deprecated, hidden, removed, kept]
  minimum_age:
    description: Days that have to have gone by since the release was frozen.
    type: float
    default: 0
  notice_days:
    description: Days that have to have gone by since its users were told, before it is removed.
    type: float
    default: 0
  uses:
    description: What M(hpcml.torchstack.release_in_use) returned on each host, also where it failed.
    type: list
    elements: dict
    default: []
  unseen:
    description: Why nobody minds what could not be seen of its use. Empty refuses where something could not be seen.
    type: str
    default: ""
  reason:
    description: Why it is retired, for its users and for the journal. Empty keeps what was said before.
    type: str
    default: ""
  successor:
    description: Version of the module that users should load instead. Empty keeps it, or else means the default.
    type: str
    default: ""
  until:
    description: Date after which it may be removed, for its users, as V(2026-12-04). It is not removed before, unless
      O(notice_days) is 0. Empty keeps it, or else means O(notice_days) from the day on which its users were told first.
    type: str
    default: ""
  notice:
    description: The sentence for its users, where it shall not be made of the others.
    type: str
    default: ""
seealso:
  - module: hpcml.torchstack.release_in_use
  - module: hpcml.torchstack.modulefile_publish
"""

EXAMPLES = r"""
- name: See whether the release may be removed
  hpcml.torchstack.release_retire:
    root: /soft/torchstack
    release: "2026-05-02"
    to: removed
    minimum_age: 30
    notice_days: 14
    uses: "{{ uses.results }}"

- name: Put it aside
  hpcml.torchstack.release_retire:
    root: /soft/torchstack
    release: "2026-05-02"
    state: aside
"""

RETURN = r"""
stage:
  description: How far the retirement was before - empty, V(deprecated), V(hidden), V(removing) or V(removed).
  returned: success
  type: str
deleting:
  description: Whether files have begun to go, after which nothing is put back.
  returned: success
  type: bool
seen:
  description: Whether any module system knows it.
  returned: success
  type: bool
gone:
  description: Whether loading it fails with a sentence.
  returned: success
  type: bool
module:
  description: Full name of its module, empty where it has none.
  returned: success
  type: str
notice:
  description: The sentence for its users, in the state that it is brought to.
  returned: success
  type: str
  sample: torchstack/2026-05-02 was retired on 2026-12-05. Please load torchstack/2026-11-20 instead.
record:
  description: The record of its retirement, as it is or would be.
  returned: success
  type: dict
  sample: {state: deprecated, since: "2026-11-20T08:15:00Z", told_at: "2026-11-20T08:15:00Z", until: "2026-12-04",
    reason: "", successor: "2026-11-20"}
planned:
  description: What comes back when it is removed - C(inodes), and C(bytes) of the blocks in use. C(names) are entries
    of directories. C(shared) are files that have further names elsewhere and stay there.
  returned: where it is to be removed
  type: dict
  sample: {names: 45012, inodes: 45010, bytes: 6442450944, shared: 0}
trees:
  description: What is removed, by its place while it is aside.
  returned: where it is to be removed
  type: list
  elements: path
removal:
  description: What the step that removes it recorded last; empty before.
  returned: where it is to be removed
  type: dict
  sample:
    attempts: 1
    done: true
    freed: {names: 45012, inodes: 45010, bytes: 6442450944}
    seconds: 93.2
    operations: 91240
    refused: []
put_back:
  description: Whether it was brought back to its place.
  returned: O(state=deleting)
  type: bool
problems:
  description: Why it is not retired, or why it was put back; one sentence each.
  returned: failure, and O(state=deleting)
  type: list
  elements: str
  sample: ["It is the default of Lmod: make another release the default first."]
failed_step:
  description: What failed - C(check what is to be retired), C(find the releases), C(look for images), C(record),
    C(aside), C(deleting) or C(removed).
  returned: failure
  type: str
"""

import contextlib
import json
import os

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import now
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.redaction import without_credentials
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import retire_steps, root_lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.retire import (
    RECORD,
    STAGES,
    Facts,
    Rules,
    Words,
    load_message,
    read_facts,
    removal_record,
    require_date,
    retirement_record,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.retire_checks import (
    command_of,
    find_problems,
    find_use_problems,
    refusal_error,
    require_gone,
)

AS_USERS_SEE = ("deprecated", "hidden", "kept")


def retire(params: dict, apply: bool) -> dict:
    """Judge, do what is asked for, and return what the module returns."""
    os.umask(0o022)
    state = params["state"]
    to = params["to"] or (state if state in AS_USERS_SEE else "removed")
    unseen = without_credentials(params["unseen"]).strip()
    rules = Rules(params["minimum_age"], params["notice_days"], unseen)
    require_date(params["until"])
    words = Words(without_credentials(params["reason"]).strip(), params["successor"], params["until"])
    root, release = params["root"], params["release"]
    facts = read_facts(root, release)
    # What takes long comes before the lock, under which everything else is read anew.
    amount = retire_steps.measure(facts) if to == "removed" and not facts.record.get("planned") else facts.amount
    changes = apply and state != "judged"
    with root_lock.held(root) if changes else contextlib.nullcontext():
        facts = (read_facts(root, release) if changes else facts)._replace(amount=amount)
        record = facts.record
        if not record.get("planned"):
            record = retirement_record(facts, to, words, rules, now())
            if to == "removed":
                record = retire_steps.removing_record(facts, record)
        return decide(facts, record, params, rules, apply)


def decide(facts: Facts, record: dict, params: dict, rules: Rules, apply: bool) -> dict:
    """Judge a release by what is on disk now, and do what is asked for."""
    state = params["state"]
    to = params["to"] or (state if state in AS_USERS_SEE else "removed")
    found = []
    if state == "judged":
        found = find_problems(facts, to, rules, params["uses"], now())
    elif state in (*AS_USERS_SEE, "aside"):
        found = find_problems(facts, to, Rules(), [], now())
    if found:
        raise refusal_error(facts, found)
    result: dict = {
        "changed": False, "stage": facts.stage, "deleting": bool(facts.record.get("deleting")), "seen": facts.seen,
        "gone": any(facts.state.gone.values()), "module": facts.module, "record": record,
        "notice": load_message(facts, record, without_credentials(params["notice"])),
    }
    if to == "removed":
        known = facts._replace(record=record)
        result.update(
            planned=record["planned"], trees=retire_steps.removal_paths(known),
            removal=removal_record(facts.afterwards))
    try:
        result.update(ACTIONS[state](facts, record, params, apply))
    except OSError as error:
        raise StackError(
            "Cannot change %s: %s." % (error.filename or facts.state.prefix, error.strerror), state,
            "Run as the account that owns the root, and run this again: it goes on where it stopped.",
            str(error.filename or facts.state.prefix)) from error
    if result["changed"]:
        path = os.path.join(facts.afterwards, RECORD)
        result["diff"] = text_diff(path, text(facts.record), text(result["record"]))
    return result


def do_nothing(_facts: Facts, _record: dict, _params: dict, _apply: bool) -> dict:
    """Change nothing."""
    return {}


def record_state(facts: Facts, record: dict, params: dict, apply: bool) -> dict:
    """Record what users see."""
    changed = record != facts.record
    if changed and apply:
        retire_steps.record_action(facts, record, params["state"])
    return {"changed": changed}


def put_aside(facts: Facts, record: dict, _params: dict, apply: bool) -> dict:
    """Move the release aside, or complete that."""
    changed = record != facts.record or retire_steps.is_in_place(facts)
    if changed and apply:
        require_gone(facts)
        retire_steps.put_aside(facts, record)
    return {"changed": changed}


def require_aside(facts: Facts, state: str, apply: bool) -> None:
    """Refuse to go on with a release that nobody has put aside, or that somebody else has put back."""
    if apply and not facts.record.get("planned"):
        raise StackError(
            "Release %s is not aside: it was put back meanwhile." % facts.state.release, state,
            "Run it again: %s." % command_of(facts.state.release, "removed"), facts.state.prefix)


def begin_deletion(facts: Facts, record: dict, params: dict, apply: bool) -> dict:
    """Record that files go, or put the release back."""
    if facts.record.get("deleting") or facts.stage == "removed":
        return {"put_back": False, "problems": []}
    require_aside(facts, "deleting", apply)
    found = [problem for host in params["uses"] for problem in find_use_problems(host, params["unseen"].strip())]
    if found:
        before = retire_steps.put_back(facts) if apply else record["before"]
        notice = load_message(facts, before) if before else ""
        return {"changed": True, "put_back": True, "problems": found, "record": before, "notice": notice}
    looked = {str(host["host"]) for host in params["uses"] if "in_use" in host}
    record = dict(record, deleting=True, looked=sorted(looked))
    if params["unseen"].strip():
        record["unseen"] = without_credentials(params["unseen"].strip())
    if apply:
        retire_steps.record_action(facts, record, "deleting")
    return {"changed": True, "put_back": False, "problems": [], "record": record}


def record_removal(facts: Facts, record: dict, _params: dict, apply: bool) -> dict:
    """Record that the release is gone."""
    if facts.stage == "removed":
        return {}
    require_aside(facts, "removed", apply)
    left = [path for path in retire_steps.removal_paths(facts._replace(record=record)) if os.path.lexists(path)]
    if left and apply:
        raise StackError(
            "%s is still there." % left[0], "removed", "Run it again: %s." % command_of(facts.state.release, "removed"),
            left[0])
    done = removal_record(facts.afterwards)
    record = dict(record, state="removed", freed=done.get("freed", {}), removed_at=now())
    if apply:
        retire_steps.record_action(facts, record, "removed")
    return {"changed": True, "record": record}


ACTIONS = {
    "judged": do_nothing, "deprecated": record_state, "hidden": record_state, "kept": record_state,
    "aside": put_aside, "deleting": begin_deletion, "removed": record_removal,
}


def text(record: dict) -> str:
    """Render a record for the diff."""
    return json.dumps(record, indent=2, sort_keys=True) + "\n" if record else ""


def main() -> None:
    """Entry point."""
    run_module(lambda module: retire(module.params, not module.check_mode), {
        **RELEASE,
        "state": {"type": "str", "choices": list(ACTIONS), "default": "judged"},
        "to": {"type": "str", "choices": list(STAGES)},
        "minimum_age": {"type": "float", "default": 0},
        "notice_days": {"type": "float", "default": 0},
        "uses": {"type": "list", "elements": "dict", "default": []},
        "unseen": {"type": "str", "default": ""},
        "reason": {"type": "str", "default": ""},
        "successor": {"type": "str", "default": ""},
        "until": {"type": "str", "default": ""},
        "notice": {"type": "str", "default": ""},
    })


if __name__ == "__main__":
    main()

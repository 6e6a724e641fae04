#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Change what users see of a release: visible, default, back again, and on its way out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: modulefile_publish
version_added: 0.2.0
short_description: Make a release visible or the default, and take it back, in steps that users cannot stumble over
description:
  - Makes the verified modulefiles of a release visible under C(<root>/modulefiles/{tcl,lmod}/<name>/), byte for byte,
    those kinds that the release was verified with, and moves the default - C(.version) for Environment Modules,
    C(.modulerc.lua) for Lmod. What is not to be listed is named in C(.modulerc) for Environment Modules (4.6 and
    later) and in C(.modulerc.lua) for Lmod.
  - A release on its way out is deprecated (loading it says so), hidden (it loads by its full name only), then gone
    (loading it fails with one sentence). Who has the module loaded can unload it at every stage.
  - Where a module has further names (C(also_named)), what is done to it is done to the
    modulefile and the default of each of them right before. Of a version that has such a name no longer, that one goes.
  - Each change is one file renamed into place, Tcl before Lua in each step - modulefiles, hidden or listed, default. At
    no moment does a user see half of a file, or a default that is not there.
  - Each change is written to C(<root>/.torchstack/<release>/publish.jsonl) before it is done, numbered over all
    releases of the root; the file only ever grows. An interrupted run is run again. Of several who publish below one
    root at once, one waits for the other (C(<root>/.torchstack/publish.lock.json)).
  - Refused are a release without a successful verification of its modulefiles, modulefiles that are not the verified
    ones, a release whose last acceptance failed, is missing, or was one of another O(subject) or of other modulefiles
    (C(acceptance.json) beside the journal, or in C(partitions/<name>) there for each of O(partitions)), one that is
    thawed or was removed, one that a quick look for drift finds changed (see M(hpcml.torchstack.release_drift)), one
    whose manifest or statement of where it comes from is not that of its freeze or, with O(allowed_signers), whose
    statement none of these has signed, to hide the default, and to replace files in the module tree that this
    collection did not write.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._sessions.system
attributes:
  check_mode:
    description: Returns the actions and does none. RV(planned_after) names the role whose record is not there yet.
  diff_mode:
    description: The text of each file that users see, before and after.
options:
  root:
    description: The directory that holds the releases and the module tree.
    type: path
    required: true
  release:
    description: The release's name. May be left out with O(state=rolled_back), which takes back the last move of a
      default then.
    type: str
    default: ""
  state:
    description:
      - V(published) does what O(visible) and O(default) say.
      - V(rolled_back) gives the default back to the version that had it before this one, or to the one before that if
        it does not load any more, or to none. It does nothing if this version is not the default.
      - V(withdrawn) does the same and removes the modulefiles too.
      - V(deprecated) has the modulefiles that users see say O(notice) on load.
      - V(hidden) keeps them out of C(module avail); they load by their full name, and say O(notice). Without a notice
        it is the stage before V(published), for testers; a release that is not visible becomes loadable then.
      - V(gone) has loading fail with O(notice).
      - Nothing that users do not see is deprecated, hidden or gone with a notice.
    type: str
    choices: [published, rolled_back, withdrawn, deprecated, hidden, gone]
    default: published
  visible:
    description: Make the modulefiles visible. V(false) leaves them as they are.
    type: bool
    default: false
  default:
    description: Make this version the default. V(false) leaves the default as it is.
    type: bool
    default: false
  first_only:
    description: With O(default), make this version the default only where this publishes the release for the first
      time, no rollback of the default stands, the default is no later version than this one, and nobody has moved it
      since the release was frozen, as a rollout asks. RV(users_load) says which of these stands.
    type: bool
    default: false
  module:
    description: Name of the module, for a plan of a release that has none yet.
    type: str
    default: torchstack
  notice:
    description: One sentence for users of a release that is deprecated, hidden or gone. Empty keeps that of now.
    type: str
    default: ""
  known_problems:
    description: Sentences that the module's help ends with, as long as the module loads. Left out, it stays as it is.
    type: list
    elements: str
  revive:
    description: Bring a release back of which users were told that it goes. V(false) leaves such a release as it is
      when it is to be visible, and refuses a step back.
    type: bool
    default: false
  subject:
    description: Digest of the frozen release. An acceptance of another one does not count. When empty, the last
      acceptance counts, whatever it was of, but for one of before a thaw that changed files.
    type: str
    default: ""
  partitions:
    description:
      - The partitions of the site by name, as C(release_context.partitions) has them. The release has to be accepted on
        each of which neither C(optional) nor C(left_out) says why not. Empty for a site that names none.
      - Left out, those that are recorded beside the journal (C(partitions.json)).
    type: dict
  without_acceptance:
    description: Why the release is published without a successful acceptance, for the journal. Empty means never.
    type: str
    default: ""
  reason:
    description: Why this is done, for the journal.
    type: str
    default: ""
  allowed_signers:
    description: A file of those who may sign a release's statement, as in C(ssh-keygen(1\)). What none of them has
      signed is not published. Left out, nobody asks for a signature.
    type: path
seealso:
  - module: hpcml.torchstack.modulefile_verify
  - module: hpcml.torchstack.module_cache
  - module: hpcml.torchstack.releases_info
"""

EXAMPLES = r"""
- name: Make the release visible and the default
  hpcml.torchstack.modulefile_publish:
    root: /soft/torchstack
    release: "2026-11-20"
    visible: true
    default: true

- name: Take back the last move of the default, whoever made it
  hpcml.torchstack.modulefile_publish:
    root: /soft/torchstack
    state: rolled_back

- name: Tell users that a release goes
  hpcml.torchstack.modulefile_publish:
    root: /soft/torchstack
    release: "2026-05-02"
    state: deprecated
    notice: torchstack/2026-05-02 goes on 2027-01-31, please use torchstack/2026-11-20.
"""

RETURN = r"""
actions:
  description: What was done, or would be done in check mode, in order. C(action) is C(show), C(deprecate), C(gone) or
    C(remove) for a modulefile, C(hide) or C(list) for the list of what is hidden, C(default), and C(also) for any of
    these files of a further name.
  returned: success
  type: list
  elements: dict
  sample:
    - {action: default, syntax: tcl, path: modulefiles/tcl/torchstack/.version, version: "2026-11-20",
       previous: "2026-05-02", sha256: 5f70bf18a086}
release:
  description: The release whose modulefiles, or whose default, this was about; empty where no default ever moved.
  returned: success
  type: str
module:
  description: The full name of its module; empty where it has none.
  returned: success
  type: str
version:
  description: The version of its module; empty where it has none.
  returned: success
  type: str
states:
  description: What users see of the release then, by syntax - C(none), C(visible), C(hidden) or C(gone).
  returned: success
  type: dict
  sample: {tcl: visible, lmod: visible}
default:
  description: The version that is the default then, by syntax; empty where there is none.
  returned: success
  type: dict
  sample: {tcl: "2026-11-20", lmod: "2026-11-20"}
previous_default:
  description: The version that was the default before, by syntax; empty where there was none.
  returned: success
  type: dict
  sample: {tcl: "2026-05-02", lmod: "2026-05-02"}
notice:
  description: What loading the release says, or said before this; empty where it says nothing.
  returned: success
  type: str
users_load:
  description: With O(state=published), what users get who load the module without a version, and why, in sentences.
  returned: success
  type: list
  elements: str
  sample:
    - "Users who load torchstack get 2026-11-21, unchanged: it is newer than torchstack/2026-11-20. To move it:
      playbooks/publish.yml -e torchstack_release=2026-11-20 -e publish_to=default."
rolled_back_at:
  description: When the default was taken back from this release the last time, in UTC; empty where it never was.
  returned: success
  type: str
summary:
  description: What was done and what users see then, in sentences.
  returned: success
  type: list
  elements: str
  sample: [Users of Environment Modules and Lmod see torchstack/2026-11-20 in 'module avail'.]
not_verified:
  description: The syntaxes that could not be loaded, because the verifying machine had no such module system.
  returned: success
  type: list
  elements: str
planned_after:
  description: The role that writes the record that is missing.
  returned: in check mode, when a record is missing
  type: str
failed_step:
  description: What failed - C(check what is to be published), C(find the releases), C(read), C(lock), or the C(action).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.redaction import without_credentials
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import root_lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication import (
    STATES,
    Desired,
    candidate_of,
    facts_after,
    is_any_listed,
    make_plan,
    not_verified,
    said_by_default,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_changes import (
    DEFAULT,
    SHOW,
    Action,
    carry_out,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import (
    Facts,
    last_move,
    last_rollback,
    read_facts,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_first import (
    Candidate,
    loaded_by_default,
    reason_to_keep,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_proof import require_proof
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_summary import summary_lines
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    stage_directory,
    visible_versions,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.site_system import OPTION, release_syntaxes
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import all_publications, default_of

NOTHING: dict = {
    "actions": [], "previous_default": {}, "default": {}, "states": {}, "not_verified": [], "release": "", "module": "",
    "version": "", "notice": "", "rolled_back_at": "", "summary": [], "users_load": [],
}


def desired_of(params: dict) -> Desired:
    """Return what the options ask for."""
    without_acceptance = without_credentials(params["without_acceptance"]).strip()
    problems = params["known_problems"]
    if problems is not None:
        problems = [without_credentials(problem) for problem in problems]
    return Desired(
        params["state"], params["visible"], params["default"], without_acceptance,
        without_credentials(params["notice"]), problems, params["revive"], params["first_only"])


def read_plan(params: dict, desired: Desired) -> tuple[Facts, list[Action]] | None:
    """Read the facts, and return them with the plan; None where no default ever moved."""
    release = params["release"]
    if not release:
        if desired.state != "rolled_back":
            raise StackError("No release is named.", "options", "Give its name as release.")
        move = last_move(all_publications(params["root"]))
        if move is None:
            return None
        release = move.release
    facts = read_facts(params["root"], release, params["subject"], params["partitions"])
    return facts, make_plan(facts, desired)


def is_shown(desired: Desired, actions: list[Action]) -> bool:
    """Tell whether a release is shown to users, or an operator asks for what they see already."""
    if desired.state != "published":
        return any(action.action == SHOW for action in actions)
    # A rollout that has nothing to do does without the look, which takes minutes on a slow file system.
    return bool(actions) or ((desired.visible or desired.default) and not desired.first_only)


def publish(module: AnsibleModule) -> dict:
    """Plan from what is on disk, and do it."""
    params = module.params
    desired = desired_of(params)
    found = read_plan(params, desired)
    if found and is_shown(desired, found[1]):
        # Before the lock: it looks at every file, and a frozen release does not change meanwhile.
        require_proof(found[0], params["allowed_signers"] or "")
    if found and found[1] and not module.check_mode:
        with root_lock.held(params["root"]):
            found = read_plan(params, desired)
            if found:
                facts, actions = found
                carry_out(facts.root, facts.release, actions, {
                    "without_acceptance": desired.without_acceptance, "reason": without_credentials(params["reason"]),
                    "undo": desired.state in ("rolled_back", "withdrawn"),
                    "first": desired.first_only and any(action.action == DEFAULT for action in actions),
                })
    elif not module.check_mode:
        root_lock.remove_stale(params["root"])
    if not found:
        return {"changed": False, **NOTHING, "summary": ["No default was ever moved below %s." % params["root"]]}
    return result_of(module, desired, *found)


def result_of(module: AnsibleModule, desired: Desired, facts: Facts, actions: list[Action]) -> dict:
    """Return the result, and show its warnings."""
    later = facts_after(facts, actions)
    rolled_back_at = last_rollback(all_publications(facts.root), facts.release)
    unverified, said = not_verified(facts), said_by_default(facts, later)
    for sentence in said:
        module.warn(sentence)
    if any(action.action == SHOW for action in actions) and unverified:
        module.warn(
            "The %s modulefile of %s was loaded by nothing: where it was verified, no such module system was found." % (
                " and the ".join(unverified), facts.release))
    if desired.state == "published" and facts.leaving and not desired.revive:
        module.warn(
            "%s is on its way out, as loading it says, and was left as it is: revive brings it back." % facts.full_name)
    return {
        "changed": bool(actions), "actions": [action.as_dict() for action in actions], "release": facts.release,
        "module": facts.full_name, "version": facts.version, "notice": later.notice,
        "states": {syntax: later.state(syntax) for syntax in later.syntaxes},
        "default": dict(later.defaults), "previous_default": dict(facts.defaults),
        "users_load": loaded_by_default(
            candidate_of(facts), later.defaults, is_any_listed(later), desired.default, desired.first_only,
            module.check_mode,
        ) if desired.state == "published" else [],
        "rolled_back_at": rolled_back_at,
        "summary": [*summary_lines(facts, later, actions, desired.state, rolled_back_at, module.check_mode), *said],
        "not_verified": unverified,
        "diff": [text_diff(os.path.join(facts.root, action.path), action.before, action.after) for action in actions],
    }


def planned(params: dict, desired: Desired, planned_after: str) -> dict:
    """Return the result for a release that has not come so far yet."""
    root, name, release = params["root"], params["module"], params["release"]
    frozen = read_json(os.path.join(stage_directory(root, release), "frozen.json"))
    syntaxes = release_syntaxes(root, release, params["module_system"])
    one = Candidate(
        name, release, release, str(frozen.get("frozen_at", "")) if isinstance(frozen, dict) else "",
        {syntax: default_of(root, syntax, name) for syntax in syntaxes}, all_publications(root))
    moves = desired.default and not (desired.first_only and reason_to_keep(one))
    return {
        **NOTHING, "changed": desired.state != "published" or desired.visible or desired.default, "release": release,
        "planned_after": planned_after,
        "users_load": loaded_by_default(
            one, dict.fromkeys(syntaxes, release) if moves else one.defaults,
            {syntax: desired.visible or bool(visible_versions(root, syntax, name)) for syntax in syntaxes},
            desired.default, desired.first_only, check_mode=True),
    }


def run(module: AnsibleModule) -> dict:
    """Publish; or say what would be done, also where something comes first."""
    params = module.params
    desired = desired_of(params)
    try:
        return publish(module)
    except StackError as error:
        planned_after = error.details.get("planned_after")
        # Nothing that comes first in a rollout makes a release that could be rolled back.
        if module.check_mode and planned_after and desired.state != "rolled_back":
            return planned(params, desired, str(planned_after))
        if planned_after and desired.state == "published" and not (desired.visible or desired.default):
            return {**NOTHING, "changed": False, "release": params["release"]}
        raise


def main() -> None:
    """Entry point."""
    run_module(run, {
        "root": {"type": "path", "required": True},
        "release": {"type": "str", "default": ""},
        "state": {"type": "str", "choices": list(STATES), "default": "published"},
        "visible": {"type": "bool", "default": False},
        "default": {"type": "bool", "default": False},
        "first_only": {"type": "bool", "default": False},
        "module": {"type": "str", "default": "torchstack"},
        "notice": {"type": "str", "default": ""},
        "known_problems": {"type": "list", "elements": "str"},
        "revive": {"type": "bool", "default": False},
        "subject": {"type": "str", "default": ""},
        "partitions": {"type": "dict"},
        "without_acceptance": {"type": "str", "default": ""},
        "reason": {"type": "str", "default": ""},
        "allowed_signers": {"type": "path"},
        **OPTION,
    })


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Load and unload the modulefiles of a release, in real shells."""

from __future__ import annotations

DOCUMENTATION = r"""
module: modulefile_verify
version_added: 0.2.0
short_description: Really load and unload the modulefiles of a release
description:
  - Loads and unloads the modulefiles that M(hpcml.torchstack.modulefile) staged, with each module system and in each
    shell that this machine has, once in a clean environment and once in one where the user already has a value of
    everything that the module changes. What the description declares must arrive, and after unload the environment, the
    aliases and the functions must be the same as before.
  - The variables in which a module system keeps its own accounts do not count - C(LOADEDMODULES), C(_LMFILES_*),
    C(MODULESHOME), C(LMOD_*), C(__LMOD_*), C(_ModuleTable*), C(MODULES_*), C(__MODULES_*) and C(*_modshare), nor do the
    shell's C(_), C(SHLVL), C(PWD) and C(OLDPWD). The sessions have a scratch directory as C(HOME), and no start-up
    file.
  - A module system or shell that is not there is no error. RV(not_checked) and the record
    C(<root>/.torchstack/<release>/modulefile.json) say so.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
  - hpcml.torchstack._sessions
  - hpcml.torchstack._sessions.system
attributes:
  check_mode:
    description: Runs no sessions, but with O(where=published), where nothing is ever written. RV(planned_after) is
      V(modulefile) where the modulefiles are not there yet.
  diff_mode:
    support: none
    description: It writes nothing but its record.
  idempotent:
    description: Nothing is run where the record says that the same bytes passed with the same versions of the same
      module systems in the same shells.
options:
  where:
    description: V(staged) verifies the staged files and writes the record. V(published) verifies what users see,
      always, as the system may have changed, and writes nothing.
    type: str
    choices: [staged, published]
    default: staged
seealso:
  - module: hpcml.torchstack.modulefile
  - module: hpcml.torchstack.modulefile_publish
"""

EXAMPLES = r"""
- name: See whether the published release still loads on today's system
  hpcml.torchstack.modulefile_verify:
    root: /soft/torchstack
    release: "2026-11-20"
    where: published
"""

RETURN = r"""
checked:
  description: The sessions, each with its outcome; from the record where nothing was run.
  returned: success, and failure of a session
  type: list
  elements: dict
  sample:
    - {syntax: lmod, system: Lmod, version: 8.7.60, command: /usr/share/lmod/lmod/libexec/lmod, shell: bash,
       state: clean, passed: true, problems: []}
not_checked:
  description: What this machine has no means to check.
  returned: success, and failure of a session
  type: list
  elements: dict
  sample: [{syntax: tcl, why: Environment Modules was not found on this machine.}]
chosen:
  description: The file that each variable of C(first_file) of the description names on this machine as it is now.
  returned: success
  type: dict
  sample: {SIF: /appl/images/pytorch-2.2.0.sif}
record:
  description: Path of the record.
  returned: success
  type: str
planned_after:
  description: The role that writes what is not there yet.
  returned: in check mode, when the modulefiles do not exist
  type: str
failed_step:
  description: What failed - C(read), C(find the module system), C(load and unload the modulefile) or C(write).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json, write_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    RECORD,
    read_bytes,
    relative_path,
    stage_directory,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.site_system import release_syntaxes
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.verify import (
    SESSIONS,
    carry_out,
    find_commands,
    is_done,
    make_plan,
    read_description,
    verdict,
)


def run(module: AnsibleModule) -> dict:
    """Verify the modulefiles; or say that they are still to come."""
    try:
        return verify(module)
    except StackError as error:
        planned_after = error.details.get("planned_after")
        if module.check_mode and planned_after:
            return {"changed": True, "planned_after": planned_after, "checked": [], "not_checked": [], "chosen": {}}
        raise


def verify(module: AnsibleModule) -> dict:
    """Plan the sessions, run them unless the record has them, and write the record."""
    params = module.params
    stage = stage_directory(params["root"], params["release"])
    staged = params["where"] == "staged"
    top = stage if staged else params["root"]
    description = read_description(stage)
    commands = {"lmod": params["lmod_command"], "tcl": params["modulecmd_command"]}
    found = find_commands(commands, os.environ, params["module_system"])
    syntaxes = release_syntaxes(params["root"], params["release"], params["module_system"])
    if not staged:
        description = published_names(top, description, syntaxes)
    plan = make_plan(top, description, found, params["shells"], params["module_path"], syntaxes)
    path = os.path.join(stage, RECORD)
    record = read_record(path) if staged else None
    if isinstance(record, dict) and is_done(plan, record):
        return result(record, path, False)
    if module.check_mode and staged:
        planned = [check.as_dict() for check in plan.checks]
        return result({"checked": planned, "not_checked": plan.not_checked, "chosen": plan.chosen}, path, staged)
    record = carry_out(plan, top, description, params["module_path"], os.environ, module.tmpdir)
    if staged:
        try:
            write_json(path, record)
        except OSError as error:
            raise StackError(
                "Cannot write %s: %s." % (path, error.strerror), "write", "Run as the account that owns the root.", path
            ) from error
    failure = verdict(record, description)
    if failure:
        raise failure
    return result(record, path, staged)


def published_names(root: str, description: dict, syntaxes: tuple[str, ...]) -> dict:
    """Return the description with those further names that users have: one may wait for the next publication."""
    names = [name for name in description.get("also_named", []) if all(
        read_bytes(os.path.join(root, relative_path(syntax, name, description["version"]))) is not None
        for syntax in syntaxes)]
    return {**description, "also_named": names}


def result(record: dict, path: str, changed: bool) -> dict:
    """Return what the module returns."""
    return {
        "changed": changed, "checked": record["checked"], "not_checked": record["not_checked"],
        "chosen": record.get("chosen", {}), "record": path,
    }


def read_record(path: str) -> object:
    """Read the record of the last verification; None where it is missing or damaged, so that it is made anew."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def main() -> None:
    """Entry point."""
    run_module(run, {
        **RELEASE, "where": {"type": "str", "choices": ["staged", "published"], "default": "staged"}, **SESSIONS,
    })


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Return what loading modules does to an environment, as data."""

from __future__ import annotations

DOCUMENTATION = r"""
module: module_environment
version_added: 0.2.0
short_description: Report what C(module load) does to an environment
description:
  - Answers what C(module purge; module use ...; module load ...) would do, as data, without a shell - the variables set
    and unset, and, kept apart, what no set of variables can hold (functions, aliases, executed commands, completions).
  - Works with Lmod and with Environment Modules, whose machine output is not executed. A failed load is a failure here,
    also where Environment Modules reports it with exit status 0.
  - Each modulefile is evaluated twice, once for Python output and once for bash output, and so are commands that it
    runs (C(exec) in Tcl, C(capture) in Lua).
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
  - hpcml.torchstack._release.planned
options:
  modules:
    description: The modules to load, in this order, as one would type them. Behind a dash, one to unload where it is
      loaded, also where the site has marked it as sticky.
    type: list
    elements: str
    default: []
  use:
    description: Directories to put before C(MODULEPATH); the first one of the list ends up first.
    type: list
    elements: path
    default: []
  setup:
    description: Shell text, or the absolute path of a script, that is sourced between the purge and the loading, as
      O(hpcml.torchstack.build_step#module:setup) is; C(module) is what O(init) and O(init_script) define.
    type: str
    default: ""
  purge:
    description: Unload everything that the environment has loaded before, but for what is sticky.
    type: bool
    default: false
  system:
    description: The module system. V(auto) takes the one that the environment names (E(LMOD_CMD), E(LMOD_PKG),
      E(MODULES_CMD), E(MODULESHOME)), then the one at a well-known path; where both are installed and nothing tells, it
      fails. V(none) is a machine without modules, where asking for some is an error.
    type: str
    choices: [auto, lmod, environment-modules, none]
    default: auto
  command:
    description: Path of the module command, C(lmod) or C(modulecmd.tcl), instead of looking for it.
    type: path
  init:
    description: Start-up files, such as C(/etc/profile.d/lmod.sh), that bash reads first, in this order, for tasks
      whose environment is not that of a login. What they change counts as a change of the environment.
    type: list
    elements: path
    default: []
  init_script:
    description: What defines the command C(module), as O(hpcml.torchstack.build_step#module:module_init) does.
    type: str
    default: ""
  environment:
    description: The complete environment to start from, as texts and numbers. The task's own when left out.
    type: dict
  timeout:
    description: Seconds that one call of the module command may take.
    type: int
    default: 120
notes:
  - RV(environment) holds secrets too. Give O(environment), or set C(no_log), where that matters.
seealso:
  - module: hpcml.torchstack.build_step
"""

EXAMPLES = r"""
- name: Ask what the programming environment sets
  hpcml.torchstack.module_environment:
    purge: true
    use: [/soft/modulefiles]
    modules: [PrgEnv-gnu, cudatoolkit-standalone/12.4]
  register: programming_environment

- name: Run a compiler in it
  ansible.builtin.command: cc --version
  environment: "{{ programming_environment.environment }}"
  changed_when: false
"""

RETURN = r"""
set:
  description: Variables that are new or have another value, with it. The module system's own records are left out.
  returned: success
  type: dict
  sample: {CC: gcc-12, PATH: /opt/gcc/12/bin:/usr/bin:/bin}
unset:
  description: Variables that are gone, without the module system's own records.
  returned: success
  type: list
  elements: str
bookkeeping:
  description: The module system's own records that changed (such as E(LOADEDMODULES)); V(null) for those that are gone.
  returned: success
  type: dict
  sample: {LOADEDMODULES: gcc/12, _LMFILES_: /soft/modulefiles/gcc/12.lua}
not_captured:
  description:
    - What a shell would get besides variables. None of it is in RV(environment).
    - C(functions) and C(aliases) have their text, V(null) for those removed; C(commands) is text that the shell would
      execute, C(completions) are commands that set up its completion.
    - C(differing) are variables that bash would not get with the value in RV(set), which is the modulefile's, as some
      versions of both systems break a value at its line break, and Lmod's shells get no variable with a dot in its
      name. C(not_text) are variables whose value is no UTF-8 text, which are in no other part of the result.
  returned: success
  type: dict
  sample:
    functions: {activate: source /opt/tool/activate $1}
    aliases: {ll: ls -l}
    commands: [ulimit -s unlimited]
    completions: [complete -W 'build test' tool]
    differing: []
    not_text: []
exact:
  description: Whether RV(not_captured) is empty, so that RV(environment) is all that loading the modules does.
  returned: success
  type: bool
environment:
  description: The complete environment after loading, enough to run a program in it.
  returned: success
  type: dict
  sample: {HOME: /home/alice, LOADEDMODULES: gcc/12, PATH: /opt/gcc/12/bin:/usr/bin:/bin}
loaded:
  description: Names and versions of the modules loaded, in load order. On a failed load, those that can be loaded.
  returned: success, or a failed load
  type: list
  elements: str
modulefiles:
  description: The files of these modules, in the same order.
  returned: success
  type: list
  elements: str
messages:
  description: What the module command and the modulefiles said, line by line.
  returned: success, or a failed command
  type: list
  elements: str
  sample: [Lmod is automatically replacing "cce/17" with "gcc/12".]
system:
  description: The module system.
  returned: success
  type: str
command:
  description: Path of its module command.
  returned: success
  type: str
version:
  description: Version of the module command, as it tells it.
  returned: success
  type: str
missing:
  description: Modules asked for that the module system does not have.
  returned: a failed load, or a plan with O(planned_after)
  type: list
  elements: str
refused:
  description: Modules asked for that exist and refuse to load (a conflict, a missing prerequisite, an error in it).
  returned: a failed load
  type: list
  elements: str
planned_after:
  description: The step that creates the missing modulefiles.
  returned: check mode, where modules do not exist yet and O(planned_after) was given
  type: str
  sample: nccl install
failed_step:
  description: What failed - C(input), C(find the module system), C(init), C(setup), C(purge), C(use), C(unload) or
    C(load).
  returned: failure
  type: str
"""

import os
import shlex

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import (
    module_load,
    module_system,
    sourcing,
)


def base_environment(given: dict | None) -> dict[str, str]:
    """Return the environment to start from, as texts."""
    if given is None:
        return dict(os.environ)
    for name, value in given.items():
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise StackError(
                "The value of %s in environment is %r, not a text." % (name, value), "input", "Write it in quotes.")
    return {str(name): str(value) for name, value in given.items()}


def report(params: dict) -> dict[str, object]:
    """Load the modules, and return what that changes."""
    for name in params["modules"]:
        if not name.lstrip("-") or name.startswith("--") or name != name.strip():
            raise StackError("%r is not the name of a module." % name, "input", "Correct modules.")
    before = base_environment(params["environment"])
    timeout = params["timeout"]
    text = params["init_script"]
    is_file = text.startswith("/") and "\n" not in text
    files = params["init"] + ([text] if is_file else [])
    start = before
    if files or text:
        start = sourcing.source_init(before, files, timeout, "" if is_file else text)
    use, purge = params["use"], params["purge"]
    if params["setup"]:
        defining = [". " + shlex.quote(path) for path in files] + ([] if is_file or not text else [text])
        start = sourcing.source_setup(before, defining, params["setup"], use, purge, timeout)
        # What it has put in front of the directories, and loaded, stays.
        use, purge = [] if defining else use, purge and not defining
    if params["setup"] and not (params["modules"] or use or purge):
        return dict(
            module_load.describe(before, start, []), messages=[], system=module_system.NONE, command="", version="")
    system = module_system.find_system(start, params["system"], params["command"])
    after, parts, messages = module_load.load_modules(
        system, start, params["modules"], use, purge, timeout)
    version = "" if system.kind == module_system.NONE else module_system.version(system, start, timeout)
    return dict(
        module_load.describe(before, after, parts),
        messages=messages, system=system.kind, command=system.command, version=version)


def run(module: AnsibleModule) -> dict:
    """Report the environment of the modules, or which of them are still to come."""
    later = module.params["planned_after"]
    try:
        return dict(report(module.params), changed=False)
    except StackError as error:
        missing = error.details.get("missing")
        if module.check_mode and later and missing:
            return {"changed": False, "planned_after": later, "missing": missing, "loaded": error.details["loaded"]}
        raise


def main() -> None:
    """Run the module."""
    run_module(run, {
        "modules": {"type": "list", "elements": "str", "default": []},
        "setup": {"type": "str", "default": ""},
        "use": {"type": "list", "elements": "path", "default": []},
        "purge": {"type": "bool", "default": False},
        "system": {"choices": ["auto", "lmod", "environment-modules", "none"], "default": "auto"},
        "command": {"type": "path"},
        "init": {"type": "list", "elements": "path", "default": []},
        "init_script": {"type": "str", "default": ""},
        "environment": {"type": "dict"},
        "planned_after": {"type": "str"},
        "timeout": {"type": "int", "default": 120},
    })


if __name__ == "__main__":
    main()

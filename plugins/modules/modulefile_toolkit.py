#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Make a CUDA toolkit a module and a package of pkg-config, from one description."""

from __future__ import annotations

DOCUMENTATION = r"""
module: modulefile_toolkit
version_added: 0.2.0
short_description: Make a module and a pkg-config file for a CUDA toolkit
description:
  - Writes C(<root>/modulefiles/pkgconfig/<pkg_config>.pc), C(<root>/modulefiles/tcl/<name>/<version>) and
    C(<root>/modulefiles/lmod/<name>/<version>.lua) for a toolkit that is installed already. Of a site with one module
    system it writes the modulefile that this one reads, and leaves a file of the other kind as it is.
  - The module puts the toolkit's programs in C(PATH), its libraries in C(LD_LIBRARY_PATH), the package file's directory
    in C(PKG_CONFIG_PATH) and the package in C(PE_PKGCONFIG_LIBS), where Cray's compiler wrappers look. It sets
    C(CUDA_HOME), C(<name>_VERSION) and C(CRAY_CUDATOOLKIT_VERSION). One version can be loaded at a time.
  - New files are loaded and unloaded like those of a release (see M(hpcml.torchstack.modulefile_verify)) before each is
    renamed into place, the package before the modules that name it.
  - Stub libraries come into no search path and no link line; C(pkg-config --variable=stubs) says where they are.
  - Refused are a toolkit that lacks C(bin), its libraries or C(cuda_runtime.h), one whose C(cuda.h) tells another
    version, one whose libraries hold the driver's C(libcuda.so.1), and to replace files that this collection did not
    write.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._sessions
  - hpcml.torchstack._sessions.system
attributes:
  check_mode:
    description: Reports which files would change, writes none and loads none.
  diff_mode:
    description: The text of each file, before and after.
  idempotent:
    description: Files that already have the content are left alone, and nothing is loaded.
options:
  root:
    description: The directory that holds the module tree.
    type: path
    required: true
  toolkit:
    description: The toolkit.
    type: dict
    required: true
    suboptions:
      name:
        description: Name of the module, one word.
        type: str
        default: cudatoolkit
      version:
        description: Version of the toolkit and of the module. In quotes, as 12.10 is the number 12.1 otherwise.
        type: str
        required: true
      prefix:
        description: The directory with the toolkit's C(bin), C(include) and C(lib64).
        type: str
        required: true
      math:
        description: The directory of the mathematical libraries where they lie elsewhere, as in the HPC SDK.
        type: str
        default: ""
      nvvm:
        description: The directory of NVVM. By default C(nvvm) below O(toolkit.prefix), if it is there.
        type: str
        default: ""
      cupti:
        description: The directory of CUPTI. By default C(extras/CUPTI) below O(toolkit.prefix), if it is there.
        type: str
        default: ""
      pkg_config:
        description: Name of the package; C(ctk-<version>) when empty.
        type: str
        default: ""
      libraries:
        description: Names of the libraries that the package links where a program needs them. By default C(cupti) and
          C(cudart), as far as the toolkit has them.
        type: list
        elements: str
      header_variables:
        description:
          - Variables that name the directories of headers to compilers that are called without pkg-config. None by
            default, as they act on every compilation of a user, and pkg-config leaves directories that are in them out.
          - V(C_INCLUDE_PATH) and V(CPLUS_INCLUDE_PATH) come after what a build names itself. V(CPATH) comes before its
            C(-isystem) directories, where projects have their own versions of Thrust and CUB.
        type: list
        elements: str
        choices: [CPATH, C_INCLUDE_PATH, CPLUS_INCLUDE_PATH]
        default: []
      external:
        description: Further directories that paths may lead to.
        type: list
        elements: str
        default: []
      conflicts:
        description: Modules that cannot be loaded at the same time. Other versions of this one never can.
        type: list
        elements: str
        default: []
      depends_on:
        description: "Modules that are loaded before this one; C(cudnn@9.1:) means version 9.1 or newer,
          C(cudnn@9.1:9) from 9.1 to 9."
        type: list
        elements: str
        default: []
      prepend:
        description: Further directories to put before the user's own, after the toolkit's.
        type: list
        elements: dict
        default: []
        suboptions: &entries
          name:
            description: The variable.
            type: str
            required: true
          values:
            description: The directories, in the order of search.
            type: list
            elements: str
            required: true
      append:
        description: Directories to put after the user's own.
        type: list
        elements: dict
        default: []
        suboptions: *entries
      setenv:
        description: Further variables to set, as in M(hpcml.torchstack.modulefile).
        type: dict
        default: {}
      reasons:
        description: Why the module changes a variable, by its name; a comment in the modulefiles.
        type: dict
        default: {}
      help:
        description: What C(module help) prints.
        type: str
        default: ""
      load_message:
        description: What users are told when they load the module.
        type: str
        default: ""
seealso:
  - module: hpcml.torchstack.modulefile
  - module: hpcml.torchstack.modulefile_verify
"""

EXAMPLES = r"""
- name: Make the module cudatoolkit/11.8
  hpcml.torchstack.modulefile_toolkit:
    root: /soft/torchstack
    toolkit:
      version: "11.8"
      prefix: /opt/nvidia/hpc_sdk/Linux_x86_64/22.11/cuda/11.8
      math: /opt/nvidia/hpc_sdk/Linux_x86_64/22.11/math_libs/11.8
"""

RETURN = r"""
files:
  description: The files - C(package), C(tcl) and C(lmod).
  returned: success
  type: dict
written:
  description: The files that changed, or would change in check mode.
  returned: success
  type: list
  elements: str
checked:
  description: The sessions, each with its outcome; none in check mode and where nothing changed.
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
faults:
  description: What is wrong with the description of the module, one sentence each.
  returned: when it is refused
  type: list
  elements: str
  sample: ["LD_LIBRARY_PATH leads to /opt/x, outside the prefix /opt/cuda; list it in external if that is meant."]
failed_step:
  description: What failed - C(check the toolkit), C(check what is to be published), C(read), C(find the module system),
    C(load and unload the modulefile) or C(write).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import STEP
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.cuda_toolkit import (
    HEADER_VARIABLES,
    describe,
    find_toolkit,
    package_path,
    package_text,
    usual_libraries,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    read_bytes,
    relative_path,
    render_under,
    require_ours,
    write_file,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.site_system import syntaxes_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.verify import (
    SESSIONS,
    carry_out,
    find_commands,
    make_plan,
    verdict,
)


def run(module: AnsibleModule) -> dict:
    """Find the toolkit, render its files, load what is new, and write what differs."""
    root, given = module.params["root"], module.params["toolkit"]
    toolkit = find_toolkit(given)
    description = describe(toolkit, root, given["header_variables"], given)
    libraries = usual_libraries(toolkit) if given["libraries"] is None else given["libraries"]
    title = "%s/%s, a CUDA toolkit" % (toolkit.name, toolkit.version)
    paths = {"package": package_path(toolkit)}
    paths.update(
        (syntax, relative_path(syntax, toolkit.name, toolkit.version))
        for syntax in syntaxes_of(module.params["module_system"]))
    texts = {"package": package_text(toolkit, libraries), **render_under(description, title, "the site's toolkits")}
    before = {key: read_bytes(os.path.join(root, path)) for key, path in paths.items()}
    changed = [key for key in paths if before[key] != texts[key].encode("utf-8")]
    for key in changed:
        require_ours(root, paths[key], before[key], STEP)
    record: dict = {"checked": [], "not_checked": []}
    if changed and not module.check_mode:
        record = try_out(module, description, {paths[key]: texts[key] for key in paths})
        for key in changed:
            write_file(os.path.join(root, paths[key]), texts[key].encode("utf-8"))
    return {
        "changed": bool(changed), "files": {key: os.path.join(root, path) for key, path in paths.items()},
        "written": [os.path.join(root, paths[key]) for key in changed],
        "checked": record["checked"], "not_checked": record["not_checked"],
        "diff": [text_diff(os.path.join(root, paths[key]), before[key], texts[key]) for key in changed],
    }


def try_out(module: AnsibleModule, description: dict, texts: dict) -> dict:
    """Load and unload the files in a directory that no user sees.

    Raises:
        StackError: they do not load and unload cleanly.
    """
    params = module.params
    commands = {"lmod": params["lmod_command"], "tcl": params["modulecmd_command"]}
    found = find_commands(commands, os.environ, params["module_system"])
    top = os.path.join(module.tmpdir, "toolkit")
    for path, text in texts.items():
        write_file(os.path.join(top, path), text.encode("utf-8"))
    syntaxes = syntaxes_of(params["module_system"])
    plan = make_plan(top, description, found, params["shells"], params["module_path"], syntaxes)
    record = carry_out(plan, top, description, params["module_path"], os.environ, module.tmpdir)
    failure = verdict(record, description)
    if failure:
        raise failure
    return record


def main() -> None:
    """Entry point."""
    text = {"type": "str", "default": ""}
    texts = {"type": "list", "elements": "str", "default": []}
    mapping = {"type": "dict", "default": {}}
    required = {"type": "str", "required": True}
    entry = {"name": required, "values": {"type": "list", "elements": "str", "required": True}}
    entries = {"type": "list", "elements": "dict", "default": [], "options": entry}
    run_module(run, {
        "root": {"type": "path", "required": True},
        "toolkit": {
            "type": "dict", "required": True, "options": {
                "name": {"type": "str", "default": "cudatoolkit"}, "version": required, "prefix": required,
                "math": text, "nvvm": text, "cupti": text, "pkg_config": text,
                "libraries": {"type": "list", "elements": "str"},
                "header_variables": {**texts, "choices": list(HEADER_VARIABLES)},
                "external": texts, "conflicts": texts, "depends_on": texts, "prepend": entries, "append": entries,
                "setenv": mapping, "reasons": mapping, "help": text, "load_message": text,
            },
        },
        **SESSIONS,
    })


if __name__ == "__main__":
    main()

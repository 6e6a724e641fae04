#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Render one description as a Tcl and as a Lua modulefile, staged where no user sees them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: modulefile
version_added: 0.2.0
short_description: Stage the modulefiles of a release, Tcl and Lua from one description
description:
  - Writes C(<root>/.torchstack/<release>/modulefiles/lmod/<name>/<version>.lua), the same under C(tcl) without the
    suffix, and the description that they were made from. Nobody's C(MODULEPATH) leads there.
    Of a site with one module system, it is the one kind that this one reads, and a file of the other kind is removed.
    M(hpcml.torchstack.modulefile_verify) loads and unloads them, M(hpcml.torchstack.modulefile_publish) makes the same
    bytes visible.
  - What the module does to an environment is undone when it is unloaded, whatever the user had there before and
    whichever modules were loaded and unloaded meanwhile, with Lmod 8.6 or later and with Environment Modules 4 and 5.
    See O(description) for the limits.
  - The same description gives the same bytes, whenever and wherever.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
  - hpcml.torchstack._sessions.system
attributes:
  diff_mode:
    description: The text of each file, before and after.
options:
  description:
    description:
      - What the module is and does.
      - In the values of O(description.setenv), O(description.prepend) and O(description.append), C(${NAME}) stands for
        what the environment variable holds when a user loads the module; a user who does not have it set gets one
        sentence and no module. C($${) stands for a literal C(${). Everything else is literal text.
      - Refused, with a sentence each, are compiler flags, a directory called C(include) in C(PATH), a C(stubs)
        directory anywhere, empty entries, entries with a colon, paths that are neither below O(description.prefix) nor
        in O(description.external), search paths set instead of extended, a user base shared by releases, and values
        with a line break.
      - Some values of a user cannot be given back on unload, because the module systems do not quote them for the
        shell; such a variable is unset afterwards. These are values with a line break; in zsh, with a C(=) at the
        beginning or after a colon or another C(=); with Environment Modules, with a C(~) at such a place or, in csh,
        with brackets, and with its version 4 an empty value. Aliases of the same name are not given back.
    type: dict
    required: true
    suboptions:
      name:
        description: Name of the module, one word.
        type: str
        required: true
      also_named:
        description:
          - Further names of the module, such as the one that the site's users type already. Under each there is a
            modulefile of its own that does the same, of the same version and family, which is verified, published,
            hidden, retired and rolled back with the module.
          - Refused, before anything is written, where such a file in the module tree is not this release's.
        type: list
        elements: str
        version_added: 0.3.0
      version:
        description: Version of the module, one word; as a rule the release's name.
        type: str
        required: true
      prefix:
        description: The release's own directory.
        type: str
        required: true
      external:
        description: Directories outside O(description.prefix) that paths may lead to, such as a vendor's CUDA.
        type: list
        elements: str
        default: []
      help:
        description: What C(module help) prints.
        type: str
        default: ""
      whatis:
        description: Further lines of C(module whatis), by their title, such as C(Description).
        type: dict
        default: {}
      category:
        description: The C(Category) line.
        type: str
        default: ""
      keywords:
        description: The C(Keywords) line.
        type: list
        elements: str
        default: []
      extensions:
        description:
          - The packages that are inside, each as C(name/version). In Lmod, C(module spider numpy) finds the module by
            them.
          - They are no part of the Tcl modulefile, as Environment Modules have nothing like it.
        type: list
        elements: str
        default: []
        version_added: 0.3.0
      conflicts:
        description: Modules that cannot be loaded at the same time. Other versions of this one never can.
        type: list
        elements: str
        default: []
      family:
        description: Of the modules of one family, only one can be loaded. Lmod swaps them. In Environment Modules
          before 5.1 it is a conflict with a module of that name.
        type: str
        default: ""
      depends_on:
        description:
          - Modules that are loaded before this one, and unloaded after it if the user did not load them.
          - C(cudnn@9.1:) means version 9.1 or newer, C(cudnn@:9) up to 9, and C(cudnn@9.1:9) from 9.1 to 9. Versions
            are compared part by part, and what begins with the upper one is within the range, as 9.0.5 is up to 9.
          - Of a range, a module loads what the user has loaded, else the site's default, else the highest version.
        type: list
        elements: str
        default: []
      prepend:
        description: Directories to put before the user's own, in the order of search.
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
        description: Directories to put after the user's own, in the order of search.
        type: list
        elements: dict
        default: []
        suboptions: *entries
      setenv:
        description: Variables to set. A value of the user's comes back on unload.
        type: dict
        default: {}
      first_file:
        description:
          - Variables that name the first of some files that is there when the module is loaded, such as a container's
            image of which the user may have deleted the copy. A value of the user's comes back on unload.
          - Where none of the files is there, loading fails with one sentence and changes nothing. Help, C(whatis),
            C(show), searches and unload need no file; where they have a value to show, it is the last one.
        type: list
        elements: dict
        default: []
        suboptions:
          variables:
            description: The variables.
            type: list
            elements: str
            required: true
          candidates:
            description: The files in the order of choice, absolute paths below O(description.prefix) or in
              O(description.external). A file is a regular file, or a link to one.
            type: list
            elements: str
            required: true
          missing:
            description: The sentence for a user where none of the files is there.
            type: str
            required: true
      reasons:
        description: Why the module changes a variable, by its name. A comment of any number of lines before the change.
        type: dict
        default: {}
      unsetenv:
        description: Variables that are unset while the module is loaded. They come back on unload.
        type: list
        elements: str
        default: []
      aliases:
        description: Shell aliases by name.
        type: dict
        default: {}
      functions:
        description: Shell functions by name, each a mapping of C(sh), the body for bash, zsh and their kin, and
          optionally C(csh), the alias that stands for it in csh, and C(fish), the command that it
          is in fish, which gets the arguments. Environment Modules 4 leaves them out in zsh, and before 4.2 in every
          shell.
        type: dict
        default: {}
      conda_command:
        description:
          - Define C(conda) for the shell, so that C(conda activate base), C(conda activate PREFIX) and
            C(conda deactivate) work where conda's own hook never ran. It is the conda of the release, in C(base/bin) of
            O(description.prefix), which is the active environment while the module is loaded.
          - The filter P(hpcml.torchstack.conda_activation#filter) writes the files that the function reads.
        type: bool
        version_added: 0.3.0
      load_message:
        description: What users are told when they load the module.
        type: str
        default: ""
  finished:
    description:
      - The release is finished. Where its description is the same, its files stay as they were verified, so that what
        it was accepted with does not change when this collection writes modulefiles in another way.
      - Its help, C(whatis) lines and extensions stay those that were recorded.
    type: bool
    default: false
    version_added: 0.3.0
seealso:
  - module: hpcml.torchstack.modulefile_verify
  - module: hpcml.torchstack.modulefile_publish
"""

EXAMPLES = r"""
- name: Stage the modulefiles
  hpcml.torchstack.modulefile:
    root: /soft/torchstack
    release: "2026-11-20"
    description:
      name: torchstack
      version: "2026-11-20"
      prefix: /soft/torchstack/2026-11-20
      help: PyTorch 2.6.0 with NCCL and Horovod.
      family: python
      prepend:
        - name: PATH
          values: [/soft/torchstack/2026-11-20/base/bin]
      setenv:
        PYTHONUSERBASE: "${HOME}/.local/torchstack/mysite/2026-11-20"
        NCCL_NET: AWS Libfabric
      reasons:
        NCCL_NET: A missing plugin is an error, and not a silent fall to sockets.
      unsetenv: [PYTHONSTARTUP]
"""

RETURN = r"""
files:
  description: The staged files - C(lmod), C(tcl), or both, and C(description).
  returned: success
  type: dict
also:
  description: The staged files of each further name, as in RV(files) without C(description).
  returned: success
  type: dict
written:
  description: The files that changed or went, or would in check mode.
  returned: success
  type: list
  elements: str
faults:
  description: What is wrong with the description, one sentence each.
  returned: when the description is refused
  type: list
  elements: str
  sample: [LDFLAGS in a modulefile leaks into every build of a user; set it in the step that needs it.]
failed_step:
  description: What failed - C(check the description), C(read) or C(write).
  returned: failure
  type: str
"""

import json
import os
from typing import Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import conda_command
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise, with_words_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description_checks import find_faults
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    DESCRIPTION,
    SYNTAXES,
    read_bytes,
    relative_path,
    render_each,
    require_free,
    stage_directory,
    verified_texts,
    write_file,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.site_system import OPTION, release_syntaxes


def run(module: AnsibleModule) -> dict:
    """Check the description, render it, and write what differs."""
    description = normalise(module.params["description"])
    found = conda_command.faults(module.params["description"]) or find_faults(description)
    if found:
        raise StackError(
            "The description of %s/%s is refused: %s" % (description["name"], description["version"], " ".join(found)),
            "check the description", "Change modulefile_description.", faults=found)
    root, release = module.params["root"], module.params["release"]
    stage = stage_directory(root, release)
    before = read_json_or_nothing(os.path.join(stage, DESCRIPTION))
    if module.params["finished"] and before:
        # Users of a finished release read what they read before, though a newer collection would say it otherwise.
        description = with_pip_told(before, with_words_of(before, description))
        if own_part(before) == own_part(without_user_programs(description)):
            description = without_user_programs(description)
    texts = render_each(description, release)
    if module.params["finished"] and own_part(before) == own_part(description):
        for name, files in verified_texts(stage).items():
            texts.get(name, {}).update(files)
    wanted = release_syntaxes(root, release, module.params["module_system"])
    contents: dict[str, str | None] = {}
    for name in dict.fromkeys([description["name"], *texts, *before.get("also_named", [])]):
        for syntax in SYNTAXES:
            path = relative_path(syntax, name, description["version"])
            contents[path] = texts[name][syntax] if name in texts and syntax in wanted else None
            if name in texts and name != description["name"]:
                require_free(root, release, path, read_bytes(os.path.join(root, path)), "check the description")
    contents[DESCRIPTION] = json.dumps(description, indent=2, sort_keys=True) + "\n"
    written, diff = [], []
    for relative, text in contents.items():
        path = os.path.join(stage, relative)
        now = read_bytes(path)
        if now != (None if text is None else text.encode("utf-8")):
            written.append(path)
            diff.append(text_diff(path, now, text or ""))
            if not module.check_mode and text is None:
                remove_staged(stage, path)
            elif not module.check_mode:
                write_file(path, (text or "").encode("utf-8"))
    places = {name: {
        syntax: os.path.join(stage, relative_path(syntax, name, description["version"])) for syntax in wanted}
        for name in texts}
    own = places.pop(description["name"])
    return {
        "changed": bool(written), "files": {**own, "description": os.path.join(stage, DESCRIPTION)}, "also": places,
        "written": written, "diff": diff}


def read_json_or_nothing(path: str) -> dict:
    """Return a description that was recorded before; empty for none, and for one that is damaged."""
    try:
        return mapping(read_json(path))
    except (OSError, ValueError):
        return {}


def own_part(description: Mapping) -> dict:
    """Return what of a description is about the module's own name: a further name changes nothing of that."""
    return {key: value for key, value in description.items() if key != "also_named"}


def with_pip_told(before: Mapping, description: Mapping) -> dict:
    """Return a description that tells pip of an externally managed Python to go on, where that was told before.

    In releases that were finished before their sitecustomize told it, nothing else does.
    """
    told = {name: value for name, value in before["setenv"].items() if name == "PIP_BREAK_SYSTEM_PACKAGES"}
    return {**description, "setenv": {**told, **description["setenv"]}}


def without_user_programs(description: Mapping) -> dict:
    """Return a description that does not put the programs of the user base on PATH.

    Releases that were finished before modules did so keep the modulefiles that they were accepted with.
    """
    programs = "%s/bin" % description["setenv"].get("PYTHONUSERBASE")
    return {
        **description, "external": [place for place in description["external"] if place != programs],
        "prepend": [entry for entry in description["prepend"] if entry != {"name": "PATH", "values": [programs]}]}


def remove_staged(stage: str, path: str) -> None:
    """Remove a file below the staging directory, and the directories that are empty then."""
    try:
        os.unlink(path)
        while os.path.dirname(path) != stage and not os.listdir(os.path.dirname(path)):
            path = os.path.dirname(path)
            os.rmdir(path)
    except OSError as error:
        raise StackError(
            "Cannot remove %s: %s." % (path, error.strerror), "write", "Run as the account that owns the root.", path
        ) from error


def main() -> None:
    """Entry point."""
    text = {"type": "str", "default": ""}
    texts = {"type": "list", "elements": "str", "default": []}
    keywords = {"type": "list", "elements": "str", "default": [], "no_log": False}
    mapping = {"type": "dict", "default": {}}
    required = {"type": "str", "required": True}
    entry = {"name": required, "values": {"type": "list", "elements": "str", "required": True}}
    entries = {"type": "list", "elements": "dict", "default": [], "options": entry}
    needed = {"type": "list", "elements": "str", "required": True}
    choice = {"variables": needed, "candidates": needed, "missing": required}
    choices = {"type": "list", "elements": "dict", "default": [], "options": choice}
    run_module(run, {
        **RELEASE, **OPTION,
        "finished": {"type": "bool", "default": False},
        "description": {
            "type": "dict", "required": True, "options": {
                "name": required, "also_named": {"type": "list", "elements": "str"}, "version": required,
                "prefix": required, "external": texts, "help": text,
                "whatis": mapping, "category": text, "keywords": keywords, "conflicts": texts, "family": text,
                "depends_on": texts, "prepend": entries, "append": entries, "setenv": mapping,
                "first_file": choices, "reasons": mapping, "unsetenv": texts, "aliases": mapping,
                "functions": mapping, "extensions": texts, "conda_command": {"type": "bool"}, "load_message": text,
            },
        },
    })


if __name__ == "__main__":
    main()

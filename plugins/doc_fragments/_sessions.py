# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Document the options of modules that load modulefiles; module_utils/modulefiles/verify.py specifies them."""

from __future__ import annotations


class ModuleDocFragment:
    """What a modulefile is loaded and unloaded with."""

    DOCUMENTATION = r"""
options:
  module_path:
    description: Directories with the modules that this one depends on.
    type: list
    elements: path
    default: []
  shells:
    description: The shells to try; one that is not installed is reported as not checked.
    type: list
    elements: str
    choices: [bash, zsh, tcsh]
    default: [bash, zsh, tcsh]
  lmod_command:
    description: Path of C(lmod). Looked for by default.
    type: path
  modulecmd_command:
    description: Path of C(modulecmd.tcl) of Environment Modules. Looked for by default.
    type: path
"""

    SYSTEM = r"""
options:
  module_system:
    description: The module system that the site's users have, which decides on the kind of modulefile. V(auto) is for
      sites that have the one or the other, and makes both kinds. A release that is frozen keeps what it has.
    type: str
    choices: [auto, lmod, environment-modules]
    default: auto
"""

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The module systems of this machine, in every version that is at hand.

Further module commands, such as other versions, are named by TORCHSTACK_LMOD and TORCHSTACK_MODULECMD, colon-separated.
"""

from __future__ import annotations

import glob
import os

from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system

SYNTAX = {module_system.LMOD: "lmod", module_system.EM: "tcl"}
EXTRA = {
    module_system.LMOD: ("TORCHSTACK_LMOD", ()),
    module_system.EM: ("TORCHSTACK_MODULECMD", ("/opt/environment-modules/usr/lib/*/modulecmd.tcl",)),
}


def module_systems(*kinds):
    """Find every module system, or those of some kinds, the ones named by variables first."""
    found = []
    for kind in kinds or EXTRA:
        variable, patterns = EXTRA[kind]
        commands = [path for path in os.environ.get(variable, "").split(":") if path]
        for pattern in (*module_system.WELL_KNOWN[kind], *patterns):
            commands.extend(sorted(glob.glob(pattern)))
        unique = {os.path.realpath(path): path for path in reversed(commands)}
        found.extend(module_system.find_system({}, kind, path) for path in reversed(list(unique.values())))
    return found


def name_of(system):
    """Return which system, and which version of it."""
    return "%s-%s" % (SYNTAX[system.kind], module_system.version(system, dict(os.environ), 60))

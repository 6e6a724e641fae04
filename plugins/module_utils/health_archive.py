# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program that looks at a node, as one file for the nodes, which need not have this collection."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils import (
    health_collect,
    health_programs,
    health_storage,
    health_sysfs,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.archive import program_archive

_PARTS = (health_collect, health_programs, health_storage, health_sysfs)
_MAIN = """import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.health_collect import main
sys.exit(main(sys.argv[1:]))
"""


def archive() -> bytes:
    """The program: ``python3 FILE [QUESTION [DEADLINE]] [--directory DIR]... [--output FILE]``, Python 3.6 or later."""
    return program_archive(_MAIN, _PARTS)

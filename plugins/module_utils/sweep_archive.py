# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program of a pair sweep's ranks as one file, which every node's Python runs from the file system they share."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils import (
    pairs,
    rank_sweep,
    rank_sweep_links,
    sweep_again,
    sweep_levels,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.archive import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.rank_archive import COMMON, MEASURING

_MAIN = """import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.rank_sweep import main
sys.exit(main(sys.argv[1:]))
"""


def archive() -> bytes:
    """The archive for :func:`.acceptance_job.write_files`."""
    own = (pairs, sweep_levels, sweep_again, rank_sweep_links, rank_sweep)
    return program_archive(_MAIN, (*COMMON, *MEASURING, *own))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark as one file that any launcher starts with a Python: ``srun python3 collectives.pyz --backend nccl``."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils import (
    bandwidth_table,
    collectives_output,
    collectives_program,
    rank_errors,
    rank_meeting,
    rank_place,
    ranks,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.archive import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.rank_archive import MEASURING

NAME = "collectives.pyz"

_PARTS = (
    *MEASURING, bandwidth_table, collectives_output, collectives_program, rank_errors, rank_meeting, rank_place, ranks,
)
_MAIN = """import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.collectives_program import main
sys.exit(main(sys.argv[1:]))
"""


def collectives_archive() -> bytes:
    """The stand-alone program; its options are in :mod:`.collectives_program`."""
    return program_archive(_MAIN, _PARTS)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program of an acceptance's ranks as one file, which every node's Python runs from the file system they share."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils import (
    bandwidth,
    bandwidth_plan,
    bandwidth_values,
    rank_arrays,
    rank_bandwidth,
    rank_bandwidth_mpi,
    rank_bandwidth_torch,
    rank_collectives,
    rank_errors,
    rank_libraries,
    rank_meeting,
    rank_memory,
    rank_nccl_log,
    rank_output,
    rank_place,
    rank_program,
    rank_start,
    rank_values,
    ranks,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.archive import program_archive

COMMON = (
    ranks, rank_errors, rank_output, rank_place, rank_meeting, rank_libraries, rank_values, rank_collectives,
    rank_arrays, rank_nccl_log, rank_start,
)
"""What every program of ranks may use."""

MEASURING = (
    bandwidth, bandwidth_plan, bandwidth_values, rank_bandwidth, rank_bandwidth_mpi, rank_bandwidth_torch, rank_memory,
)
"""What a program has that measures beside that."""
_MAIN = """import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.rank_program import main
sys.exit(main(sys.argv[1:]))
"""


def archive() -> bytes:
    """The archive for :func:`.acceptance_job.write_files`."""
    return program_archive(_MAIN, (*COMMON, *MEASURING, rank_program))

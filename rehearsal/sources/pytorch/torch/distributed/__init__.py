# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The backends that were built in."""

from torch import _C


def is_available():
    return True


def is_mpi_available():
    return _C._has_mpi


def is_gloo_available():
    return _C._has_gloo


def is_nccl_available():
    return _C._has_nccl

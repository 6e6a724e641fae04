# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The NCCL that this process has loaded."""

from torch import _C


def version():
    code = _C._nccl_version()
    return code // 10000, code // 100 % 100, code % 100

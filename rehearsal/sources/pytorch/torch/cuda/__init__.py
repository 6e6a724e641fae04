# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""There is never a GPU."""

from torch import _C
from torch.cuda import nccl

__all__ = ["device_count", "get_arch_list", "is_available", "nccl"]


def is_available():
    return False


def device_count():
    return 0


def get_arch_list():
    # Without a GPU PyTorch says nothing here, whatever it was built for.
    return (_C._cuda_getArchFlags() or "").split() if is_available() else []

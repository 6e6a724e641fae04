# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for PyTorch: what it says about its build, and nothing else."""

from torch import _C, __config__, backends, cuda, distributed, version

__all__ = ["_C", "__config__", "__version__", "backends", "cuda", "distributed", "from_numpy", "version"]
__version__ = version.__version__


class _Tensor:
    """As much of a tensor as tells how long it is."""

    def __init__(self, array):
        self.array = array

    def numel(self):
        return len(self.array)


def from_numpy(array):
    if not _C._has_numpy:
        raise RuntimeError("PyTorch was compiled without NumPy support")
    return _Tensor(array)

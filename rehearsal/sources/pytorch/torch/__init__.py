# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for PyTorch: what it says about its build, and nothing else."""

from torch import _C, __config__, backends, cuda, distributed, version

__all__ = ["_C", "__config__", "__version__", "backends", "cuda", "distributed", "version"]
__version__ = version.__version__

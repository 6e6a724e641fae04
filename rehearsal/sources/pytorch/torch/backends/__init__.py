# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Libraries that were built in."""

from torch.backends import cudnn

__all__ = ["cudnn"]

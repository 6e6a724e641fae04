# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""cuDNN, if it was built in."""

from torch import _C


def is_available():
    return version() is not None


def version():
    return _C._cudnn_version()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What was built in."""

from torch import _C


def show():
    return _C._show_config()

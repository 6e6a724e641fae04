# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write compute capabilities of GPUs as options of NVIDIA's compiler. Pure."""

from __future__ import annotations

import re
from typing import Iterable

from ..core.errors import StackError

STEP = "compatibility"


def gencode(architectures: Iterable[str]) -> str:
    """Write NCCL's NVCC_GENCODE: code for each capability, and PTX for ``+PTX``. Raises StackError: it is none."""
    words = []
    for architecture in architectures:
        match = re.match(r"(\d+)\.(\d)([af]?)(\+PTX)?\Z", architecture)
        if match is None:
            raise StackError(
                "'%s' under cuda.architectures is no compute capability." % architecture, STEP,
                "Write it as PyTorch does: 8.0, 9.0a, 9.0+PTX.")
        number = match.group(1) + match.group(2) + match.group(3)
        words.append("-gencode=arch=compute_%s,code=sm_%s" % (number, number))
        if match.group(4):
            words.append("-gencode=arch=compute_%s,code=compute_%s" % (number, number))
    return " ".join(words)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write compute capabilities of GPUs as options of NVIDIA's compiler, and tell which GPUs they are code for. Pure."""

from __future__ import annotations

import re
from typing import Iterable

from ..core.errors import StackError

STEP = "compatibility"

CAPABILITIES = {
    "6.0": ("P100",), "7.0": ("V100",), "7.5": ("T4",), "8.0": ("A100", "A30"), "8.6": ("A2", "A10", "A16", "A40"),
    "8.9": ("L4", "L40", "L40S"), "9.0": ("H100", "H200", "GH200"), "10.0": ("B200", "GB200"),
    "10.3": ("B300", "GB300")}
"""Models of NVIDIA for computing centres by their compute capability, from NVIDIA's list of CUDA GPUs."""

_CAPABILITY = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?\Z")


def gencode(architectures: Iterable[str]) -> str:
    """Write NCCL's NVCC_GENCODE: code for each capability, and PTX for ``+PTX``. Raises StackError: it is none."""
    words = []
    for architecture in architectures:
        match = _CAPABILITY.match(architecture)
        if match is None:
            raise StackError(
                "'%s' under cuda.architectures is no compute capability." % architecture, STEP,
                "Write it as PyTorch does: 8.0, 9.0a, 9.0+PTX.")
        number = match.group(1) + match.group(2) + match.group(3)
        words.append("-gencode=arch=compute_%s,code=sm_%s" % (number, number))
        if match.group(4):
            words.append("-gencode=arch=compute_%s,code=compute_%s" % (number, number))
    return " ".join(words)


def capability_of(model: str) -> str:
    """Return the compute capability of a model, of which the name or a glob is given; empty where it is not known."""
    words = set(re.findall(r"[A-Z0-9]+", model.upper()))
    found = {capability for capability, models in CAPABILITIES.items() if words & set(models)}
    return found.pop() if len(found) == 1 else ""


def covers(architectures: Iterable[str], capability: str) -> bool:
    """Tell whether GPUs of a capability run code that was compiled for one of these.

    Code for X.Y runs on X.Z with Z from Y on, and its PTX on everything later; code for X.Ya on X.Y alone, and for X.Yf
    on the family of X. What is no capability is taken to cover all. Source: NVIDIA's CUDA C++ Programming Guide,
    "Compute Capabilities" and "Application Compatibility".
    """
    major, minor = (int(part) for part in capability.split("."))
    for architecture in architectures:
        match = _CAPABILITY.match(architecture)
        if match is None:
            return True
        of_major, of_minor, special = int(match.group(1)), int(match.group(2)), match.group(3)
        if special == "a":
            fits = (major, minor) == (of_major, of_minor)
        else:
            fits = (major == of_major and minor >= of_minor) or (
                bool(match.group(4)) and not special and (major, minor) >= (of_major, of_minor))
        if fits:
            return True
    return False

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""As an account's own usercustomize.py: PyTorch sees a GPU on each node, the same one in all processes there."""

import builtins
import sys
import types

_imported = builtins.__import__


def with_a_gpu(name, *arguments, **options):
    """Import what is asked for, and change PyTorch as soon as it is there."""
    found = _imported(name, *arguments, **options)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if hasattr(cuda, "get_device_properties") and not hasattr(cuda, "stand_in"):
        cuda.stand_in = types.SimpleNamespace(
            name="stand-in", uuid="", pci_domain_id=0, pci_bus_id=7, pci_device_id=0, total_memory=1 << 30)
        cuda.is_available = lambda: True
        cuda.device_count = lambda: 1
        cuda.set_device = lambda index: None
        cuda.get_device_properties = lambda index: cuda.stand_in
    return found


builtins.__import__ = with_a_gpu

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""As an account's own usercustomize.py: PyTorch sees the GPUs of which nvidia-smi tells; without it one on each node.

They are the same in all processes there.
"""

import builtins
import subprocess
import sys
import types

_imported = builtins.__import__


def models():
    """The models of the node's GPUs."""
    command = ["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]
    try:
        return [line.split(", ")[1] for line in subprocess.check_output(command, text=True).splitlines()]
    except OSError:
        return ["stand-in"]


# Not while PyTorch is imported: that would import more.
_MODELS = models()


def with_gpus(name, *arguments, **options):
    """Import what is asked for, and change PyTorch as soon as it is there."""
    found = _imported(name, *arguments, **options)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if hasattr(cuda, "get_device_properties") and not hasattr(cuda, "stand_ins"):
        cuda.stand_ins = [
            types.SimpleNamespace(
                name=model, uuid="", pci_domain_id=0, pci_bus_id=7 + index, pci_device_id=0, total_memory=1 << 30)
            for index, model in enumerate(_MODELS)]
        cuda.is_available = lambda: True
        cuda.device_count = lambda: len(cuda.stand_ins)
        cuda.set_device = lambda index: None
        cuda.get_device_properties = lambda index: cuda.stand_ins[index]
    return found


builtins.__import__ = with_gpus

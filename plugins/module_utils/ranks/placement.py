# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a rank is: which one of how many, on which cores and memory nodes, with which GPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import uuid
from typing import Any, Iterable, Mapping

from ..standalone import rank_environment as ranks


def placement(environment: Mapping[str, str]) -> dict[str, Any]:
    """Turn a launcher's variables into rank, size, local rank and local size (see :mod:`.ranks`).

    Args:
        environment: the variables of one rank.

    Returns:
        A dict with ``source`` (the launcher), ``rank``, ``size``, ``local_rank``, and ``local_size``, ``node`` and
        ``nodes``, which are None where the launcher does not tell.

    Raises:
        ValueError: the variables are incomplete or contradict each other; the text is a sentence.
    """
    return ranks.placement(environment)._asdict()


def ranges(numbers: Iterable[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2,5``."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in groups)


def expand(text: str) -> set[int]:
    """``0-2,5`` as a set of numbers."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        low, _dash, high = part.partition("-")
        if low:
            numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def cpu_device(nodes: str = "/sys/devices/system/node") -> dict[str, Any]:
    """The CPU cores and memory nodes that this rank may run on."""
    allowed = os.sched_getaffinity(0)
    near = []
    with contextlib.suppress(OSError):
        for name in os.listdir(nodes):
            if re.fullmatch(r"node\d+", name):
                with open(os.path.join(nodes, name, "cpulist"), encoding="ascii") as stream:
                    if allowed & expand(stream.read()):
                        near.append(int(name[4:]))
    return {"kind": "cpu", "cpus": ranges(allowed), "numa": ranges(near)}


def gpu_device(torch: Any, local_rank: int) -> dict[str, Any] | None:
    """Choose this rank's GPU and say which one it is; None where PyTorch sees none.

    Args:
        torch: PyTorch.
        local_rank: the rank's number on its node.
    """
    if not torch.cuda.is_available():
        return None
    visible = torch.cuda.device_count()
    index = local_rank % visible
    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    identity = str(getattr(properties, "uuid", "") or "")
    bus = ""
    if hasattr(properties, "pci_bus_id"):
        bus = "%04x:%02x:%02x" % (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
    # Older PyTorch tells neither; the driver itself knows, and obeys CUDA_VISIBLE_DEVICES as PyTorch does.
    with contextlib.suppress(OSError, AttributeError):
        if not (identity and bus):
            driver = ctypes.CDLL("libcuda.so.1")
            handle, raw, text = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(64)
            if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(handle), index) == 0:
                if not identity and driver.cuDeviceGetUuid(raw, handle) == 0:
                    identity = str(uuid.UUID(bytes=bytes(raw)))
                if not bus and driver.cuDeviceGetPCIBusId(text, 64, handle) == 0:
                    bus = text.value.decode("ascii").lower().partition(".")[0]
    return {
        "kind": "gpu", "index": card(index, os.environ), "visible": visible, "name": properties.name, "uuid": identity,
        "bus": bus, "gpu_numa": memory_node(bus),
    }


def memory_node(bus: str, devices: str = "/sys/bus/pci/devices") -> int | None:
    """The memory node that a GPU is at; None where the kernel does not tell, as in most virtual machines.

    Args:
        bus: its PCI address, without the function.
        devices: where the kernel lists PCI devices (Documentation/ABI/testing/sysfs-bus-pci, ``numa_node``).
    """
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(devices, bus + ".0", "numa_node"), encoding="ascii") as stream:
            node = int(stream.read())
        return node if node >= 0 else None
    return None


def card(index: int, environment: Mapping[str, str]) -> int:
    """The number that the machine has for a GPU: where a rank is shown a part of them, each part is counted from 0.

    HIP counts what ROCR_VISIBLE_DEVICES leaves ("GPU isolation techniques" of ROCm's documentation).

    Args:
        index: the GPU's number in this process.
        environment: its variables.
    """
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        shown = [word.strip() for word in environment.get(name, "").split(",")]
        if name == "CUDA_VISIBLE_DEVICES" and environment.get("HIP_VISIBLE_DEVICES"):
            continue
        if all(word.isdigit() for word in shown) and index < len(shown):
            index = int(shown[index])
    return index


def identity(device: Mapping[str, Any], host: str) -> str:
    """What tells a GPU from all others: its UUID, where there is none host and bus address, else host and index."""
    place = device.get("bus") or "index %s" % device.get("index")
    return str(device.get("uuid") or "%s %s" % (host, place))


def shared_gpus(places: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """GPUs that more than one rank uses, with these ranks. Cores are not meant: ranks may share them.

    Args:
        places: ``rank``, ``host`` and ``device`` of each rank.
    """
    users: dict[str, list[int]] = {}
    for place in places:
        if place["device"].get("kind") == "gpu":
            users.setdefault(identity(place["device"], place["host"]), []).append(place["rank"])
    return [(gpu, sorted(owners)) for gpu, owners in sorted(users.items()) if len(owners) > 1]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find a rank's number, its cores and memory nodes, and its GPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import uuid
from typing import Any, Iterable, Mapping, NamedTuple

from ..standalone import rank_environment

BUSY = 1.0
"""From this load per processor on, a host has other work as the ranks begin. After a build on all processors it is
mostly less again, as the verification between the two takes one of them for a while."""


class BusyHost(NamedTuple):
    """Say how busy a host was as the ranks began."""

    host: str
    load: float
    processors: int


def read_placement(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read rank, size, local rank and local size from a launcher's variables.

    Returns:
        ``source`` (the launcher), ``rank``, ``size``, ``local_rank``; ``local_size``, ``node`` and
        ``nodes``, which are None where the launcher does not tell.

    Raises:
        ValueError: the variables are incomplete or contradict each other; the text is a sentence.
    """
    return rank_environment.placement(environment)._asdict()


def format_ranges(numbers: Iterable[int]) -> str:
    """Format ``[0, 1, 2, 5]`` as ``0-2,5``."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in groups)


def parse_ranges(text: str) -> set[int]:
    """Parse ``0-2,5`` as a set of numbers."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        low, _dash, high = part.partition("-")
        if low:
            numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def describe_cpus(nodes: str = "/sys/devices/system/node") -> dict[str, Any]:
    """Describe the CPU cores and memory nodes that this rank may run on, and how busy its host is.

    ``load`` is the average number of processes in the last minute that ran or could have run; it is left out where the
    system does not tell. ``processors`` are all of the host.
    """
    allowed = os.sched_getaffinity(0)
    load: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        load = {"load": round(os.getloadavg()[0], 2), "processors": os.cpu_count()}
    near = []
    with contextlib.suppress(OSError):
        for name in os.listdir(nodes):
            if re.fullmatch(r"node\d+", name):
                with open(os.path.join(nodes, name, "cpulist"), encoding="ascii") as stream:
                    if allowed & parse_ranges(stream.read()):
                        near.append(int(name[4:]))
    return {"kind": "cpu", "cpus": format_ranges(allowed), "numa": format_ranges(near), **load}


def select_gpu(torch: Any, local_rank: int) -> dict[str, Any] | None:
    """Select this rank's GPU and describe it; None where PyTorch sees none."""
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
        "kind": "gpu", "index": physical_index(index, os.environ), "visible": visible, "name": properties.name,
        "uuid": identity, "bus": bus, "gpu_numa": numa_node(bus),
    }


def numa_node(bus: str, devices: str = "/sys/bus/pci/devices") -> int | None:
    """Read the memory node of a GPU by its PCI address without the function; None where the kernel does not tell.

    That is so in most virtual machines (Documentation/ABI/testing/sysfs-bus-pci, ``numa_node``).
    """
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(devices, bus + ".0", "numa_node"), encoding="ascii") as stream:
            node = int(stream.read())
        return node if node >= 0 else None
    return None


def physical_index(index: int, environment: Mapping[str, str]) -> int:
    """Compute the machine's number of a GPU: a process that sees some of them counts these from 0.

    HIP counts what ROCR_VISIBLE_DEVICES leaves ("GPU isolation techniques" of ROCm's documentation).
    """
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name == "CUDA_VISIBLE_DEVICES" and environment.get("HIP_VISIBLE_DEVICES"):
            continue
        shown = [word.strip() for word in environment.get(name, "").split(",")]
        if all(word.isdigit() for word in shown) and index < len(shown):
            index = int(shown[index])
    return index


def gpu_identity(device: Mapping[str, Any], host: str) -> str:
    """Identify a GPU by its UUID, else by host and bus address, else by host and index."""
    return str(device.get("uuid") or "%s %s" % (host, device.get("bus") or "index %s" % device.get("index")))


def find_shared_gpus(places: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """Find GPUs that more than one rank uses, with these ranks; cores may be shared."""
    users: dict[str, list[int]] = {}
    for place in places:
        if place["device"].get("kind") == "gpu":
            users.setdefault(gpu_identity(place["device"], place["host"]), []).append(place["rank"])
    return [(gpu, sorted(owners)) for gpu, owners in sorted(users.items()) if len(owners) > 1]


def busy_hosts(rows: Iterable[Mapping[str, Any]]) -> list[BusyHost]:
    """Find the hosts that had other work, by the names of the hosts.

    Args:
        rows: of each rank ``host`` and ``device_facts``, which may be of an older version, or spoilt.
    """
    found: dict[str, BusyHost] = {}
    for row in rows:
        facts = row.get("device_facts")
        if not isinstance(facts, Mapping):
            continue
        load, processors = facts.get("load"), facts.get("processors")
        if not isinstance(load, (int, float)) or not isinstance(processors, int):
            continue
        if load >= BUSY * processors > 0:
            found.setdefault(str(row.get("host")), BusyHost(str(row.get("host")), float(load), processors))
    return [found[host] for host in sorted(found)]

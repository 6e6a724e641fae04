# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Decide which CPUs go with which GPU of a node, from what lscpu and rocm-smi or nvidia-smi say. Pure.

It travels to compute nodes, beside the command ``gpu-cpu-masks``, as one text with cores.py. It imports nothing else of
this collection, and is written for Python 3.6, which system interpreters there still are.

The rule. A rank feeds its GPU best from the NUMA node that the GPU is next to, and ranks that share a last-level cache
evict each other's data. Therefore the GPUs of a NUMA node share that node's last-level caches, both in the order of
their numbers. Where the caches can be dealt out evenly, each GPU has whole ones; else the GPUs that have to share
caches divide their cores into equal numbers of whole ones, as a rank that has less than the others is waited for. A
core that is reserved for the system belongs to nobody. With a reserved CPU goes its whole core, as what the system does
on one hardware thread slows the others down. Of each core one hardware thread is used, or all.

Sources: lscpu(1); srun(1), ``--cpu-bind`` and ``--gpu-bind``; what ``rocm-smi --showtoponuma`` and ``nvidia-smi topo
-m`` print.
"""

import math
import re
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .cores import ESCAPE, Core, TopologyError, cores, listed, numbers, numbers_or_nothing

__all__ = ["TopologyError", "binding", "cores", "gpus", "listed", "numbers"]

FIRST_OF_CACHE = "first-of-cache"
"""Reserves the first core of every last-level cache."""

THREADS = ("one", "all")
"""How many hardware threads of each core are used."""

NOTHING: FrozenSet[int] = frozenset()

_ROCM = re.compile(r"GPU\s*\[?(\d+)\]?\s*:\s*\(Topology\)\s*Numa\s+(Node|Affinity)\s*:\s*(\S*)")
_NVIDIA = re.compile(r"GPU(\d+)\Z")


class Gpu(NamedTuple):
    """What is said of the place of one GPU; where neither is, both are empty."""

    nodes: FrozenSet[int]
    """The NUMA nodes that it is next to."""
    cpus: FrozenSet[int]
    """The CPUs that it is next to, which count where no NUMA node is said."""


class Share(NamedTuple):
    """What one GPU gets."""

    nodes: FrozenSet[int]
    """The NUMA nodes that it is next to."""
    cores: Tuple[Core, ...]
    cpus: Tuple[int, ...]
    """The hardware threads to use, of all these cores."""


class Binding(NamedTuple):
    """The CPUs of every GPU of a node."""

    shares: Tuple[Share, ...]
    """By the number of the GPU."""
    notes: Tuple[str, ...]
    """What could not be known, and what is left over; a sentence each."""

    @property
    def masks(self) -> List[str]:
        """For ``--cpu-bind=mask_cpu:``, by the number of the GPU."""
        return [hex(sum(1 << cpu for cpu in share.cpus)) for share in self.shares]

    @property
    def first_cpus(self) -> List[int]:
        """For ``--cpu-bind=map_cpu:``, by the number of the GPU: one CPU for each."""
        return [share.cpus[0] for share in self.shares]

    @property
    def gpus_by_cpu(self) -> List[int]:
        """For ``--gpu-bind=map:``, where ranks have CPUs in the order of their numbers: the GPU of each."""
        return sorted(range(len(self.shares)), key=lambda gpu: self.shares[gpu].cpus[0])

    @property
    def cpus_per_task(self) -> int:
        """For ``--cpus-per-task``: the smallest number of CPUs that a GPU has."""
        return min(len(share.cpus) for share in self.shares)


# --- the GPUs --------------------------------------------------------------------------------------------------------


def gpus(text: str) -> Tuple[Gpu, ...]:
    """What is said of the place of each GPU of a node, in the order of their numbers.

    Args:
        text: what ``rocm-smi --showtoponuma`` (also as part of ``--showtopo``) or ``nvidia-smi topo -m`` prints.

    Raises:
        TopologyError: it is something else, or incomplete.
    """
    lines = ESCAPE.sub("", text).splitlines()
    found = _of_rocm(lines) or _of_nvidia(lines)
    if not found:
        raise TopologyError("No GPU is named by what should be of 'rocm-smi --showtoponuma' or 'nvidia-smi topo -m'.")
    missing = set(range(len(found))).difference(found)
    if missing:
        raise TopologyError("The text names GPU %s, but not GPU %d." % (listed(found), min(missing)))
    return tuple(found[number] for number in sorted(found))


def _of_rocm(lines: Sequence[str]) -> Dict[int, Gpu]:
    nodes: Dict[int, Dict[str, FrozenSet[int]]] = {}
    for match in filter(None, map(_ROCM.match, map(str.strip, lines))):
        nodes.setdefault(int(match.group(1)), {})[match.group(2)] = numbers_or_nothing(match.group(3))
    # The affinity is what the kernel says of the device on its bus; the node is computed from the links of the driver.
    return {number: Gpu(said.get("Affinity") or said.get("Node") or NOTHING, NOTHING) for number, said in nodes.items()}


def _of_nvidia(lines: Sequence[str]) -> Dict[int, Gpu]:
    header = next((line for line in lines if "CPU Affinity" in line), None)
    if header is None:
        return {}
    links = len(header[:header.index("CPU Affinity")].split())
    found = {}
    for line in lines:
        # An empty cell is only seen where tabs have not become spaces.
        words = [word.strip() for word in line.split("\t")] if "\t" in line else line.split()
        match = _NVIDIA.match(words[0]) if words else None
        if match:
            cpus, nodes = [*words[1 + links:], "", ""][:2]
            nodes = nodes if "NUMA Affinity" in header else ""
            found[int(match.group(1))] = Gpu(numbers_or_nothing(nodes), numbers_or_nothing(cpus))
    return found


# --- the division ----------------------------------------------------------------------------------------------------


def binding(
    machine: Sequence[Core], found: Sequence[Gpu], reserved: str = "", threads: str = "one",
    allowed: Optional[Iterable[int]] = None,
) -> Binding:
    """Divide the cores of a node among its GPUs, by the rule of this module.

    Args:
        machine: from :func:`cores`.
        found: from :func:`gpus`.
        reserved: CPUs that are kept for the system, such as ``0,8,16``, or :data:`FIRST_OF_CACHE`; empty for none.
        threads: one of :data:`THREADS`.
        allowed: the CPUs that may be used at all; None for every one.

    Raises:
        TopologyError: there is no such division.
    """
    if threads not in THREADS:
        raise TopologyError("The threads of a core to use are %r, and have to be one or all." % (threads,))
    kept = reserved_cpus(machine, reserved)
    free = []
    for core in machine:
        cpus = tuple(cpu for cpu in core.cpus if allowed is None or cpu in allowed)
        if cpus and not kept.intersection(core.cpus):
            free.append(core._replace(cpus=cpus))
    places = [_nodes(number, gpu, machine) for number, gpu in enumerate(found)]
    shares: Dict[int, Share] = {}
    for nodes in set(places):
        _check_apart(nodes, places)
        members = [number for number, place in enumerate(places) if place == nodes]
        own = [core for core in free if core.node in nodes]
        if len(own) < len(members):
            raise TopologyError("NUMA node %s has %d GPUs (%s) and %d cores for them." % (
                listed(nodes), len(members), listed(members), len(own)))
        for number, share in zip(members, _divided(own, len(members))):
            used = [cpu for core in share for cpu in (core.cpus if threads == "all" else core.cpus[:1])]
            shares[number] = Share(nodes, tuple(share), tuple(sorted(used)))
    ordered = tuple(shares[number] for number in sorted(shares))
    return Binding(ordered, tuple(_notes(machine, free, ordered)))


def reserved_cpus(machine: Sequence[Core], reserved: str) -> FrozenSet[int]:
    """The CPUs that are reserved; see :func:`binding`.

    Raises:
        TopologyError: it is not a list of this machine's CPUs, or the caches are unknown.
    """
    if not reserved:
        return NOTHING
    if reserved == FIRST_OF_CACHE:
        if any(core.cache is None for core in machine):
            raise TopologyError("Which core is the first of its cache cannot be told without the caches; give what "
                                "'lscpu -p' prints.")
        firsts: Dict[Optional[str], int] = {}
        for core in machine:
            firsts.setdefault(core.cache, core.cpus[0])
        return frozenset(firsts.values())
    try:
        found = numbers(reserved.replace(" ", ""))
    except TopologyError:
        raise TopologyError("The reserved CPUs are %r, which is neither a list such as 0,8-9 nor %s." % (
            reserved, FIRST_OF_CACHE)) from None
    last = max(cpu for core in machine for cpu in core.cpus)
    if max(found) > last:
        raise TopologyError("CPU %d is reserved, and the machine's last one is CPU %d." % (max(found), last))
    return found


def _nodes(number: int, gpu: Gpu, machine: Sequence[Core]) -> FrozenSet[int]:
    """The NUMA nodes whose cores serve a GPU."""
    known = frozenset(core.node for core in machine)
    said = gpu.nodes or frozenset(core.node for core in machine if gpu.cpus.intersection(core.cpus))
    if not said and not gpu.cpus and len(known) == 1:
        return known
    if not said:
        raise TopologyError("GPU %d is next to no known NUMA node, and the machine has the nodes %s: which cores are "
                            "near it cannot be told." % (number, listed(known)))
    if not said & known:
        raise TopologyError("GPU %d is next to NUMA node %s, which has no CPU that is online." % (number, listed(said)))
    return said & known


def _check_apart(nodes: FrozenSet[int], places: Sequence[FrozenSet[int]]) -> None:
    """Two GPUs are next to the same NUMA nodes, or to none in common."""
    for other in places:
        if other != nodes and other & nodes:
            raise TopologyError("One GPU is next to NUMA node %s and another one to %s, which cannot be divided." % (
                listed(nodes), listed(other)))


def _divided(own: Sequence[Core], count: int) -> List[List[Core]]:
    """Cores in as many parts as there are GPUs: whole caches, else equal numbers of cores."""
    caches: Dict[Tuple[int, Optional[str]], List[Core]] = {}
    for core in own:
        caches.setdefault((core.node, core.cache), []).append(core)
    ordered = sorted(caches.values(), key=lambda cache: cache[0].cpus[0])
    parts = _dealt(ordered, math.gcd(len(ordered), count), count)
    # Reserved cores may leave a cache with fewer cores than GPUs.
    return parts if all(parts) else _dealt(ordered, 1, count)


def _dealt(caches: Sequence[Sequence[Core]], groups: int, count: int) -> List[List[Core]]:
    """The cores of caches in so many groups, each divided among as many GPUs."""
    width, sharing = len(caches) // groups, count // groups
    parts = []
    for group in range(groups):
        together = [core for cache in caches[group * width:(group + 1) * width] for core in cache]
        each = len(together) // sharing
        parts += [together[place * each:(place + 1) * each] for place in range(sharing)]
    return parts


def _notes(machine: Sequence[Core], free: Sequence[Core], shares: Sequence[Share]) -> Iterable[str]:
    if any(core.cache is None for core in machine):
        yield "Which cores share a cache is not known, so that they were divided by their numbers."
    used = {core.cpus[0] for share in shares for core in share.cores}
    near = frozenset(node for share in shares for node in share.nodes)
    left = [core for core in free if core.cpus[0] not in used]
    over, far = [core for core in left if core.node in near], [core for core in left if core.node not in near]
    if over:
        yield "CPUs %s are left over, as all GPUs of a NUMA node get as many." % listed(core.cpus[0] for core in over)
    if far:
        yield "NUMA nodes %s have no GPU, and their %d cores are not used." % (
            listed({core.node for core in far}), len(far))

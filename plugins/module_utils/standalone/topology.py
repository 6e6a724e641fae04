# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which CPUs go with which GPU of a node, from what lscpu and rocm-smi or nvidia-smi say. Pure.

It travels to compute nodes, beside the command ``gpu-cpu-masks``: it imports nothing of this collection, and its text
is that of Python 3.6, which system interpreters there still are.

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
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

FIRST_OF_CACHE = "first-of-cache"
"""Reserves the first core of every last-level cache."""

THREADS = ("one", "all")
"""How many hardware threads of each core are used."""

NOTHING: FrozenSet[int] = frozenset()

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NUMBERS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*\Z")
_TITLE = re.compile(r"(?:[A-Z][A-Z0-9]*[%@]?|L\d[di]?(?::L\d[di]?)*)\Z")
_SHARED_CACHE = re.compile(r"L([2-9])\Z")
_PLAIN = re.compile(r"(On-line CPU\(s\) list|Thread\(s\) per core|NUMA node(\d+) CPU\(s\)):\s*(\S*)\Z")
_ROCM = re.compile(r"GPU\s*\[?(\d+)\]?\s*:\s*\(Topology\)\s*Numa\s+(Node|Affinity)\s*:\s*(\S*)")
_NVIDIA = re.compile(r"GPU(\d+)\Z")


class TopologyError(ValueError):
    """What cannot be read or be divided, as one sentence."""


class Core(NamedTuple):
    """One core of a node."""

    cpus: Tuple[int, ...]
    """Its hardware threads that are online."""
    node: int
    """Its NUMA node."""
    cache: Optional[str]
    """What its last-level cache is called; None where lscpu does not say."""


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


def numbers(text: str) -> FrozenSet[int]:
    """The numbers of a list in the kernel's notation, such as ``0-3,8``.

    Raises:
        TopologyError: it is none.
    """
    found: Set[int] = set()
    if not _NUMBERS.match(text):
        raise TopologyError("%r is not a list of CPUs such as 0-3,8." % text)
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        if int(last or first) < int(first):
            raise TopologyError("%r is not a list of CPUs: %s ends before it begins." % (text, part))
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def listed(values: Iterable[int]) -> str:
    """Numbers as :func:`numbers` reads them."""
    parts: List[List[int]] = []
    for value in sorted(set(values)):
        if parts and value == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], value]
        else:
            parts.append([value])
    return ",".join("-".join(map(str, part)) for part in parts)


# --- the cores -------------------------------------------------------------------------------------------------------


def cores(text: str) -> Tuple[Core, ...]:
    """The cores of a node that are online, in the order of their first CPUs.

    Args:
        text: what ``lscpu -p`` (with any columns, CPU and Core among them) or ``lscpu -e`` prints. Plain ``lscpu``
            tells the CPUs of each NUMA node only; that serves where a core has one hardware thread.

    Raises:
        TopologyError: it is something else, incomplete, or contradicts itself.
    """
    lines = [line.strip() for line in _ESCAPE.sub("", text).splitlines()]
    rows = [line for line in lines if line and not line.startswith("#")]
    headers = [line for line in lines if re.match(r"#\s*CPU\s*,", line, re.IGNORECASE)]
    if headers:
        return _of_table(headers[-1].lstrip("# ").split(","), [row.split(",") for row in rows])
    for place, row in enumerate(rows):
        if "CPU" in row.split() and all(map(_TITLE.match, row.split())):
            return _of_table(row.split(), [row.split() for row in rows[place + 1:]])
    return _of_lists(rows)


def _of_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Tuple[Core, ...]:
    """The cores of the tables that ``lscpu -p`` and ``lscpu -e`` print."""
    found = [_cells(titles, row) for row in rows]
    if not all("CORE" in cells for cells in found):
        raise TopologyError("The text of lscpu has no column CORE, by which the threads of one core are known.")
    online = [cells for cells in found if cells["CORE"] and cells.get("ONLINE", "yes").lower() not in ("no", "n")]
    levels = sorted(name for name in set().union(*online) if _SHARED_CACHE.match(name) and all(
        cells.get(name) for cells in online))
    threads: Dict[Tuple[int, int], Dict[int, Tuple[int, Optional[str]]]] = {}
    for cells in online:
        key = (_number(cells, "SOCKET"), _number(cells, "CORE"))
        cache = cells[levels[-1]] if levels else None
        cpu = _number(cells, "CPU")
        if any(cpu in others for others in threads.values()):
            raise TopologyError("The text of lscpu has CPU %d twice." % cpu)
        threads.setdefault(key, {})[cpu] = (_number(cells, "NODE"), cache)
    return _sorted([_core(places) for places in threads.values()])


def _cells(titles: Sequence[str], row: Sequence[str]) -> Dict[str, str]:
    """One line of a table by the titles of its columns, empty where lscpu does not know; those of caches are split."""
    if len(row) != len(titles):
        raise TopologyError("The line %r of lscpu's text has %d columns, and its header has %d." % (
            " ".join(row), len(row), len(titles)))
    cells: Dict[str, str] = {}
    for title, cell in zip(titles, row):
        values = cell.split(":")
        for place, name in enumerate(title.split(":")):
            value = values[place].strip() if place < len(values) else ""
            cells[name.strip().upper()] = "" if value == "-" else value
    return cells


def _number(cells: Dict[str, str], name: str) -> int:
    """What a column says, 0 where it says nothing: kernels without NUMA have no nodes to tell."""
    value = cells.get(name, "") or "0"
    if not re.match(r"\d{1,9}\Z", value):
        raise TopologyError("The text of lscpu has %r in its column %s, which is not a number." % (value, name))
    return int(value)


def _core(places: Dict[int, Tuple[int, Optional[str]]]) -> Core:
    """A core from the places of its hardware threads."""
    if len(set(places.values())) > 1:
        raise TopologyError("The text of lscpu contradicts itself: CPUs %s are of one core, but not of one NUMA node "
                            "and cache." % listed(places))
    node, cache = next(iter(places.values()))
    return Core(tuple(sorted(places)), node, cache)


def _of_lists(rows: Sequence[str]) -> Tuple[Core, ...]:
    """The cores of what ``lscpu`` prints without an option."""
    said = [match.groups() for match in map(_PLAIN.match, rows) if match]
    lists = [(int(node), value) for _name, node, value in said if node]
    lists = lists or [(0, value) for name, _node, value in said if name.startswith("On-line")]
    if not lists:
        raise TopologyError("This is not what 'lscpu -p' prints: the header line is missing.")
    if [value for name, _node, value in said if name.startswith("Thread")] != ["1"]:
        raise TopologyError("Plain lscpu does not tell which CPUs are of one core; give what 'lscpu -p' prints.")
    return _sorted([Core((cpu,), node, None) for node, value in lists for cpu in _list_or_nothing(value)])


def _sorted(found: Sequence[Core]) -> Tuple[Core, ...]:
    if not found:
        raise TopologyError("The text of lscpu has no CPU that is online.")
    return tuple(sorted(found, key=lambda core: core.cpus[0]))


# --- the GPUs --------------------------------------------------------------------------------------------------------


def gpus(text: str) -> Tuple[Gpu, ...]:
    """What is said of the place of each GPU of a node, in the order of their numbers.

    Args:
        text: what ``rocm-smi --showtoponuma`` (also as part of ``--showtopo``) or ``nvidia-smi topo -m`` prints.

    Raises:
        TopologyError: it is something else, or incomplete.
    """
    lines = _ESCAPE.sub("", text).splitlines()
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
        nodes.setdefault(int(match.group(1)), {})[match.group(2)] = _list_or_nothing(match.group(3))
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
            found[int(match.group(1))] = Gpu(_list_or_nothing(nodes), _list_or_nothing(cpus))
    return found


def _list_or_nothing(text: str) -> FrozenSet[int]:
    """A list of NUMA nodes or CPUs; empty for ``N/A``, ``-1`` and the like."""
    return numbers(text) if _NUMBERS.match(text) else NOTHING


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

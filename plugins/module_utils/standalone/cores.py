# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what lscpu(1) says of the cores of a node. Pure.

It travels as part of :mod:`.topology`: its text is that of Python 3.6, and imports nothing.
"""

import re
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NUMBERS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*\Z")
_TITLE = re.compile(r"(?:[A-Z][A-Z0-9]*[%@]?|L\d[di]?(?::L\d[di]?)*)\Z")
_SHARED_CACHE = re.compile(r"L([2-9])\Z")
_PLAIN = re.compile(r"(On-line CPU\(s\) list|Thread\(s\) per core|NUMA node(\d+) CPU\(s\)):\s*(\S*)\Z")


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


def numbers_or_nothing(text: str) -> FrozenSet[int]:
    """Read such a list; nothing for ``N/A``, ``-1`` and the like."""
    return numbers(text) if _NUMBERS.match(text) else frozenset()


def cores(text: str) -> Tuple[Core, ...]:
    """The cores of a node that are online, in the order of their first CPUs.

    Args:
        text: what ``lscpu -p`` (with any columns, CPU and Core among them) or ``lscpu -e`` prints. Plain ``lscpu``
            tells the CPUs of each NUMA node only; that serves where a core has one hardware thread.

    Raises:
        TopologyError: it is something else, incomplete, or contradicts itself.
    """
    lines = [line.strip() for line in ESCAPE.sub("", text).splitlines()]
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
    return _sorted([Core((cpu,), node, None) for node, value in lists for cpu in numbers_or_nothing(value)])


def _sorted(found: Sequence[Core]) -> Tuple[Core, ...]:
    if not found:
        raise TopologyError("The text of lscpu has no CPU that is online.")
    return tuple(sorted(found, key=lambda core: core.cpus[0]))

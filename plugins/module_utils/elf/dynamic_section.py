# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the dynamic section of an ELF file: names, search paths and symbol versions."""

from __future__ import annotations

from struct import Struct
from typing import Iterator

from .elf_object import ElfObject, VersionNeed
from .image import BLOCK, ElfError, Image, Strings
from .layout import Layout

MAX_ENTRIES = 1 << 15  # one for each needed library and some thirty more

_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE
_DT_AUXILIARY, _DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF
_LISTED = (_DT_NEEDED, _DT_AUXILIARY, _DT_FILTER)
_VER_FLG_WEAK = 2


def read_dynamic(facts: ElfObject, layout: Layout, image: Image, address: int) -> ElfObject:
    """Add what the dynamic section at an address says."""
    values: dict[int, int] = {}
    lists: dict[int, list[int]] = {tag: [] for tag in _LISTED}
    for tag, value in _entries(layout, image, address):
        if tag in lists:
            lists[tag].append(value)
        else:
            values[tag] = value
    strings = Strings(image, values.get(_DT_STRTAB))

    def optional(tag: int, what: str) -> bytes | None:
        return strings.at(values[tag], what) if tag in values else None

    def several(tag: int, what: str) -> tuple[bytes, ...]:
        return tuple(strings.at(value, what) for value in lists[tag])

    return facts._replace(
        dynamic=True, soname=optional(_DT_SONAME, "the soname"), needed=several(_DT_NEEDED, "a needed library"),
        rpath=optional(_DT_RPATH, "the RPATH"), runpath=optional(_DT_RUNPATH, "the RUNPATH"),
        flags_1=values.get(_DT_FLAGS_1, 0),
        version_needs=tuple(_version_needs(layout, image, strings, values.get(_DT_VERNEED))),
        version_definitions=tuple(_version_definitions(layout, image, strings, values.get(_DT_VERDEF))),
        filters=several(_DT_FILTER, "a filter"), auxiliaries=several(_DT_AUXILIARY, "an auxiliary filter"),
    )


def _entries(layout: Layout, image: Image, address: int) -> Iterator[tuple[int, int]]:
    """Yield tag and value up to DT_NULL, which ends the section for the loader, whatever its header says."""
    size = layout.entry.size
    data, position = b"", 0
    for _number in range(MAX_ENTRIES):
        while len(data) - position < size:
            address += position
            data, position = data[position:], 0
            data += image.piece(address + len(data), BLOCK, "the dynamic section")
        tag, value = layout.entry.unpack_from(data, position)
        if tag == _DT_NULL:
            return
        yield tag, value
        position += size
    raise ElfError("the dynamic section does not end within %d entries" % MAX_ENTRIES)


def _version_needs(layout: Layout, image: Image, strings: Strings, address: int | None) -> Iterator[VersionNeed]:
    """Yield wanted symbol versions: a chain of libraries, each with a chain of versions; 0 ends a chain.

    Chains can cross each other and, in theory, be as long as the file; the limit on steps ends them.
    """
    step = 1
    while address is not None and step:
        name, first, step = _versioned(layout.need, image, address)
        library = strings.at(name, "the library of a wanted version")
        auxiliary, following = address + first, 1
        while following:
            flags, name, following = layout.need_auxiliary.unpack(
                image.memory(auxiliary, layout.need_auxiliary.size, "a wanted version")
            )
            yield VersionNeed(library, strings.at(name, "a wanted version"), bool(flags & _VER_FLG_WEAK))
            auxiliary += following
        address += step


def _version_definitions(layout: Layout, image: Image, strings: Strings, address: int | None) -> Iterator[bytes]:
    """Yield defined symbol versions; the first name is the version's own, further ones its parents."""
    step = 1
    while address is not None and step:
        first, step = _versioned(layout.definition, image, address)
        (name,) = layout.word.unpack(image.memory(address + first, layout.word.size, "a defined version"))
        yield strings.at(name, "a defined version")
        address += step


def _versioned(record: Struct, image: Image, address: int) -> tuple[int, ...]:
    version, *fields = record.unpack(image.memory(address, record.size, "symbol versions"))
    if version != 1:
        raise ElfError("symbol versions at address 0x%x: version %d of the format, not 1" % (address, version))
    return tuple(fields)

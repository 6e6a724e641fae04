# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the sections of an ELF object in memory, to compare two objects; the loader needs none.

ELF-64 and ELF-32, as in the System V ABI, chapter 4 (https://refspecs.linuxfoundation.org/elf/gabi4+/).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .elf_object import MAGIC

NOTE, NOBITS, DYNSYM = 7, 8, 11
"""Types of sections: SHT_NOTE, SHT_NOBITS, SHT_DYNSYM."""
LOADED, CODE = 2, 4
"""Flags of sections: SHF_ALLOC, SHF_EXECINSTR."""
MAX_SECTIONS = 100000
"""Sections of an object; those of C++ have some thousands."""


class Section(NamedTuple):
    """Describe one section."""

    name: bytes
    kind: int
    flags: int
    address: int
    size: int
    link: int
    content: bytes


class Symbol(NamedTuple):
    """Describe what an object offers or wants by a name."""

    name: bytes
    info: int
    defined: bool
    size: int


def sections(content: bytes) -> list[Section]:
    """Read the sections of an object in their order.

    Raises:
        ValueError: it is no ELF object, has no sections, or they are not as they should be.
    """
    try:
        return _sections(content)
    except (struct.error, IndexError) as error:
        raise ValueError("the section headers are cut off") from error


def _sections(content: bytes) -> list[Section]:
    if content[:4] != MAGIC or content[4] not in (1, 2) or content[5] not in (1, 2):
        raise ValueError("no ELF object")
    wide, order = content[4] == 2, "<" if content[5] == 1 else ">"
    offset, = struct.unpack_from(order + ("Q" if wide else "I"), content, 40 if wide else 32)
    length, number, names = struct.unpack_from(order + "HHH", content, 58 if wide else 46)
    if not offset or not length:
        raise ValueError("no section headers")
    header = struct.Struct(order + ("IIQQQQII" if wide else "IIIIIIII"))
    if number == 0:
        number = header.unpack_from(content, offset)[5]
    if number > MAX_SECTIONS:
        raise ValueError("more sections than an object can have")
    found = [header.unpack_from(content, offset + length * index) for index in range(number)]
    table = _bytes(content, found[names])
    return [
        Section(_text(table, one[0]), one[1], one[2], one[3], one[5], one[6], _bytes(content, one)) for one in found
    ]


def _bytes(content: bytes, header: tuple[int, ...]) -> bytes:
    return b"" if header[1] == NOBITS else content[header[4]:header[4] + header[5]]


def _text(table: bytes, offset: int) -> bytes:
    end = table.find(b"\0", offset)
    return table[offset:end] if end >= 0 else table[offset:]


def dynamic_symbols(content: bytes, found: list[Section]) -> list[Symbol]:
    """Read what an object, with its sections, offers and wants at run time, sorted; ValueError for a broken table."""
    wide, order = content[4] == 2, "<" if content[5] == 1 else ">"
    entry = struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH"))
    symbols = []
    for section in found:
        if section.kind != DYNSYM:
            continue
        if section.link >= len(found) or len(section.content) % entry.size:
            raise ValueError("the table of dynamic symbols is cut off")
        table = found[section.link].content
        for fields in entry.iter_unpack(section.content):
            name, info, index, size = (
                (fields[0], fields[1], fields[3], fields[5]) if wide else (fields[0], fields[3], fields[5], fields[2])
            )
            symbols.append(Symbol(_text(table, name), info, index != 0, size))
    return sorted(symbols)

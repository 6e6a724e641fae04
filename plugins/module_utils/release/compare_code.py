# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the code of two ELF objects of different layout, but for where it refers to. Pure.

Of x86-64. A path of another length moves what comes after it, and code refers to that by its distance (the 32 bits of
a displacement, Intel SDM vol. 2, 2.2.1.6). So where code differs, that must be a distance, and lead to the same thing.
"""

from __future__ import annotations

import bisect
import re
import struct
from typing import Callable, Sequence

from ..elf.sections import CODE, LOADED, NOBITS, Section

X86_64 = 62
"""EM_X86_64."""
WIDTH = 4
BLOCK = 4096

_DISTANCE = struct.Struct("<i")
_CONSTANT = re.compile(rb"[^\0]+")

Mask = Callable[[bytes], bytes]
"""Takes the places out of a content."""


def machine(content: bytes) -> int:
    """Return what an object is for; 0 for what is not little-endian."""
    return int.from_bytes(content[18:20], "little") if content[5:6] == b"\1" else 0


class _Image:
    """Find what lies where in an object."""

    def __init__(self, found: Sequence[Section], masked: Mask) -> None:
        self.sections = sorted((one for one in found if one.flags & LOADED and one.size), key=lambda one: one.address)
        self.begins = [one.address for one in self.sections]
        self.masked = masked
        self.constants: dict[int, list[tuple[int, int]]] = {}

    def target_at(self, address: int) -> tuple[object, ...]:
        """Describe what is at an address, independent of the layout; empty where nothing is."""
        index = bisect.bisect_right(self.begins, address) - 1
        if index < 0:
            return ()
        section = self.sections[index]
        offset = address - section.address
        # The end of one section is where the next one would begin.
        if offset > section.size:
            return ()
        if section.kind == NOBITS or not section.name.startswith(b".rodata"):
            return section.name, offset
        return (section.name, *self._constant(section, offset))

    def _constant(self, section: Section, offset: int) -> tuple[object, ...]:
        """Describe the constant at an offset by its number, as padding and lengths differ, its text, and where in it.

        What lies between zeros counts as one; the first bytes of a number may be zeros.
        """
        if section.address not in self.constants:
            self.constants[section.address] = [found.span() for found in _CONSTANT.finditer(section.content)]
        spans = self.constants[section.address]
        number = bisect.bisect_right(spans, (offset, len(section.content)))
        if number and spans[number - 1][1] > offset:
            number -= 1
        begin, end = spans[number] if number < len(spans) else (section.size, section.size)
        return number, self.masked(section.content[begin:end]), offset - begin


def same_code(first: Sequence[Section], second: Sequence[Section], masked: tuple[Mask, Mask]) -> bool:
    """Tell whether code does the same in both objects, whose sections have the same names."""
    images = _Image(first, masked[0]), _Image(second, masked[1])
    return all(
        one.size == two.size and _same(one, two, images)
        for one, two in zip(first, second) if one.flags & CODE and one.kind != NOBITS)


def _same(one: Section, two: Section, images: tuple[_Image, _Image]) -> bool:
    position = 0
    while True:
        found = _next_difference(one.content, two.content, position)
        if found < 0:
            return True
        starts = [start for start in range(found, found - WIDTH, -1) if start >= position]
        start = next((start for start in starts if _leads_to_the_same(one, two, start, images)), None)
        if start is None:
            return False
        position = start + WIDTH


def _next_difference(first: bytes, second: bytes, position: int) -> int:
    """Find where two contents differ next; -1 where they do not."""
    while position < len(first):
        blocks = first[position:position + BLOCK], second[position:position + BLOCK]
        if blocks[0] != blocks[1]:
            return position + next(index for index, pair in enumerate(zip(*blocks)) if pair[0] != pair[1])
        position += BLOCK
    return -1


def _leads_to_the_same(one: Section, two: Section, start: int, images: tuple[_Image, _Image]) -> bool:
    if start + WIDTH > len(one.content):
        return False
    things = [
        image.target_at(section.address + start + WIDTH + _DISTANCE.unpack_from(section.content, start)[0])
        for section, image in zip((one, two), images)]
    return bool(things[0]) and things[0] == things[1]

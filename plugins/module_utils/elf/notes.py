# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the GNU notes of an ELF file: the oldest kernel and the processor level that it needs."""

from __future__ import annotations

from typing import Iterator

from .elf_object import ElfObject
from .image import Image, Segment
from .layout import Layout

MAX_NOTES = 64  # segments of notes that are looked at: linkers write one to three
MAX_NOTE_SIZE = 1 << 14  # bytes that are looked at in one of them

_NT_GNU_ABI_TAG, _NT_GNU_PROPERTY_TYPE_0, _ABI_TAG_LINUX = 1, 5, 0
_X86_ISA_1_NEEDED = 0xC0008002
_X86_MACHINES = (3, 62)


def read_notes(facts: ElfObject, layout: Layout, image: Image, segments: list[Segment]) -> ElfObject:
    """Add what GNU notes say about the machine; like the loader, pass over notes that make no sense."""
    for segment in segments:
        length = min(segment.file_size, MAX_NOTE_SIZE, max(0, image.size - segment.offset))
        data = image.file(segment.offset, length, "notes") if length else b""
        for kind, content in _gnu_notes(layout, data, 8 if segment.alignment == 8 else 4):
            if kind == _NT_GNU_ABI_TAG and len(content) >= layout.words4.size:
                system, major, minor, patch = layout.words4.unpack_from(content)
                if system == _ABI_TAG_LINUX:
                    facts = facts._replace(minimum_kernel=(major, minor, patch))
            elif kind == _NT_GNU_PROPERTY_TYPE_0 and facts.machine in _X86_MACHINES:
                facts = facts._replace(isa_needed=facts.isa_needed | _isa_needed(layout, content))
    return facts


def _gnu_notes(layout: Layout, data: bytes, alignment: int) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + layout.note.size <= len(data):
        name_size, size, kind = layout.note.unpack_from(data, position)
        name = position + layout.note.size
        content = _align(name + name_size, alignment)
        if data[name : name + name_size] == b"GNU\0" and content + size <= len(data):
            yield kind, data[content : content + size]
        position = _align(content + size, alignment)


def _isa_needed(layout: Layout, content: bytes) -> int:
    position = 0
    while position + layout.property.size <= len(content):
        kind, size = layout.property.unpack_from(content, position)
        position += layout.property.size
        if kind == _X86_ISA_1_NEEDED and size == layout.word.size and position + size <= len(content):
            return int(layout.word.unpack_from(content, position)[0])
        position += _align(size, layout.property_alignment)
    return 0


def _align(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment

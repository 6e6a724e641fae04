# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the bytes of an ELF file by their offset, and by their address in memory.

Everything that is read of a file goes through here, so the limits that keep a hostile file from costing more than a few
megabytes and about a second are kept here.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

BLOCK = 4096
"""Bytes that are read at once: the header, the program headers and most of what they lead to fit into a page."""
MAX_BLOCKS = 64  # remembered of one file
MAX_LOADS = 256  # PT_LOAD headers: linkers write two to six, each run of patchelf may add one
MAX_PIECES = 1 << 16
"""Steps in one file: each record of symbol versions takes one, each string one or some. libc.so.6 takes about 100."""
MAX_STRING = 1 << 16  # bytes of one string: search paths of package managers reach some kilobytes
MAX_STRINGS = 1 << 22  # bytes of all strings of one file


class ElfError(ValueError):
    """Report that a file begins like ELF and is broken; the text is one reason and names the offset."""


class Segment(NamedTuple):
    """Describe what matters of one program header; sizes and offsets in bytes."""

    kind: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int


class Image:
    """Read a file of known size in blocks, and the memory that its loadable segments would make of it.

    It is read, and not mapped: one that somebody truncates meanwhile would end a process that has it mapped. ``read``
    gives bytes by their number and offset, as os.pread(descriptor, ...) does, and may give less.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self.size = size
        self.loads: list[Segment] = []
        self._pread = read
        self._blocks: dict[int, bytes] = {}
        self._left = MAX_PIECES

    def file(self, offset: int, length: int, what: str) -> bytes:
        """Read exactly these bytes of the file."""
        if offset + length > self.size:
            end = offset + length
            raise ElfError("truncated: %s at %d to %d, the file ends at %d" % (what, offset, end, self.size))
        start = offset % BLOCK
        if start + length <= BLOCK:
            return self._block(offset // BLOCK)[start : start + length]
        return self._read(offset, length)

    def memory(self, address: int, length: int, what: str) -> bytes:
        """Read exactly these bytes of the memory."""
        data = b""
        while len(data) < length:
            data += self.piece(address + len(data), length - len(data), what)
        return data

    def piece(self, address: int, limit: int, what: str) -> bytes:
        """Read one byte of the memory and what comes cheaply after it, up to a limit.

        Of segments that overlap the last one counts, as the loader maps them over each other in this order.
        """
        self._left -= 1
        if self._left < 0:
            raise ElfError("%s at address 0x%x: more than %d steps in one file" % (what, address, MAX_PIECES))
        for load in reversed(self.loads):
            distance = address - load.address
            if 0 <= distance < load.file_size:
                offset = load.offset + distance
                start = offset % BLOCK
                end = min(BLOCK, start + min(limit, load.file_size - distance))
                return self._block(offset // BLOCK)[start:end]
            if 0 <= distance < load.memory_size:
                return bytes(min(limit, BLOCK, load.memory_size - distance))
        raise ElfError("%s at address 0x%x: no loadable segment holds it" % (what, address))

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= MAX_BLOCKS:
                self._blocks.clear()
            offset = number * BLOCK
            block = self._blocks[number] = self._read(offset, min(BLOCK, self.size - offset))
        return block

    def _read(self, offset: int, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self._pread(length - len(data), offset + len(data))
            if not more:
                raise ElfError("truncated: it became shorter than %d bytes while it was read" % (offset + length))
            data += more
        return data


class Strings:
    """Read the strings of one file, from the string table's address to their NUL, whatever DT_STRSZ says."""

    def __init__(self, image: Image, table: int | None) -> None:
        self._image = image
        self._table = table
        self._known: dict[int, bytes] = {}
        self._left = MAX_STRINGS

    def at(self, offset: int, what: str) -> bytes:
        """Read one string, by its offset in the table."""
        if offset not in self._known:
            self._known[offset] = self._find(offset, what)
        return self._known[offset]

    def _find(self, offset: int, what: str) -> bytes:
        if self._table is None:
            raise ElfError("%s is string %d, but there is no string table (DT_STRTAB)" % (what, offset))
        start = self._table + offset
        found = b""
        while len(found) <= MAX_STRING:
            piece = self._image.piece(start + len(found), BLOCK, what)
            text, end, _rest = piece.partition(b"\0")
            found += text
            if end:
                self._left -= len(found)
                if self._left < 0:
                    raise ElfError("%s: the strings have more than %d bytes together" % (what, MAX_STRINGS))
                return found
        raise ElfError("%s at address 0x%x: the string does not end within %d bytes" % (what, start, MAX_STRING))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an ELF file says about itself: bytes in, facts out. Nothing is executed, mapped or followed.

The file is read the way the dynamic loader sees it: the program headers lead to the dynamic section, addresses become
file offsets through the loadable segments, and strings end at their NUL. Section headers are not needed, and like the
loader one does not ask for DT_STRSZ, DT_VERNEEDNUM or DT_VERDEFNUM: what glibc loads is read, also after tools that
leave these wrong.

A file is never trusted: each count, string and chain has a limit below (far above what linkers write), so that a
hostile file costs no more than a few megabytes and about a second, and ends in :class:`ElfError`.

Two things are errors here although the loader goes on. A loadable segment that the file does not hold completely: that
is what a full file system and an interrupted copy leave, and a process dies of it later, by SIGBUS. And a string or
record outside all segments, which the loader may still find in the rest of a page: what lies there is by chance, and
depends on the size of pages.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from typing import BinaryIO, Callable, Iterable, Iterator, NamedTuple, Tuple

from .image import (
    BLOCK,
    MAX_LOADS,
    ElfError,
    Image,
    Segment,
    Strings,
)

MAGIC = b"\x7fELF"

HEADER_SIZE = 64
"""Bytes of the header of a 64-bit file; one of 32 bit has 52."""

OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How a file is opened that may have become a pipe or a terminal meanwhile: it is not waited for."""

ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4

MAX_ENTRIES = 1 << 15
"""Entries of the dynamic section: one for each needed library and some thirty more."""

MAX_NOTES = 64
"""Segments of notes that are looked at: linkers write one to three."""

MAX_NOTE_SIZE = 1 << 14
"""Bytes that are looked at in one of them."""

MAX_INTERPRETER = 4096
"""Bytes of the interpreter's path: PATH_MAX, beyond which the kernel refuses the program."""

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE, _PT_GNU_PROPERTY = 1, 2, 3, 4, 0x6474E553

_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE
_DT_AUXILIARY, _DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF
_LISTED = (_DT_NEEDED, _DT_AUXILIARY, _DT_FILTER)

_DF_1_NODEFLIB, _DF_1_PIE = 0x800, 0x08000000
_VER_FLG_WEAK = 2

_NT_GNU_ABI_TAG, _NT_GNU_PROPERTY_TYPE_0 = 1, 5
_ABI_TAG_LINUX = 0
_X86_ISA_1_NEEDED = 0xC0008002
_X86_MACHINES = (3, 62)


Identity = Tuple[int, int, int, int]
"""Device, inode, size and time of the last change (nanoseconds): a file, as long as nobody writes it."""


class VersionNeed(NamedTuple):
    """One symbol version that an object wants of one library (a DT_VERNEED record)."""

    library: bytes
    version: bytes
    weak: bool


class ElfObject(NamedTuple):
    """The facts of one ELF file that decide how it is loaded; strings are bytes, as paths are.

    Attributes:
        bits: 32 or 64.
        little_endian: the byte order.
        machine: e_machine, 62 for x86-64, 183 for AArch64.
        kind: e_type, one of ``ET_REL``, ``ET_EXEC``, ``ET_DYN``, ``ET_CORE``; only programs and shared objects are
            read beyond the header.
        os_abi: EI_OSABI.
        flags: e_flags.
        interpreter: the loader that the file names (PT_INTERP).
        dynamic: the file has a dynamic section.
        soname, needed, rpath, runpath: as in the dynamic section; rpath and runpath may both be there.
        flags_1: DT_FLAGS_1.
        version_needs: symbol versions wanted, in file order.
        version_definitions: symbol versions defined, in file order, the base definition (the soname) included,
            because the loader matches it too.
        minimum_kernel: of the note NT_GNU_ABI_TAG: the oldest Linux that the file says it runs on.
        isa_needed: bits of GNU_PROPERTY_X86_ISA_1_NEEDED: 1 baseline, 2 v2, 4 v3, 8 v4.
        filters, auxiliaries: DT_FILTER and DT_AUXILIARY, which the loader loads like needed libraries; those of
            DT_AUXILIARY may be missing.
        abi_version: EI_ABIVERSION.
    """

    bits: int
    little_endian: bool
    machine: int
    kind: int
    os_abi: int
    flags: int
    interpreter: bytes | None = None
    dynamic: bool = False
    soname: bytes | None = None
    needed: tuple[bytes, ...] = ()
    rpath: bytes | None = None
    runpath: bytes | None = None
    flags_1: int = 0
    version_needs: tuple[VersionNeed, ...] = ()
    version_definitions: tuple[bytes, ...] = ()
    minimum_kernel: tuple[int, int, int] | None = None
    isa_needed: int = 0
    filters: tuple[bytes, ...] = ()
    auxiliaries: tuple[bytes, ...] = ()
    abi_version: int = 0

    @property
    def nodeflib(self) -> bool:
        """The object asks the loader to leave out the default directories (DF_1_NODEFLIB)."""
        return bool(self.flags_1 & _DF_1_NODEFLIB)

    @property
    def pie(self) -> bool:
        """A program that was linked like a shared object (DF_1_PIE); the loader refuses it as a library."""
        return self.kind == ET_DYN and bool(self.flags_1 & _DF_1_PIE)


class _Layout:
    """The structures of one class and byte order, so that nothing else distinguishes them."""

    def __init__(self, order: str, wide: bool) -> None:
        # type, machine, version, offset of the program headers, flags, their size, their number
        self.header = struct.Struct(order + ("HHI8xQ8xI2xHH6x" if wide else "HHI4xI4xI2xHH6x"))
        # type, offset, address, size in the file, size in memory, alignment
        self.segment = struct.Struct(order + ("I4xQQ8xQQQ" if wide else "III4xII4xI"))
        self.entry = struct.Struct(order + ("QQ" if wide else "II"))
        self.word = struct.Struct(order + "I")
        self.words4 = struct.Struct(order + "IIII")
        self.note = struct.Struct(order + "III")
        self.property = struct.Struct(order + "II")
        self.property_alignment = 8 if wide else 4
        # version, file, first auxiliary, next / flags, name, next
        self.need = struct.Struct(order + "H2xIII")
        self.need_auxiliary = struct.Struct(order + "4xH2xII")
        # version, first auxiliary, next / name
        self.definition = struct.Struct(order + "H10xII")


_LAYOUTS = {
    (kind, order): _Layout("<" if order == 1 else ">", kind == 2)  # EI_CLASS 2 is 64 bit, EI_DATA 1 little-endian
    for kind in (1, 2)
    for order in (1, 2)
}


def read_elf(path: bytes | str) -> ElfObject | None:
    """The facts of one file.

    A file that is not ELF costs one read of 64 bytes. What is not a regular file is not opened (opening some devices
    has effects), and if it takes the place of one in between, opening it does not wait.

    Args:
        path: a file; symbolic links are followed.

    Returns:
        The facts, or None for a regular file that does not begin like ELF.

    Raises:
        ElfError: the file begins like ELF and is broken.
        OSError: as the system says; EISDIR for a directory, EINVAL for other things that are not regular files.
    """
    _require_regular(os.stat(path), path)
    descriptor = os.open(path, OPEN_FILE)
    try:
        status = os.fstat(descriptor)
        _require_regular(status, path)
        return read_open_elf(descriptor, status.st_size)
    finally:
        with contextlib.suppress(OSError):  # what was only read is right, whatever happens when it is closed
            os.close(descriptor)


def read_open_elf(descriptor: int, size: int) -> ElfObject | None:
    """The facts of a regular file that is open.

    Args:
        descriptor: it; its position neither counts nor changes.
        size: its size in bytes.

    Returns:
        The facts, or None where it does not begin like ELF.

    Raises:
        ElfError: it begins like ELF and is broken.
        OSError: as the system says.
    """
    def read(length: int, offset: int) -> bytes:
        return os.pread(descriptor, length, offset)

    start = _start(read, size)
    return _parse(read, size, start) if start[:4] == MAGIC else None


def identify(status: os.stat_result) -> Identity:
    """What tells a file from others, and from what it was before somebody wrote it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def parse_elf(stream: BinaryIO, size: int) -> ElfObject:
    """The facts of a file that is open.

    Args:
        stream: can be read and positioned.
        size: its size in bytes; nothing beyond is read.

    Raises:
        ElfError: it is not ELF, or is broken.
        OSError: as the system says.
    """
    def read(length: int, offset: int) -> bytes:
        stream.seek(offset)
        return stream.read(length)

    return _parse(read, size, _start(read, size))


def _start(read: Callable[[int, int], bytes], size: int) -> bytes:
    """The first bytes, as many as an ELF header has; a file that becomes shorter meanwhile ends earlier."""
    length = min(size, HEADER_SIZE)
    start = read(length, 0)
    while start and len(start) < length:
        more = read(length - len(start), len(start))
        if not more:
            break
        start += more
    return start


def _require_regular(status: os.stat_result, path: bytes | str) -> None:
    if not stat.S_ISREG(status.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, "not a regular file", path)


def _parse(read: Callable[[int, int], bytes], size: int, start: bytes) -> ElfObject:
    if start[:4] != MAGIC:
        raise ElfError("not ELF: it begins with %r" % start[:4])
    if len(start) < 16:
        raise ElfError("truncated: the ELF header ends at 52 or 64, the file at %d" % len(start))
    layout = _LAYOUTS.get((start[4], start[5]))
    if layout is None:
        raise ElfError("class %d and byte order %d at offset 4: each must be 1 or 2" % (start[4], start[5]))
    end = 16 + layout.header.size
    if len(start) < end:
        raise ElfError("truncated: the ELF header ends at %d, the file at %d" % (end, len(start)))
    kind, machine, version, headers, flags, entry_size, count = layout.header.unpack(start[16:end])
    if start[6] != 1 or version != 1:
        raise ElfError("ELF version %d at offset 6 and %d at offset 20: both must be 1" % (start[6], version))
    facts = ElfObject(
        bits=32 * start[4],
        little_endian=start[5] == 1,
        machine=machine,
        kind=kind,
        os_abi=start[7],
        flags=flags,
        abi_version=start[8],
    )
    if kind not in (ET_EXEC, ET_DYN) or not count:
        return facts
    if entry_size != layout.segment.size:
        raise ElfError("program headers of %d bytes: they have %d" % (entry_size, layout.segment.size))
    image = Image(read, size)
    # 0xffff (PN_XNUM) means a larger number elsewhere, but to the loaders, as here, it is a number like others.
    table = image.file(headers, count * layout.segment.size, "the program headers")
    return _read_segments(facts, layout, image, map(Segment._make, layout.segment.iter_unpack(table)))


def _read_segments(facts: ElfObject, layout: _Layout, image: Image, segments: Iterable[Segment]) -> ElfObject:
    dynamic = interpreter = None
    notes: list[Segment] = []
    for segment in segments:
        if segment.kind == _PT_LOAD:
            end = segment.offset + segment.file_size
            if segment.file_size and end > image.size:
                raise ElfError(
                    "truncated: the segment at %d ends at %d, the file at %d" % (segment.offset, end, image.size)
                )
            image.loads.append(segment)
            if len(image.loads) > MAX_LOADS:
                raise ElfError("more than %d loadable segments" % MAX_LOADS)
        elif segment.kind == _PT_DYNAMIC and segment.file_size:
            # Without contents in separate debugging information, which glibc leaves aside in the same way; of
            # several the last one counts there.
            dynamic = segment
        elif segment.kind == _PT_INTERP and segment.file_size and interpreter is None:
            interpreter = _read_interpreter(image, segment)
        elif segment.kind in (_PT_NOTE, _PT_GNU_PROPERTY) and len(notes) < MAX_NOTES:
            notes.append(segment)
    facts = facts._replace(interpreter=interpreter)
    if dynamic is not None:
        facts = _read_dynamic(facts, layout, image, dynamic.address)
    return _read_notes(facts, layout, image, notes)


def _read_interpreter(image: Image, segment: Segment) -> bytes:
    """The path of the program's loader; the rules are the kernel's (fs/binfmt_elf.c)."""
    if segment.file_size > MAX_INTERPRETER:
        raise ElfError("the interpreter at %d has %d bytes" % (segment.offset, segment.file_size))
    path, end, _rest = image.file(segment.offset, segment.file_size, "the interpreter").partition(b"\0")
    if not end:
        raise ElfError(
            "the interpreter at %d to %d does not end" % (segment.offset, segment.offset + segment.file_size)
        )
    return path


def _read_dynamic(facts: ElfObject, layout: _Layout, image: Image, address: int) -> ElfObject:
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
        dynamic=True,
        soname=optional(_DT_SONAME, "the soname"),
        needed=several(_DT_NEEDED, "a needed library"),
        rpath=optional(_DT_RPATH, "the RPATH"),
        runpath=optional(_DT_RUNPATH, "the RUNPATH"),
        flags_1=values.get(_DT_FLAGS_1, 0),
        version_needs=tuple(_version_needs(layout, image, strings, values.get(_DT_VERNEED))),
        version_definitions=tuple(_version_definitions(layout, image, strings, values.get(_DT_VERDEF))),
        filters=several(_DT_FILTER, "a filter"),
        auxiliaries=several(_DT_AUXILIARY, "an auxiliary filter"),
    )


def _entries(layout: _Layout, image: Image, address: int) -> Iterator[tuple[int, int]]:
    """Tag and value up to DT_NULL, which ends the dynamic section for the loader, whatever its header says."""
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


def _version_needs(layout: _Layout, image: Image, strings: Strings, address: int | None) -> Iterator[VersionNeed]:
    """Wanted symbol versions: a chain of libraries with a chain of versions each; a step of 0 ends a chain.

    Chains can cross each other and, in theory, be as long as the file; the limit on steps ends them.
    """
    step = 1
    while address is not None and step:
        version, name, first, step = layout.need.unpack(image.memory(address, layout.need.size, "symbol versions"))
        _require_version(version, address)
        library = strings.at(name, "the library of a wanted version")
        auxiliary, following = address + first, 1
        while following:
            flags, name, following = layout.need_auxiliary.unpack(
                image.memory(auxiliary, layout.need_auxiliary.size, "a wanted version")
            )
            yield VersionNeed(library, strings.at(name, "a wanted version"), bool(flags & _VER_FLG_WEAK))
            auxiliary += following
        address += step


def _version_definitions(layout: _Layout, image: Image, strings: Strings, address: int | None) -> Iterator[bytes]:
    """Defined symbol versions; the first name of a definition is its own, further ones are its parents."""
    step = 1
    while address is not None and step:
        version, first, step = layout.definition.unpack(
            image.memory(address, layout.definition.size, "symbol versions")
        )
        _require_version(version, address)
        (name,) = layout.word.unpack(image.memory(address + first, layout.word.size, "a defined version"))
        yield strings.at(name, "a defined version")
        address += step


def _require_version(version: int, address: int) -> None:
    if version != 1:
        raise ElfError("symbol versions at address 0x%x: version %d of the format, not 1" % (address, version))


def _read_notes(facts: ElfObject, layout: _Layout, image: Image, segments: list[Segment]) -> ElfObject:
    """What GNU notes say about the machine; the loader passes over notes that make no sense, and so does this."""
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


def _gnu_notes(layout: _Layout, data: bytes, alignment: int) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + layout.note.size <= len(data):
        name_size, size, kind = layout.note.unpack_from(data, position)
        name = position + layout.note.size
        content = _aligned(name + name_size, alignment)
        if data[name : name + name_size] == b"GNU\0" and content + size <= len(data):
            yield kind, data[content : content + size]
        position = _aligned(content + size, alignment)


def _isa_needed(layout: _Layout, content: bytes) -> int:
    position = 0
    while position + layout.property.size <= len(content):
        kind, size = layout.property.unpack_from(content, position)
        position += layout.property.size
        if kind == _X86_ISA_1_NEEDED and size == layout.word.size and position + size <= len(content):
            (bits,) = layout.word.unpack_from(content, position)
            return int(bits)
        position += _aligned(size, layout.property_alignment)
    return 0


def _aligned(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment

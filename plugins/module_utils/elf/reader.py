# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what an ELF file says about itself. Nothing is executed, mapped or followed.

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
from typing import Callable, Iterable, Tuple

from .dynamic_section import read_dynamic
from .elf_object import ET_DYN, ET_EXEC, MAGIC, ElfObject
from .image import (
    MAX_LOADS,
    ElfError,
    Image,
    Segment,
)
from .layout import LAYOUTS, Layout
from .notes import MAX_NOTES, read_notes

HEADER_SIZE = 64  # of a 64-bit file; one of 32 bit has 52
OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How a file is opened that may have become a pipe or a terminal meanwhile: it is not waited for."""
MAX_INTERPRETER = 4096  # PATH_MAX, beyond which the kernel refuses the program

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE, _PT_GNU_PROPERTY = 1, 2, 3, 4, 0x6474E553

Identity = Tuple[int, int, int, int]
"""Device, inode, size and time of the last change (nanoseconds): a file, as long as nobody writes it."""


def read_elf(path: bytes | str) -> ElfObject | None:
    """Read the facts of one file.

    A file that is not ELF costs one read of 64 bytes. What is not a regular file is not opened (opening some devices
    has effects), and if it takes the place of one in between, opening it does not wait. Symbolic links are followed.

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
    """Read the facts of a regular file that is open as :func:`parse_elf`; its position neither counts nor changes."""
    return parse_elf(lambda length, offset: os.pread(descriptor, length, offset), size)


def parse_elf(read: Callable[[int, int], bytes], size: int) -> ElfObject | None:
    """Parse the bytes of a file; None where they do not begin like ELF.

    Args:
        read: gives bytes of the file by their number and offset; it may give less.
        size: its size in bytes; nothing beyond is read.

    Raises:
        ElfError: they begin like ELF and are broken.
    """
    start, length = b"", min(size, HEADER_SIZE)
    while len(start) < length:
        more = read(length - len(start), len(start))
        if not more:  # it becomes shorter
            break
        start += more
    return _parse(read, size, start) if start[:4] == MAGIC else None


def file_identity(status: os.stat_result) -> Identity:
    """Return what tells a file from others, and from what it was before somebody wrote it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _require_regular(status: os.stat_result, path: bytes | str) -> None:
    if not stat.S_ISREG(status.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, "not a regular file", path)


def _parse(read: Callable[[int, int], bytes], size: int, start: bytes) -> ElfObject:
    if len(start) < 16:
        raise ElfError("truncated: the ELF header ends at 52 or 64, the file at %d" % len(start))
    layout = LAYOUTS.get((start[4], start[5]))
    if layout is None:
        raise ElfError("class %d and byte order %d at offset 4: each must be 1 or 2" % (start[4], start[5]))
    end = 16 + layout.header.size
    if len(start) < end:
        raise ElfError("truncated: the ELF header ends at %d, the file at %d" % (end, len(start)))
    kind, machine, version, headers, flags, entry_size, count = layout.header.unpack(start[16:end])
    if start[6] != 1 or version != 1:
        raise ElfError("ELF version %d at offset 6 and %d at offset 20: both must be 1" % (start[6], version))
    facts = ElfObject(
        bits=32 * start[4], little_endian=start[5] == 1, machine=machine, kind=kind, os_abi=start[7], flags=flags,
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


def _read_segments(facts: ElfObject, layout: Layout, image: Image, segments: Iterable[Segment]) -> ElfObject:
    dynamic = interpreter = None
    notes: list[Segment] = []
    for segment in segments:
        if segment.kind == _PT_LOAD:
            end = segment.offset + segment.file_size
            if segment.file_size and end > image.size:
                message = "truncated: the segment at %d ends at %d, the file at %d"
                raise ElfError(message % (segment.offset, end, image.size))
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
        facts = read_dynamic(facts, layout, image, dynamic.address)
    return read_notes(facts, layout, image, notes)


def _read_interpreter(image: Image, segment: Segment) -> bytes:
    """Read the path of the program's loader; the rules are the kernel's (fs/binfmt_elf.c)."""
    if segment.file_size > MAX_INTERPRETER:
        raise ElfError("the interpreter at %d has %d bytes" % (segment.offset, segment.file_size))
    path, end, _rest = image.file(segment.offset, segment.file_size, "the interpreter").partition(b"\0")
    if not end:
        end_at = segment.offset + segment.file_size
        raise ElfError("the interpreter at %d to %d does not end" % (segment.offset, end_at))
    return path

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse the dynamic loader's cache, ``/etc/ld.so.cache``, and look names up in it.

Three layouts are in use: the old one of libc5, the new one of glibc 2.2 inside an old one, and the new one alone
(glibc 2.32 and later write it). Since glibc 2.33 an extension section names the ``glibc-hwcaps`` sub-directories, and
an entry from such a directory refers to it by number. The source of the rules is glibc's ``elf/dl-cache.c``.

A cache that makes no sense is an empty one, as for glibc, with the reason kept: nothing in it is trusted, and each
count is held against the size of the file.
"""

from __future__ import annotations

import re
import struct
from typing import Iterable, NamedTuple

OLD_MAGIC = b"ld.so-1.7.0"
NEW_MAGIC = b"glibc-ld.so.cache1.1"

MAX_SIZE = 1 << 24  # bytes of a cache: those of large systems have a few hundred kilobytes
MAX_STRING = 4096  # bytes of one name or path: PATH_MAX
MAX_HWCAPS = 1024  # names of sub-directories: glibc itself knows three

_OLD_HEADER, _OLD_ENTRY = len(OLD_MAGIC) + 1 + 4, 12
_NEW_HEADER, _NEW_ENTRY, _ALIGNMENT = 48, 24, 8
_FLAGS_OFFSET, _EXTENSION_OFFSET = len(NEW_MAGIC) + 8, len(NEW_MAGIC) + 12
_INVALID, _LITTLE, _BIG = 1, 2, 3
_EXTENSION_MAGIC, _TAG_GENERATOR, _TAG_HWCAPS = 0xEAA42174, 0, 1
_EXTENSION_BIT, _TLS_BIT, _PLATFORM_BITS, _ISA_MASK = 1 << 62, 1 << 63, 0xF << 48, 0x3FF

_LEADING_ZEROS = re.compile(rb"(?<![0-9])0+(?=[0-9])")


class CacheEntry(NamedTuple):
    """Describe one library of the cache.

    Attributes:
        flags: the kind of library: 0x303 for x86-64, 0xa03 for AArch64.
        os_version: the oldest Linux it runs on, as 0xMMmmpp; 0 for any.
        hwcap: bits of the processor that it wants; bit 62: it lies in the directory ``hwcaps``.
        hwcaps: the name of its ``glibc-hwcaps`` sub-directory.
    """

    flags: int
    name: bytes
    path: bytes
    os_version: int = 0
    hwcap: int = 0
    hwcaps: bytes = b""


class CacheRules(NamedTuple):
    """Describe what one loader on one processor accepts from the cache.

    Attributes:
        flags: the only kind of library that it takes.
        hwcaps: names of ``glibc-hwcaps`` sub-directories that it searches, best first.
        hwcap: bits of the processor that count.
        platforms, platform: whether bits 48 to 51 name a platform on this machine; its bit, or 0.
        isa: bits of x86 levels: 1 baseline, 2 v2, 4 v3, 8 v4; None where entries have no such level.
        kernel: this Linux as 0xMMmmpp where the loader compares it (before glibc 2.36), else 0.
    """

    flags: int
    hwcaps: tuple[bytes, ...] = ()
    hwcap: int = 0
    platforms: bool = False
    platform: int = 0
    isa: int | None = None
    kernel: int = 0


class LdCache:
    """Hold a cache's entries in the file's order, which is that of preference; ``problem``: why it is of no use."""

    def __init__(self, entries: Iterable[CacheEntry] = (), generator: bytes = b"", problem: str = "") -> None:
        self.entries = tuple(entries)
        self.generator = generator
        self.problem = problem
        self._by_name: dict[bytes, list[CacheEntry]] = {}
        for entry in self.entries:
            self._by_name.setdefault(_key(entry.name), []).append(entry)

    def lookup(self, name: bytes, rules: CacheRules) -> bytes | None:
        """Find the path that glibc takes: the best ``glibc-hwcaps`` entry, else the first that fits."""
        best, best_rank = None, len(rules.hwcaps)
        for entry in self._by_name.get(_key(name), ()):
            if entry.flags != rules.flags or (rules.kernel and entry.os_version > rules.kernel):
                continue
            if _is_extension(entry.hwcap):
                level = 1 << (entry.hwcap >> 32 & _ISA_MASK)
                if (rules.isa is None or level & rules.isa) and entry.hwcaps in rules.hwcaps[:best_rank]:
                    best, best_rank = entry.path, rules.hwcaps.index(entry.hwcaps)
                continue
            if best is not None:
                break
            if entry.hwcap & ~(rules.hwcap | _PLATFORM_BITS | _TLS_BIT):
                continue
            platform = entry.hwcap & _PLATFORM_BITS
            if rules.platforms and platform and platform != rules.platform:
                continue
            return entry.path
        return best


def parse_cache(data: bytes) -> LdCache:
    """Parse a cache file; where glibc would pass it over, an empty cache with the reason."""
    if len(data) > MAX_SIZE:
        return LdCache(problem="more than %d bytes" % MAX_SIZE)
    if data.startswith(NEW_MAGIC):
        return _parse_new(data, 0)
    if not data.startswith(OLD_MAGIC):
        return LdCache(problem="not a cache of the loader: it begins with %r" % data[:20])
    if len(data) < _OLD_HEADER:
        return LdCache(problem="truncated: the header ends at %d, the file at %d" % (_OLD_HEADER, len(data)))
    for order in "<>":
        (count,) = struct.unpack_from(order + "I", data, _OLD_HEADER - 4)
        strings = _OLD_HEADER + count * _OLD_ENTRY
        if strings <= len(data):
            start = -(-strings // _ALIGNMENT) * _ALIGNMENT
            if data.startswith(NEW_MAGIC, start):
                return _parse_new(data, start)
            return _parse_old(data, order, strings)
    return LdCache(problem="truncated: more entries than %d bytes hold" % len(data))


def _parse_old(data: bytes, order: str, strings: int) -> LdCache:
    records = struct.iter_unpack(order + "iII", data[_OLD_HEADER:strings])
    return _collect(data, strings, ((flags, name, path, 0, 0) for flags, name, path in records), [])


def _parse_new(data: bytes, start: int) -> LdCache:
    """Parse the new layout; it may begin behind an old one, and its strings count from its beginning."""
    first = start + _NEW_HEADER
    if len(data) < first:
        return LdCache(problem="truncated: the header ends at %d, the file at %d" % (first, len(data)))
    room = (len(data) - first) // _NEW_ENTRY
    mark = data[start + _FLAGS_OFFSET] & 3
    if mark == _INVALID:
        return LdCache(problem="marked as invalid by what wrote it")
    # Writers before glibc 2.33 left the byte order out.
    for order in {_LITTLE: "<", _BIG: ">"}.get(mark, "<>"):
        (count,) = struct.unpack_from(order + "I", data, start + len(NEW_MAGIC))
        if count <= room:
            break
    else:
        return LdCache(problem="truncated: %d entries, there is room for %d" % (count, room))
    hwcaps, generator = _read_extensions(data, start, order)
    records = struct.iter_unpack(order + "iIIIQ", data[first : first + count * _NEW_ENTRY])
    return _collect(data, start, records, hwcaps, generator)


def _collect(
    data: bytes, strings: int, records: Iterable[tuple[int, ...]], hwcaps: list[bytes], generator: bytes = b""
) -> LdCache:
    entries, lost = [], 0
    for flags, name_at, path_at, version, hwcap in records:
        name, path = _string(data, strings + name_at), _string(data, strings + path_at)
        if name is None or path is None:
            lost += 1
            continue
        number = hwcap & 0xFFFFFFFF
        directory = hwcaps[number] if _is_extension(hwcap) and number < len(hwcaps) else b""
        entries.append(CacheEntry(flags, name, path, version, hwcap, directory))
    return LdCache(entries, generator, "%d entries have strings outside of the file" % lost if lost else "")


def _read_extensions(data: bytes, start: int, order: str) -> tuple[list[bytes], bytes]:
    """Read names of ``glibc-hwcaps`` directories and the generator; nothing from a broken section.

    Unlike those of entries, all positions here count from the beginning of the file.
    """
    (offset,) = struct.unpack_from(order + "I", data, start + _EXTENSION_OFFSET)
    if not offset or offset % 4 or offset + 8 > len(data):
        return [], b""
    magic, count = struct.unpack_from(order + "II", data, offset)
    end = offset + 8 + count * 16
    if magic != _EXTENSION_MAGIC or end > len(data):
        return [], b""
    sections = {}
    for tag, _flags, begin, size in struct.iter_unpack(order + "IIII", data[offset + 8 : end]):
        if begin + size > len(data):
            return [], b""
        sections[tag] = (begin, size)
    begin, size = sections.get(_TAG_GENERATOR, (0, 0))
    generator = data[begin : begin + min(size, MAX_STRING)]
    begin, size = sections.get(_TAG_HWCAPS, (0, 0))
    if begin % 4 or size % 4 or size > 4 * MAX_HWCAPS:
        return [], generator
    positions = struct.unpack_from("%s%dI" % (order, size // 4), data, begin)
    return [_string(data, position) or b"" for position in positions], generator


def _string(data: bytes, offset: int) -> bytes | None:
    end = data.find(b"\0", offset, offset + MAX_STRING)
    return data[offset:end] if end >= 0 else None


def _is_extension(hwcap: int) -> bool:
    return hwcap >> 32 & ~_ISA_MASK == _EXTENSION_BIT >> 32


def _key(name: bytes) -> bytes:
    """Return a name as the loader compares it: runs of digits by their value."""
    return _LEADING_ZEROS.sub(b"", name)

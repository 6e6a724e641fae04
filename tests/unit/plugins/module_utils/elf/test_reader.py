# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""ELF files are read as the loader sees them, and nothing that a file says can crash or stall the reader.

The files are written by :func:`build`, byte by byte, so that each lie of a hostile file is a single changed field.
"""

from __future__ import annotations

import errno
import io
import os
import pathlib
import socket
import struct
import time
import tracemalloc
from typing import NamedTuple, Sequence

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf import image as elf_image
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf import reader as elf
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.reader import (
    ElfError,
    VersionNeed,
    parse_elf,
    read_elf,
)

CORPUS = pathlib.Path(__file__).parents[4] / "fixtures" / "elf_corpus"
BASE = 0x10000
LOAD, DYNAMIC, INTERP, NOTE, PROPERTY = 1, 2, 3, 4, 0x6474E553
NEEDED, STRTAB, STRSZ, SONAME, RPATH, RUNPATH = 1, 5, 10, 14, 15, 29
FLAGS_1, VERDEF, VERDEFNUM, VERNEED, VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
AUXILIARY, FILTER = 0x7FFFFFFD, 0x7FFFFFFF
LAYOUTS = [(64, "<"), (64, ">"), (32, "<"), (32, ">")]


class Built(NamedTuple):
    """An ELF file in memory, and where its parts lie."""

    data: bytearray
    at: dict[str, int]
    word: str

    def put(self, place: str, value: int, distance: int = 0, code: str = "") -> Built:
        """The file with one field changed, of the class's word size where no struct code is given."""
        code = self.word[0] + code if code else self.word
        struct.pack_into(code, self.data, self.at[place] + distance, value)
        return self


class Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int = 4


def gnu_note(order: str, kind: int, content: bytes, name: bytes = b"GNU\0") -> bytes:
    return struct.pack(order + "III", len(name), len(content), kind) + name + content


def build(
    bits: int = 64,
    order: str = "<",
    kind: int = 3,
    machine: int = 62,
    flags: int = 0,
    os_abi: int = 0,
    interpreter: bytes = b"",
    strings: Sequence[tuple[int, bytes]] = (),
    values: Sequence[tuple[int, int]] = (),
    needs: Sequence[tuple[bytes, Sequence[tuple[bytes, bool]]]] = (),
    definitions: Sequence[bytes] = (),
    notes: bytes = b"",
    note_kind: int = NOTE,
    note_alignment: int = 4,
    segments: Sequence[Segment] = (),
    dynamic: bool = True,
) -> Built:
    """An ELF file with one loadable segment at BASE, which holds all of it."""
    wide = bits == 64
    word = order + ("Q" if wide else "I")
    header_size, entry_size = (64, 56) if wide else (52, 32)
    kinds = [LOAD] + [INTERP] * bool(interpreter) + [NOTE] * bool(notes) + [DYNAMIC] * dynamic
    body = bytearray(header_size + entry_size * (len(kinds) + len(segments)))
    at = {"header": 0, "phdr": header_size}

    def place(name: str, content: bytes) -> None:
        body.extend(bytes(-len(body) % 8))
        at[name] = len(body)
        body.extend(content)

    table = bytearray(b"\0")

    def string(text: bytes) -> int:
        table.extend(text + b"\0")
        return len(table) - len(text) - 1

    entries = [(tag, string(text)) for tag, text in strings] + list(values)
    need_records = bytearray()
    for number, (library, versions) in enumerate(needs):
        following = 0 if number + 1 == len(needs) else 16 + 16 * len(versions)
        need_records += struct.pack(order + "HHIII", 1, len(versions), string(library), 16, following)
        for index, (version, weak) in enumerate(versions):
            following = 0 if index + 1 == len(versions) else 16
            need_records += struct.pack(order + "IHHII", 0, 2 * weak, 2, string(version), following)
    definition_records = bytearray()
    for number, version in enumerate(definitions):
        following = 0 if number + 1 == len(definitions) else 28
        definition_records += struct.pack(order + "HHHHIII", 1, number == 0, number + 1, 1, 0, 20, following)
        definition_records += struct.pack(order + "II", string(version), 0)
    for name, content in (
        ("interpreter", interpreter + b"\0" if interpreter else b""),
        ("notes", notes),
        ("strings", bytes(table)),
        ("needs", bytes(need_records)),
        ("definitions", bytes(definition_records)),
    ):
        place(name, content)
    entries += [(STRTAB, BASE + at["strings"]), (STRSZ, len(table))]
    if needs:
        entries += [(VERNEED, BASE + at["needs"]), (VERNEEDNUM, len(needs))]
    if definitions:
        entries += [(VERDEF, BASE + at["definitions"]), (VERDEFNUM, len(definitions))]
    place("dynamic", b"".join(struct.pack(order + 2 * word[1], *entry) for entry in [*entries, (0, 0)]))
    for index, (tag, _value) in enumerate(entries):
        at.setdefault("tag %d" % tag, at["dynamic"] + index * struct.calcsize(2 * word[1]))

    own = {
        LOAD: Segment(LOAD, 0, BASE, len(body), len(body)),
        INTERP: Segment(INTERP, at["interpreter"], 0, len(interpreter) + 1, len(interpreter) + 1),
        NOTE: Segment(note_kind, at["notes"], 0, len(notes), len(notes), note_alignment),
        DYNAMIC: Segment(DYNAMIC, at["dynamic"], BASE + at["dynamic"], len(body) - at["dynamic"], 0),
    }
    for index, segment in enumerate([own[kind_] for kind_ in kinds] + list(segments)):
        position = header_size + index * entry_size
        at["segment %d" % segment.kind] = position
        if wide:
            fields = (segment.kind, 4, *segment[1:3], segment.address, *segment[3:])
        else:
            fields = (segment.kind, *segment[1:3], segment.address, *segment[3:5], 4, segment.alignment)
        struct.pack_into(order + ("IIQQQQQQ" if wide else "IIIIIIII"), body, position, *fields)
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1, os_abi]) + bytes(8)
    count = len(kinds) + len(segments)
    codes = order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")
    header = struct.pack(codes, kind, machine, 1, 0, header_size, 0, flags, header_size, entry_size, count, 0, 0, 0)
    body[: len(ident) + len(header)] = ident + header
    return Built(body, at, word)


def library(bits: int = 64, order: str = "<") -> Built:
    """A shared object with all that is read."""
    return build(
        bits,
        order,
        interpreter=b"/lib64/ld.so",
        strings=[
            (NEEDED, b"libb.so.1"),
            (NEEDED, b"libc.so.6"),
            (SONAME, b"liba.so.1"),
            (RPATH, b"/opt/old"),
            (RUNPATH, b"$ORIGIN/../lib:/opt/new"),
        ],
        values=[(FLAGS_1, 0x800)],
        needs=[(b"libc.so.6", [(b"GLIBC_2.17", False), (b"GLIBC_2.34", True)]), (b"libb.so.1", [(b"B_1", False)])],
        definitions=[b"liba.so.1", b"A_1.0", b"A_2.0"],
        notes=gnu_note(order, 1, struct.pack(order + "IIII", 0, 3, 2, 0)),
    )


def parse(built: Built) -> elf.ElfObject:
    return parse_elf(io.BytesIO(bytes(built.data)), len(built.data))


class CountingStream(io.BytesIO):
    """A file that notes the size of each read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.sizes: list[int] = []

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.sizes.append(len(data))
        return data


@pytest.mark.parametrize(("bits", "order"), LAYOUTS)
def test_a_shared_object_says_what_it_is_and_what_it_needs_in_each_class_and_byte_order(bits, order):
    facts = parse(library(bits, order))
    assert facts == elf.ElfObject(
        bits=bits,
        little_endian=order == "<",
        machine=62,
        kind=elf.ET_DYN,
        os_abi=0,
        flags=0,
        interpreter=b"/lib64/ld.so",
        dynamic=True,
        soname=b"liba.so.1",
        needed=(b"libb.so.1", b"libc.so.6"),
        rpath=b"/opt/old",
        runpath=b"$ORIGIN/../lib:/opt/new",
        flags_1=0x800,
        version_needs=(
            VersionNeed(b"libc.so.6", b"GLIBC_2.17", False),
            VersionNeed(b"libc.so.6", b"GLIBC_2.34", True),
            VersionNeed(b"libb.so.1", b"B_1", False),
        ),
        version_definitions=(b"liba.so.1", b"A_1.0", b"A_2.0"),
        minimum_kernel=(3, 2, 0),
    )
    assert facts.nodeflib and not facts.pie


@pytest.mark.parametrize(("bits", "order"), LAYOUTS)
def test_the_x86_level_a_program_needs_is_read_from_its_property_note(bits, order):
    padding = bytes(4 if bits == 64 else 0)
    content = struct.pack(order + "III", 0xC0000002, 4, 3) + padding + struct.pack(order + "III", 0xC0008002, 4, 6)
    note = gnu_note(order, 5, content + padding)
    built = build(bits, order, notes=note, note_kind=PROPERTY, note_alignment=8 if bits == 64 else 4)
    assert parse(built).isa_needed == 6
    other = build(bits, order, notes=note, note_alignment=8, machine=183)
    assert parse(other).isa_needed == 0, "the same number is another property on other machines"


def test_filters_flags_machine_and_abi_are_reported():
    strings = [(AUXILIARY, b"libfast.so"), (FILTER, b"libreal.so")]
    facts = parse(build(32, ">", machine=20, flags=0x8001, os_abi=3, strings=strings, values=[(FLAGS_1, 1 << 27)]))
    assert (facts.machine, facts.flags, facts.os_abi) == (20, 0x8001, 3)
    assert (facts.auxiliaries, facts.filters) == ((b"libfast.so",), (b"libreal.so",))
    assert facts.pie and not facts.nodeflib


@pytest.mark.parametrize("kind", [0, 1, 4, 0xFE00])
def test_object_files_and_core_dumps_are_read_up_to_the_header_only(kind):
    facts = parse(library().put("header", kind, 16, "H").put("header", 2**64 - 1, 32))
    assert (facts.kind, facts.dynamic, facts.needed) == (kind, False, ())


def test_a_static_program_is_not_dynamic():
    facts = parse(build(kind=2, dynamic=False))
    assert (facts.kind, facts.dynamic, facts.needed, facts.interpreter) == (2, False, (), None)


def test_separate_debugging_information_has_no_dynamic_section():
    built = library()
    built.put("segment 2", 0, 32)
    assert not parse(built).dynamic


LOADABLE_ALL_THE_SAME = {
    "a string table size of 0": lambda: library().put("tag %d" % STRSZ, 0, 8),
    "a string table size beyond the file": lambda: library().put("tag %d" % STRSZ, 2**64 - 1, 8),
    "no string table size": lambda: library().put("tag %d" % STRSZ, 0x6FFFFEF5),
    "a wrong number of version needs": lambda: library().put("tag %d" % VERNEEDNUM, 2**32, 8),
    "a wrong number of version definitions": lambda: library().put("tag %d" % VERDEFNUM, 0, 8),
    "a wrong number of versions of one library": lambda: library().put("needs", 0xFFFF, 2, "H"),
    "no section headers where the header says some": lambda: library().put("header", 2**64 - 1, 40),
    "a dynamic section shorter than its entries": lambda: library().put("segment 2", 16, 32),
    "a dynamic section at another offset than address": lambda: library().put("segment 2", 2**40, 8),
    "a header size of 0": lambda: library().put("header", 0, 52, "H"),
    "notes outside the file": lambda: library().put("segment 4", 2**63, 8),
}


@pytest.mark.parametrize("case", sorted(LOADABLE_ALL_THE_SAME))
def test_what_the_loader_does_not_look_at_may_be_wrong(case):
    facts = parse(LOADABLE_ALL_THE_SAME[case]())
    assert facts._replace(minimum_kernel=(3, 2, 0)) == parse(library())


def test_the_size_of_memory_beyond_the_file_reads_as_zeros():
    built = build(strings=[(SONAME, b"liba.so.1")])
    end = built.at["dynamic"] + 3 * 16
    del built.data[end:]
    built.put("segment 1", end, 32).put("segment 1", end + 4096, 40)
    assert parse(built).soname == b"liba.so.1", "DT_NULL comes from the zeros after the file"
    with pytest.raises(ElfError, match=r"the dynamic section at address 0x[0-9a-f]+: no loadable segment holds it"):
        parse(built.put("segment 1", end, 40))


def test_of_overlapping_segments_the_last_one_is_read():
    built = build(strings=[(SONAME, b"liba.so.1")], segments=[Segment(LOAD, 0, 0, 0, 0)])
    other = len(built.data)
    built.data.extend(b"\0libz.so.1\0")
    for distance, value in ((8, other), (16, BASE + built.at["strings"]), (32, 11), (40, 11)):
        built.put("segment 1", value, distance)
    assert parse(built).soname == b"libz.so.1"


def test_segments_of_size_zero_are_nothing():
    empty = [Segment(LOAD, 2**64 - 1, BASE, 0, 0), Segment(INTERP, 2**63, 0, 0, 0), Segment(DYNAMIC, 2**63, 0, 0, 0)]
    assert parse(build(strings=[(SONAME, b"a")], segments=empty)).soname == b"a"


@pytest.mark.parametrize(("bits", "order"), LAYOUTS)
@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_of_any_size_give_the_same_facts(monkeypatch, bits, order, block):
    expected = parse(library(bits, order))
    monkeypatch.setattr(elf_image, "BLOCK", block)
    monkeypatch.setattr(elf, "BLOCK", block)
    monkeypatch.setattr(elf_image, "MAX_BLOCKS", 2)
    assert parse(library(bits, order)) == expected


def test_memory_put_together_of_single_bytes_is_read():
    size = 250
    needed = [(NEEDED, 2 + index) for index in range(size - 2)]
    empty = [Segment(LOAD, 0, 0, 1, 1)] * size
    built = build(strings=[(NEEDED, b"y" * size)], values=needed, segments=empty)
    table = len(built.data)
    built.data.extend(b"\0" + b"y" * size + b"\0")
    built.put("tag %d" % STRTAB, 2**40, 8)
    for index in range(size):
        built.put("phdr", table + 1 + index, 56 * (index + 2) + 8)
        built.put("phdr", 2**40 + 1 + index, 56 * (index + 2) + 16)
    built.put("phdr", 2, 56 * (size + 1) + 40)
    started = time.process_time()
    facts = parse(built)
    assert facts.needed == tuple(b"y" * (size - index) for index in range(size - 1))
    assert time.process_time() - started < 20


def test_a_string_and_a_table_may_cross_from_block_to_block():
    long = b"/" + b"x" * 3 * elf_image.BLOCK
    needed = [(NEEDED, b"lib%04d.so" % number) for number in range(1000)]
    facts = parse(build(strings=[(RUNPATH, long), *needed]))
    assert facts.runpath == long and len(facts.needed) == 1000 and facts.needed[999] == b"lib0999.so"


def chain(record: bytes, count: int) -> Built:
    """A shared object whose first wanted version begins these bytes, repeated."""
    built = build(needs=[(b"l", [(b"v", False)])])
    built.put("needs", len(built.data) - built.at["needs"], 8, "I")
    built.data.extend(record * count + bytes(64))
    return built.put("segment 1", len(built.data), 32).put("segment 1", len(built.data), 40)


def overlapping_chains() -> Built:
    """Each byte offset begins a library record, and each of these begins a chain through all others."""
    built = build(values=[(VERNEED, 0)])
    start = len(built.data)
    built.put("tag %d" % VERNEED, BASE + start, 8)
    built.data.extend(struct.pack("<HHIII", 1, 1, 0, 16, 16) * 40000 + bytes(64))
    size = len(built.data)
    return built.put("segment 1", size, 32).put("segment 1", size, 40)


def many(tag: int, count: int, length: int) -> Built:
    """A dynamic section with `count` strings of about `length` bytes, each at its own offset."""
    return build(strings=[(tag, b"x" * (length + count))], values=[(tag, 1 + index) for index in range(count)])


def unterminated(built: Built) -> Built:
    """The string table is the end of the only segment, without its last NUL."""
    start = len(built.data)
    built.data.extend(b"\0libx.so")
    built.put("tag %d" % STRTAB, BASE + start, 8).put("tag %d" % SONAME, 1, 8)
    return built.put("segment 1", len(built.data), 32).put("segment 1", len(built.data), 40)


def cut(built: Built, size: int) -> Built:
    del built.data[size:]
    return built


HOSTILE = {
    "only the magic": (lambda: cut(library(), 4), "truncated: the ELF header ends at 52 or 64, the file at 4"),
    "cut within the header": (lambda: cut(library(), 63), "truncated: the ELF header ends at 64, the file at 63"),
    "cut after the header": (lambda: cut(library(), 64), "truncated: the program headers at 64 to 288"),
    "cut within the contents": (lambda: cut(library(), 500), "truncated: the segment at 0 ends at .* the file at 500"),
    "class 3": (lambda: library().put("header", 3, 4, "B"), "class 3 and byte order 1"),
    "byte order 0": (lambda: library().put("header", 0, 5, "B"), "class 2 and byte order 0"),
    "version 2": (lambda: library().put("header", 2, 6, "B"), "ELF version 2 at offset 6"),
    "version 0": (lambda: library().put("header", 0, 20, "I"), "and 0 at offset 20"),
    "odd program header size": (lambda: library().put("header", 57, 54, "H"), "program headers of 57 bytes"),
    "program header size 0": (lambda: library().put("header", 0, 54, "H"), "program headers of 0 bytes"),
    "65535 program headers": (lambda: library().put("header", 0xFFFF, 56, "H"), "truncated: the program headers"),
    "65535 program headers, the number in a section": (
        lambda: library().put("header", 0xFFFF, 56, "H").put("header", 64, 40).put("phdr", 2**32 - 1, 44, "I"),
        "truncated: the program headers",
    ),
    "program headers near 2**64": (lambda: library().put("header", 2**64 - 1, 32), "truncated: the program headers"),
    "program headers at 4 GiB": (lambda: library().put("header", 2**32, 32), "at 4294967296 to"),
    "segment at 2**64 - 1": (lambda: library().put("segment 1", 2**64 - 1, 8), "truncated: the segment at 1844674407"),
    "segment of 2**64 - 1 bytes": (lambda: library().put("segment 1", 2**64 - 1, 32), "truncated: the segment at 0"),
    "segment elsewhere": (lambda: library().put("segment 1", 2**63, 16), "the dynamic section at address"),
    "no segment": (lambda: library().put("segment 1", 0, 0, "I"), "the dynamic section at address"),
    "dynamic section near 2**64": (
        lambda: library().put("segment 2", 2**64 - 8, 16),
        "0xfffffffffffffff8: no loadable",
    ),
    "dynamic section at the last byte": (
        lambda: library().put("segment 2", BASE + len(library().data) - 1, 16),
        "the dynamic section at address",
    ),
    "257 segments": (lambda: build(segments=[Segment(LOAD, 0, 0, 1, 1)] * 256), "more than 256 loadable segments"),
    "interpreter of 5000 bytes": (lambda: library().put("segment 3", 5000, 32), "the interpreter at .* has 5000 bytes"),
    "interpreter beyond the file": (
        lambda: library().put("segment 3", 2**63, 8),
        "truncated: the interpreter at 9223372036854775808",
    ),
    "interpreter without end": (lambda: library().put("segment 3", 5, 32), "the interpreter at .* does not end"),
    "no string table": (lambda: library().put("tag %d" % STRTAB, 0x70000001), "no string table"),
    "string table elsewhere": (lambda: library().put("tag %d" % STRTAB, 2**64 - 1, 8), "the soname at address 0x1"),
    "soname elsewhere": (lambda: library().put("tag %d" % SONAME, 2**64 - 1, 8), "the soname at address"),
    "needed at 4 GiB": (lambda: library().put("tag %d" % NEEDED, 2**32, 8), "a needed library at address"),
    "unterminated string": (lambda: unterminated(library()), "the soname at address 0x[0-9a-f]+: no loadable segment"),
    "endless string": (lambda: many(RUNPATH, 1, 200000), "does not end within 65536 bytes"),
    "too many bytes of strings": (lambda: many(NEEDED, 2000, 60000), "more than 4194304 bytes together"),
    "too many entries": (lambda: build(values=[(0x6FFFFEF5, 0)] * 40000), "does not end within 32768 entries"),
    "version needs elsewhere": (lambda: library().put("tag %d" % VERNEED, 2**63, 8), "symbol versions at address"),
    "version needs of format 2": (lambda: library().put("needs", 2, 0, "H"), "version 2 of the format"),
    "version definitions of format 0": (lambda: library().put("definitions", 0, 0, "H"), "version 0 of the format"),
    "library of a version elsewhere": (lambda: library().put("needs", 2**32 - 1, 4, "I"), "the library of a wanted"),
    "first version elsewhere": (lambda: library().put("needs", 2**32 - 1, 8, "I"), "a wanted version at address"),
    "next version elsewhere": (lambda: library().put("needs", 2**31, 28, "I"), "a wanted version at address"),
    "name of a definition elsewhere": (lambda: library().put("definitions", 2**31, 12, "I"), "a defined version at"),
    "a long chain of versions": (lambda: chain(struct.pack("<IHHII", 0, 0, 0, 1, 16), 70000), "more than 65536 steps"),
    "a chain of versions that overlap": (lambda: chain(struct.pack("<I", 4), 70000), "more than 65536 steps"),
    "chains of versions that cross": (overlapping_chains, "more than 65536 steps"),
}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_a_hostile_file_is_an_error_with_one_reason(case):
    make, reason = HOSTILE[case]
    built = make()
    started = time.process_time()
    with pytest.raises(ElfError, match=reason) as caught:
        parse(built)
    assert time.process_time() - started < 20
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


@pytest.mark.parametrize("case", ["a long chain of versions", "too many entries", "too many bytes of strings"])
def test_a_hostile_file_takes_a_few_megabytes_only(case):
    stream = CountingStream(bytes(HOSTILE[case][0]().data))
    size = len(stream.getvalue())
    tracemalloc.start()
    try:
        with pytest.raises(ElfError):
            parse_elf(stream, size)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    assert sum(stream.sizes) < size + (1 << 20)


@pytest.mark.parametrize(("bits", "order"), LAYOUTS)
def test_a_file_cut_anywhere_is_an_error(bits, order):
    data = bytes(library(bits, order).data)
    for size in range(len(data)):
        with pytest.raises(ElfError):
            parse_elf(io.BytesIO(data[:size]), size)


@pytest.mark.parametrize(("bits", "order"), LAYOUTS)
def test_a_file_with_any_byte_changed_is_facts_or_an_error(bits, order):
    data = bytes(library(bits, order).data)
    seen = set()
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0xFF):
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                seen.add(type(parse_elf(io.BytesIO(changed), len(changed))))
            except ElfError:
                seen.add(ElfError)
    assert seen == {elf.ElfObject, ElfError}


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error():
    data = bytes(library().data)
    with pytest.raises(ElfError, match="became shorter"):
        parse_elf(io.BytesIO(data[:-1]), len(data))


def test_a_file_that_gives_a_few_bytes_at_a_time_is_read_all_the_same():
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(64 if size is None or size < 0 else min(size, 64))

    data = bytes(library().data)
    assert parse_elf(Slow(data), len(data)) == parse(library())


def test_what_is_read_is_a_few_small_blocks():
    built = library()
    built.data.extend(bytes(64 << 20))
    stream = CountingStream(bytes(built.data))
    assert parse_elf(stream, len(built.data)).soname == b"liba.so.1"
    assert stream.sizes == [64, elf_image.BLOCK]


def test_a_dynamic_section_beyond_4_gib_is_found_in_a_sparse_file(tmp_path):
    far = 5 << 30
    built = library()
    size = len(built.data)
    at = built.at
    built.put("segment 1", far, 8)
    for place in ("segment 3", "segment 4"):
        built.put(place, far + at["interpreter" if place == "segment 3" else "notes"], 8)
    path = tmp_path / "big.so"
    with open(path, "wb") as stream:
        stream.write(built.data[: at["interpreter"]])
        stream.seek(far)
        stream.write(built.data)
    started = time.process_time()
    assert read_elf(str(path)) == parse(library())
    assert time.process_time() - started < 10
    os.truncate(path, far + size - 1)
    with pytest.raises(ElfError, match="truncated: the segment at 5368709120 ends at"):
        read_elf(os.fsencode(path))


def test_a_file_that_is_not_elf_costs_one_small_read(tmp_path, monkeypatch):
    sizes = []
    path = tmp_path / "text"
    path.write_bytes(b"#" * 100000)
    real = os.pread

    def counted(descriptor, length, offset):
        sizes.append(length)
        return real(descriptor, length, offset)

    monkeypatch.setattr(elf.os, "pread", counted)
    assert read_elf(str(path)) is None
    assert sizes == [64]
    path.write_bytes(bytes(library().data))
    assert read_elf(str(path)) == parse(library())
    assert sizes == [64, 64, len(library().data)]


@pytest.mark.parametrize("content", [b"", b"\x7f", b"\x7fEL", b"!<arch>\n", b"#!/bin/sh\n", b"INPUT(-lm)\n"])
def test_a_file_that_does_not_begin_like_elf_is_none(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_elf(os.fsencode(path)) is None


def test_what_is_not_a_regular_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    os.symlink("fifo", tmp_path / "link")
    os.symlink("loop", tmp_path / "loop")
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        listener.bind("socket")
    finally:
        os.chdir(here)
        listener.close()
    expected = {
        "fifo": errno.EINVAL,
        "link": errno.EINVAL,
        "socket": errno.EINVAL,
        ".": errno.EISDIR,
        "loop": errno.ELOOP,
        "nothing": errno.ENOENT,
        "/dev/null": errno.EINVAL,
    }
    found = {}
    for name in expected:
        with pytest.raises(OSError) as caught:
            read_elf(str(tmp_path / name))
        found[name] = caught.value.errno
        assert caught.value.filename == str(tmp_path / name)
    assert found == expected


@pytest.mark.parametrize(("name", "code"), [("fifo", errno.EINVAL), ("directory", errno.EISDIR)])
def test_what_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch, name, code):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"")
    status = os.stat(tmp_path / "file")
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(elf.os, "stat", lambda path: status)
        with pytest.raises(OSError) as caught:
            read_elf(str(tmp_path / name))
    assert caught.value.errno == code
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_stays_open(tmp_path):
    path = tmp_path / "lib.so"
    before = len(os.listdir("/proc/self/fd"))
    for data in (bytes(library().data), bytes(library().data)[:100], b"text"):
        path.write_bytes(data)
        try:
            read_elf(str(path))
        except ElfError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.elf")), ids=lambda path: path.name)
def test_what_fuzzing_found_is_facts_or_an_error(path):
    try:
        facts = read_elf(str(path))
    except ElfError as error:
        assert "\n" not in str(error)
    else:
        assert facts is None or isinstance(facts, elf.ElfObject)


def test_the_corpus_is_there():
    assert len(list(CORPUS.glob("*.elf"))) >= 20

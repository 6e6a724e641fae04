# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The loader's cache: its three layouts in both byte orders, which entry wins, and files that make no sense."""

from __future__ import annotations

import random
import struct

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.ld_so_cache import (
    CacheEntry,
    CacheRules,
    LdCache,
    parse_cache,
)

X86 = 0x303
EXTENSION, TLS, HASWELL, XEON_PHI, AVX512_1 = 1 << 62, 1 << 63, 1 << 50, 1 << 51, 1 << 2


def old_cache(entries, order="<"):
    strings, records = b"", b""
    for flags, name, path in entries:
        records += struct.pack(order + "iII", flags, len(strings), len(strings) + len(name) + 1)
        strings += name + b"\0" + path + b"\0"
    return b"ld.so-1.7.0\0" + struct.pack(order + "I", len(entries)) + records, strings


def new_cache(entries, hwcaps=(), order="<", endian=None, start=0):
    """A cache of the new layout; ``start`` is where it will lie in the file."""
    endian = {"<": 2, ">": 3}[order] if endian is None else endian
    base = 48 + 24 * len(entries)
    strings, records = b"", b""
    for flags, name, path, hwcap in entries:
        records += struct.pack(
            order + "iIIIQ", flags, base + len(strings), base + len(strings) + len(name) + 1, 0, hwcap
        )
        strings += name + b"\0" + path + b"\0"
    positions = []
    for name in hwcaps:
        positions.append(start + base + len(strings))
        strings += name + b"\0"
    strings += b"\0" * (-(base + len(strings)) % 4)
    extension_at = start + base + len(strings)
    data_at = extension_at + 8 + 2 * 16
    generator = b"made by a test"
    sections = struct.pack(order + "II", 0xEAA42174, 2)
    sections += struct.pack(order + "IIII", 0, 0, data_at + 4 * len(positions), len(generator))
    sections += struct.pack(order + "IIII", 1, 0, data_at, 4 * len(positions))
    sections += struct.pack("%s%dI" % (order, len(positions)), *positions) + generator
    header = b"glibc-ld.so.cache1.1" + struct.pack(
        order + "IIB3xI12x", len(entries), len(strings), endian, extension_at
    )
    return header + records + strings + sections


ENTRIES = [(X86, b"libb.so.1", b"/lib/libb.so.1", 0), (X86, b"liba.so.1", b"/opt/liba.so.1", 0)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("endian", [None, 0])
def test_the_new_layout_is_read_in_both_byte_orders(order, endian):
    named = (X86, b"liba.so.1", b"/opt/glibc-hwcaps/x86-64-v3/liba.so.1", EXTENSION | 2 << 32 | 1)
    cache = parse_cache(new_cache([*ENTRIES, named], (b"x86-64-v2", b"x86-64-v3"), order, endian))
    assert cache.problem == ""
    assert cache.generator == b"made by a test"
    assert [(entry.name, entry.path) for entry in cache.entries] == [entry[1:3] for entry in (*ENTRIES, named)]
    assert [entry.hwcaps for entry in cache.entries] == [b"", b"", b"x86-64-v3"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_old_layout_alone_and_with_the_new_one_inside(order):
    head, strings = old_cache([(1, b"libold.so.1", b"/lib/libold.so.1")], order)
    cache = parse_cache(head + strings)
    assert cache.entries == (CacheEntry(1, b"libold.so.1", b"/lib/libold.so.1"),)
    start = -(-len(head) // 8) * 8
    named = (X86, b"libn.so.1", b"/n/libn.so.1", EXTENSION)
    inner = new_cache([*ENTRIES, named], (b"x86-64-v2",), order, start=start)
    both = parse_cache(head + b"\0" * (start - len(head)) + inner)
    assert [entry.name for entry in both.entries] == [b"libb.so.1", b"liba.so.1", b"libn.so.1"]
    assert both.entries[2].hwcaps == b"x86-64-v2"


def test_numbers_in_names_are_compared_by_their_value():
    cache = LdCache([CacheEntry(X86, b"libx.so.01", b"/x")])
    assert cache.lookup(b"libx.so.1", CacheRules(X86)) == b"/x"
    assert cache.lookup(b"libx.so.001", CacheRules(X86)) == b"/x"
    assert cache.lookup(b"libx.so.10", CacheRules(X86)) is None


def entry(path, hwcap=0, flags=X86, version=0, hwcaps=b""):
    return CacheEntry(flags, b"libx.so.1", path, version, hwcap, hwcaps)


@pytest.mark.parametrize("rules, expected", [
    (CacheRules(X86), b"/plain"),
    (CacheRules(X86, hwcaps=(b"x86-64-v3", b"x86-64-v2"), isa=7), b"/v3"),
    (CacheRules(X86, hwcaps=(b"x86-64-v2",), isa=3), b"/v2"),
    (CacheRules(X86, hwcaps=(b"x86-64-v3", b"x86-64-v2"), isa=3), b"/v2"),
    (CacheRules(0xA03), b"/arm"),
    (CacheRules(0x803), None),
])
def test_the_best_sub_directory_wins_and_other_machines_do_not_count(rules, expected):
    named = [
        entry(b"/v2", EXTENSION | 1 << 32, hwcaps=b"x86-64-v2"),
        entry(b"/v3", EXTENSION | 2 << 32 | 1, hwcaps=b"x86-64-v3"),
    ]
    others = [entry(b"/arm", flags=0xA03), entry(b"/plain"), entry(b"/later")]
    assert LdCache([*named, *others]).lookup(b"libx.so.1", rules) == expected
    assert LdCache([*reversed(named), *others]).lookup(b"libx.so.1", rules) == expected


@pytest.mark.parametrize("rules, expected", [
    (CacheRules(X86, hwcap=2, platforms=True, platform=HASWELL), b"/haswell"),
    (CacheRules(X86, hwcap=2 | AVX512_1, platforms=True, platform=XEON_PHI), b"/avx512_1"),
    (CacheRules(X86, hwcap=2, platforms=True), b"/tls"),
])
def test_older_sub_directories_count_by_their_bits(rules, expected):
    cache = LdCache([
        entry(b"/haswell", HASWELL), entry(b"/avx512_1", AVX512_1), entry(b"/tls", TLS), entry(b"/plain"),
    ])
    assert cache.lookup(b"libx.so.1", rules) == expected


def test_an_entry_for_a_newer_kernel_is_passed_over_where_the_loader_compares_it():
    cache = LdCache([entry(b"/new", version=0x060100), entry(b"/old", version=0x030200)])
    assert cache.lookup(b"libx.so.1", CacheRules(X86, kernel=0x050E00)) == b"/old"
    assert cache.lookup(b"libx.so.1", CacheRules(X86)) == b"/new"


WHOLE = new_cache(ENTRIES, (b"x86-64-v2",))


@pytest.mark.parametrize("data, reason", [
    (b"", "not a cache"), (b"#!/bin/sh\n" * 9, "not a cache"), (WHOLE[:30], "truncated"), (WHOLE[:60], "truncated"),
    (b"ld.so-1.7.0", "truncated"), (b"ld.so-1.7.0\0\xff\xff\xff\xff" + bytes(40), "truncated"),
    (new_cache(ENTRIES, endian=1), "invalid"), (bytes((1 << 24) + 1), "more than"),
    (WHOLE[: 48 + 24 * 2 + 12], "strings outside"),
])
def test_a_cache_that_makes_no_sense_says_why(data, reason):
    assert reason in parse_cache(data).problem


def test_an_extension_section_that_makes_no_sense_is_left_out():
    data = bytearray(WHOLE)
    for offset in (1 << 31, 3, len(data) - 4):
        data[32:36] = struct.pack("<I", offset)
        cache = parse_cache(bytes(data))
        assert [item.path for item in cache.entries] == [b"/lib/libb.so.1", b"/opt/liba.so.1"]
        assert cache.generator == b""


def test_damaged_bytes_are_never_more_than_other_entries():
    generator = random.Random(7)
    head, strings = old_cache([(1, b"libold.so.1", b"/lib/libold.so.1")])
    for whole in (WHOLE, head + strings, head + bytes(-len(head) % 8) + new_cache(ENTRIES, start=len(head))):
        for _damage in range(1500):
            data = bytearray(whole[: generator.randrange(len(whole) + 1)])
            for _byte in range(generator.randrange(4)):
                if data:
                    data[generator.randrange(len(data))] = generator.randrange(256)
            cache = parse_cache(bytes(data))
            assert len(cache.entries) <= len(data) // 12
            cache.lookup(b"liba.so.1", CacheRules(X86, hwcaps=(b"x86-64-v2",), isa=15))

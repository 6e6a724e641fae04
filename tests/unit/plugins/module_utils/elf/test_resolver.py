# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The loader's rules on invented machines; objects are a few hundred bytes that are written here.

Covers search_paths, library_search, link_map, symbol_versions and resolution, too.
"""

from __future__ import annotations

import os
import struct
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.glibc import System, describe
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.hwcaps import Processor
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.ld_so_cache import CacheEntry, LdCache
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolution import Plugin
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolver import Loader

NODEFLIB, PIE = 0x800, 0x08000000
SKYLAKE = Processor(
    "GenuineIntel",
    frozenset((
        "cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2", "cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1",
        "sse4_2", "avx", "avx2", "f16c", "fma", "abm", "movbe", "bmi1", "bmi2", "avx512f", "avx512bw", "avx512cd",
        "avx512dq", "avx512vl",
    )),
)


def make(path, *needed, soname=True, rpath=None, runpath=None, flags=0, machine=62, kind=3, kernel=None, isa=0,
         needs=(), defines=(), interpreter=None, auxiliary=()):
    """Write an object of 64 bits: one segment that holds the headers, the dynamic section and what it leads to."""
    strings = bytearray(b"\0")

    def text(value):
        strings.extend(os.fsencode(str(value)) + b"\0")
        return len(strings) - len(os.fsencode(str(value))) - 1

    entries = [(1, text(name)) for name in needed] + [(0x7FFFFFFD, text(name)) for name in auxiliary]
    entries += [(14, text(path.name if soname is True else soname))] if soname else []
    entries += [(15, text(rpath))] if rpath is not None else []
    entries += [(29, text(runpath))] if runpath is not None else []
    entries += [(0x6FFFFFFB, flags)] if flags else []
    versions = bytearray()
    if needs:
        by_library = {}
        for library, version, weak in needs:
            by_library.setdefault(library, []).append((version, weak))
        for number, (library, wanted) in enumerate(by_library.items()):
            size = 16 + 16 * len(wanted)
            last = number == len(by_library) - 1
            versions += struct.pack("<HHIII", 1, len(wanted), text(library), 16, 0 if last else size)
            for count, (version, weak) in enumerate(wanted, 1):
                following = 16 if count < len(wanted) else 0
                versions += struct.pack("<IHHII", 0, 2 if weak else 0, 2, text(version), following)
    definitions = bytearray()
    for number, version in enumerate(defines, 1):
        definitions += struct.pack(
            "<HHHHIIIII", 1, 0, number, 1, 0, 20, 28 if number < len(defines) else 0, text(version), 0
        )
    notes = b""
    if kernel:
        notes += struct.pack("<III4sIIII", 4, 16, 1, b"GNU\0", 0, *kernel)
    if isa:
        notes += struct.pack("<III4sIIII", 4, 16, 5, b"GNU\0", 0xC0008002, 4, isa, 0)
    loader = os.fsencode(interpreter) + b"\0" if interpreter else b""
    segments = 4 if interpreter else 3
    dynamic_at = 64 + 56 * segments
    count = len(entries) + 2 + bool(needs) + bool(defines)
    parts_at = dynamic_at + 16 * count
    places, body = [], b""
    for part in (bytes(versions), bytes(definitions), notes, loader, bytes(strings)):
        body += b"\0" * (-len(body) % 8)
        places.append(parts_at + len(body))
        body += part
    entries += [(0x6FFFFFFE, places[0])] if needs else []
    entries += [(0x6FFFFFFC, places[1])] if defines else []
    entries += [(5, places[4]), (0, 0)]
    end = parts_at + len(body)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, segments, 0, 0, 0
    )
    ranges = [(1, 0, end), (2, dynamic_at, 16 * count), (4, places[2], len(notes))]
    ranges += [(3, places[3], len(loader))] if interpreter else []
    for number, start, size in ranges:
        header += struct.pack("<IIQQQQQQ", number, 4, start, start, start, size, size, 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + b"".join(struct.pack("<QQ", *entry) for entry in entries) + body)
    return path


def invented(tmp_path, *cached, version=(2, 36), kernel=(5, 14, 21), **changes):
    """A machine whose default directories and cache lie below tmp_path."""
    system = describe(62, version, SKYLAKE, kernel)
    return system._replace(
        interpreter=os.fsencode(str(tmp_path / "lib64/ld-linux-x86-64.so.2")),
        default_directories=tuple(os.fsencode("%s/%s/" % (tmp_path, name)) for name in ("lib64", "usr/lib64")),
        cache=LdCache([CacheEntry(0x303, path.name.encode(), os.fsencode(str(path))) for path in cached]),
        **changes,
    )


def resolve(system, path, *directories, **options):
    return Loader(system, [os.fsencode(str(item)) for item in directories]).resolve(os.fsencode(str(path)), **options)


def edges(resolution):
    """Name to (path, rule)."""
    return {
        os.fsdecode(edge.name): (os.fsdecode(edge.path) if edge.path else None, edge.rule)
        for edge in resolution.edges
    }


@pytest.mark.parametrize("version, expected", [
    ((2, 31), ["tls/haswell/avx512_1/x86_64", "tls/haswell", "tls", "haswell/avx512_1", "haswell", "avx512_1", "x86_64",
               ""]),
    ((2, 36), ["glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2",
               "tls/haswell/avx512_1/x86_64", "tls/haswell", "tls", "haswell", "avx512_1", "x86_64", ""]),
    ((2, 38), ["glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2", ""]),
])
def test_each_generation_of_glibc_searches_its_own_sub_directories(tmp_path, version, expected):
    everything = set(expected) | {"tls", "haswell", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v1", "avx512_1"}
    for place in everything:
        make(tmp_path / "lib" / place / "liba.so.1")
    root = make(tmp_path / "root.so", "liba.so.1", runpath=tmp_path / "lib")
    for place in expected:
        wanted = tmp_path / "lib" / place / "liba.so.1"
        found = resolve(invented(tmp_path, version=version), root)
        assert edges(found) == {"liba.so.1": (str(wanted), "RUNPATH")}
        wanted.unlink()
    assert edges(resolve(invented(tmp_path, version=version), root)) == {"liba.so.1": (None, "")}


def test_the_cache_comes_before_the_default_directories_and_its_dead_entries_are_passed_over(tmp_path):
    cached = make(tmp_path / "opt/liba.so.1")
    default = make(tmp_path / "usr/lib64/liba.so.1")
    root = make(tmp_path / "root.so", "liba.so.1")
    system = invented(tmp_path, cached)
    assert edges(resolve(system, root)) == {"liba.so.1": (str(cached), "ld.so.cache")}
    make(cached, machine=183)
    (edge,) = resolve(system, root).edges
    assert (edge.path, edge.rule) == (os.fsencode(str(default)), "default directory")
    assert [(item.rule, item.skipped) for item in edge.searched] == [
        ("ld.so.cache", "wrong machine"), ("default directory", "no such directory")
    ]
    cached.unlink()
    assert edges(resolve(system, root)) == {"liba.so.1": (str(default), "default directory")}


def test_nodeflib_drops_cached_paths_in_the_default_directories_only(tmp_path):
    outside = make(tmp_path / "opt/liba.so.1")
    inside = make(tmp_path / "lib64/deep/libb.so.1")
    make(tmp_path / "usr/lib64/libc.so.1")
    root = make(tmp_path / "root.so", "liba.so.1", "libb.so.1", "libc.so.1", flags=NODEFLIB)
    found = resolve(invented(tmp_path, outside, inside), root)
    assert edges(found) == {
        "liba.so.1": (str(outside), "ld.so.cache"), "libb.so.1": (None, ""), "libc.so.1": (None, "")
    }


def test_nodeflib_counts_for_the_object_that_has_it_not_for_what_it_brings(tmp_path):
    leaf = make(tmp_path / "lib64/libleaf.so.1")
    make(tmp_path / "near/liba.so.1", "libleaf.so.1")
    root = make(tmp_path / "root.so", "liba.so.1", runpath=tmp_path / "near", flags=NODEFLIB)
    assert edges(resolve(invented(tmp_path), root))["libleaf.so.1"] == (str(leaf), "default directory")


@pytest.mark.parametrize("version, skipped", [((2, 31), True), ((2, 35), True), ((2, 36), False)])
def test_a_library_for_a_newer_kernel_is_passed_over_before_glibc_2_36(tmp_path, version, skipped):
    newer = make(tmp_path / "new/liba.so.1", kernel=(6, 1, 0))
    older = make(tmp_path / "old/liba.so.1", kernel=(3, 2, 0))
    root = make(tmp_path / "root.so", "liba.so.1", rpath="%s:%s" % (newer.parent, older.parent))
    (edge,) = resolve(invented(tmp_path, version=version), root).edges
    assert edge.path == os.fsencode(str(older if skipped else newer))
    assert [item.skipped for item in edge.searched] == (["wants Linux 6.1.0"] if skipped else [])


@pytest.mark.parametrize("version, refused", [((2, 28), False), ((2, 31), True)])
def test_a_position_independent_program_is_no_library_since_glibc_2_30(tmp_path, version, refused):
    make(tmp_path / "lib64/liba.so.1", flags=PIE)
    root = make(tmp_path / "root.so", "liba.so.1")
    problem = resolve(invented(tmp_path, version=version), root).problem
    assert bool(problem) == refused
    assert not refused or problem.endswith("cannot dynamically load position-independent executable")


def test_the_search_of_one_path_ends_where_the_file_system_fails_and_the_next_rule_follows(tmp_path):
    make(tmp_path / "two/liba.so.1")
    default = make(tmp_path / "lib64/liba.so.1")
    (tmp_path / "one").mkdir()
    (tmp_path / "one/liba.so.1").symlink_to("liba.so.1")
    root = make(tmp_path / "root.so", "liba.so.1", runpath="%s:%s" % (tmp_path / "one", tmp_path / "two"))
    (edge,) = resolve(invented(tmp_path), root).edges
    assert (edge.path, edge.rule) == (os.fsencode(str(default)), "default directory")
    assert edge.searched[0].skipped == "too many levels of symbolic links"


def test_an_object_of_another_machine_is_not_resolved(tmp_path):
    assert resolve(invented(tmp_path), make(tmp_path / "a.so", machine=183)).problem == "wrong machine"
    assert resolve(invented(tmp_path), tmp_path / "absent.so").problem == "no such file"
    (tmp_path / "script").write_text("#!/bin/sh\n" * 20)
    assert resolve(invented(tmp_path), tmp_path / "script").problem == "invalid ELF header"


def test_a_library_for_a_later_processor_is_named(tmp_path):
    library = make(tmp_path / "lib64/liba.so.1", isa=8)
    root = make(tmp_path / "root.so", "liba.so.1")
    assert resolve(invented(tmp_path), root).problem == ""
    assert resolve(invented(tmp_path, isa=7), root).problem == "%s: CPU ISA level is lower than required" % library
    assert resolve(invented(tmp_path, version=(2, 31), isa=7), root).problem == ""


def test_wanted_versions_are_held_against_the_library_that_was_found(tmp_path):
    provider = make(tmp_path / "lib64/libv.so.1", defines=["libv.so.1", "V_1"])
    plain = make(tmp_path / "lib64/libplain.so.1")
    root = make(
        tmp_path / "root.so", "libv.so.1", "libplain.so.1", "libabsent.so.1",
        needs=[("libv.so.1", "V_1", False), ("libv.so.1", "V_2", False), ("libv.so.1", "V_3", True),
               ("libplain.so.1", "P_1", False), ("libabsent.so.1", "A_1", False)],
    )
    found = resolve(invented(tmp_path), root)
    assert [(item.version, item.weak) for item in found.version_problems] == [(b"V_2", False), (b"V_3", True)]
    assert {item.library for item in found.version_problems} == {os.fsencode(str(provider))}
    assert [(item.version, item.library) for item in found.unversioned] == [(b"P_1", os.fsencode(str(plain)))]
    assert found.problem == ""


def test_versions_of_a_library_that_is_not_needed_end_the_loader(tmp_path):
    make(tmp_path / "lib64/libv.so.1", defines=["V_1"])
    root = make(tmp_path / "root.so", needs=[("libv.so.1", "V_1", False)])
    assert "libv.so.1, which it does not need" in resolve(invented(tmp_path), root).problem


def test_an_auxiliary_library_may_be_missing(tmp_path):
    make(tmp_path / "lib64/libthere.so.1")
    root = make(tmp_path / "root.so", auxiliary=["libthere.so.1", "libabsent.so.1"])
    assert list(edges(resolve(invented(tmp_path), root))) == ["libthere.so.1"]


def test_a_needed_library_is_missing_though_it_is_named_as_auxiliary_too(tmp_path):
    root = make(tmp_path / "root.so", "libb.so", auxiliary=["libb.so"])
    assert edges(resolve(invented(tmp_path), root)) == {"libb.so": (None, "")}


def test_a_broken_needed_library_ends_the_loader_though_it_is_named_as_auxiliary_too(tmp_path):
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libb.so").write_bytes(b"/* GNU ld script */".ljust(100))
    root = make(tmp_path / "root.so", "libb.so", auxiliary=["libb.so"])
    assert "invalid ELF header" in resolve(invented(tmp_path), root).problem


def test_a_plugin_that_is_broken_does_not_end_the_rest(tmp_path):
    make(tmp_path / "lib64/libcaller.so.2")
    good = make(tmp_path / "lib64/libgood.so", "libmissing.so.1")
    (tmp_path / "lib64/libbad.so").write_bytes(b"")
    root = make(tmp_path / "root.so", "libcaller.so.2")
    plugins = [Plugin(b"libcaller.so.*", name) for name in (b"libbad.so", b"libabsent.so", b"libgood.so")]
    found = resolve(invented(tmp_path), root, plugins=plugins)
    assert found.problem == ""
    assert edges(found) == {
        "libcaller.so.2": (str(tmp_path / "lib64/libcaller.so.2"), "default directory"),
        "libbad.so": (None, ""), "libabsent.so": (None, ""),
        "libgood.so": (str(good), "default directory"), "libmissing.so.1": (None, ""),
    }
    (bad,) = [edge for edge in found.edges if edge.name == b"libbad.so"]
    assert bad.searched[-1].skipped == "file too short"
    assert os.fsencode(str(good)) in [path for _name, path in found.loaded]


def test_the_program_has_its_origin_where_it_really_lies(tmp_path):
    leaf = make(tmp_path / "real/lib/liba.so.1")
    program = make(tmp_path / "real/bin/program", soname=False, rpath="$ORIGIN/../lib", interpreter="/lib64/ld.so")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/program").symlink_to(program)
    extension = make(tmp_path / "extension.so", "liba.so.1")
    found = resolve(invented(tmp_path), extension, program=os.fsencode(str(tmp_path / "bin/program")))
    assert [(edge.name, edge.rule) for edge in found.edges] == [(b"liba.so.1", "RPATH of %s" % program)]
    assert os.path.realpath(edges(found)["liba.so.1"][0]) == str(leaf)


def test_what_is_mapped_before_is_mapped_once_for_many_objects(tmp_path):
    first = make(tmp_path / "one/libv.so.1")
    make(tmp_path / "lib64/libv.so.1")
    before = make(tmp_path / "before.so.1", "libv.so.1", runpath=first.parent)
    loader = Loader(invented(tmp_path))
    for number in range(3):
        extension = make(tmp_path / ("e%d.so" % number), "libv.so.1", "libown%d.so" % number)
        found = loader.resolve(os.fsencode(str(extension)), preloaded=[os.fsencode(str(before))])
        assert edges(found) == {"libv.so.1": (str(first), "preloaded"), "libown%d.so" % number: (None, "")}
    again = loader.resolve(os.fsencode(str(before)), preloaded=[os.fsencode(str(before))])
    assert [(edge.needer, edge.name, edge.path) for edge in again.edges] == [
        (os.fsencode(str(before)), b"libv.so.1", os.fsencode(str(first)))
    ]


@pytest.mark.parametrize("options", [{"program": b"/nowhere/python"}, {"preloaded": [b"/nowhere/libtorch.so"]}])
def test_a_program_or_library_to_map_before_must_be_there(tmp_path, options):
    with pytest.raises(StackError, match="no such file") as caught:
        resolve(invented(tmp_path), make(tmp_path / "a.so"), **options)
    assert "Correct" in caught.value.remedy


def test_a_loader_that_is_not_glibc_s_is_not_guessed(tmp_path):
    other = make(tmp_path / "ld-musl-x86_64.so.1")
    program = make(tmp_path / "program", "liba.so", soname=False, interpreter=str(other))
    found = resolve(invented(tmp_path), program)
    assert found.problem.startswith("The rules of the dynamic loader %s are not known" % other)
    assert found.edges == ()


def test_a_long_chain_and_thousands_of_names_end_soon(tmp_path):
    for number in range(400):
        make(tmp_path / ("lib/c%d.so" % number), "c%d.so" % (number + 1), rpath=tmp_path / "lib")
    root = make(tmp_path / "root.so", *["n%d.so" % number for number in range(5000)], "c0.so", rpath=tmp_path / "lib")
    before = time.process_time()
    found = resolve(invented(tmp_path), root)
    assert time.process_time() - before < 30
    assert len(found.edges) == 5401 and len(found.loaded) == 400


def test_a_directory_that_can_be_passed_but_not_listed_is_searched(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root lists everything")
    wanted = make(tmp_path / "x/liba.so.1")
    root = make(tmp_path / "root.so", "liba.so.1", runpath=wanted.parent)
    wanted.parent.chmod(0o111)
    try:
        assert edges(resolve(invented(tmp_path), root)) == {"liba.so.1": (str(wanted), "RUNPATH")}
        wanted.parent.chmod(0o000)
        (edge,) = resolve(invented(tmp_path), root).edges
        assert (edge.path, edge.searched[0].skipped) == (None, "permission denied")
    finally:
        wanted.parent.chmod(0o755)


def test_a_system_can_be_given_by_its_facts_alone(tmp_path):
    assert resolve(System(), make(tmp_path / "a.so")).problem == ""

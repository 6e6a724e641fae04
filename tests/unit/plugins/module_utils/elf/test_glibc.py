# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a glibc of each generation makes of a machine, and what its files tell without running them."""

from __future__ import annotations

import os
import struct

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.glibc import MACHINES, System, describe
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.hwcaps import (
    Processor,
    capabilities,
    parse_cpuinfo,
)

V1 = frozenset(("cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"))
V2 = V1 | {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}
V3 = V2 | {"avx", "avx2", "f16c", "fma", "abm", "movbe", "bmi1", "bmi2"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
KNL = V3 | {"avx512f", "avx512cd", "avx512er", "avx512pf"}


@pytest.mark.parametrize("features, vendor, version, platform, hwcaps, legacy, isa", [
    (V4, "GenuineIntel", (2, 31), b"haswell", (4, 3, 2), (b"x86_64", b"avx512_1"), 15),
    (V4, "GenuineIntel", (2, 36), b"haswell", (4, 3, 2), (b"x86_64", b"avx512_1"), 15),
    (V4, "GenuineIntel", (2, 38), b"haswell", (4, 3, 2), (), 15),
    (V4, "AuthenticAMD", (2, 36), b"x86_64", (4, 3, 2), (b"x86_64",), 15),
    (V3, "AuthenticAMD", (2, 38), b"x86_64", (3, 2), (), 7),
    (V3 - {"bmi2"}, "AuthenticAMD", (2, 36), b"x86_64", (3, 2), (b"x86_64",), 7),
    (V3 - {"bmi2"}, "AuthenticAMD", (2, 37), b"x86_64", (2,), (), 3),
    (KNL, "GenuineIntel", (2, 31), b"xeon_phi", (3, 2), (b"x86_64",), 7),
    (V4 - V3 | V2, "GenuineIntel", (2, 36), b"x86_64", (2,), (b"x86_64", b"avx512_1"), 3),
    (V1, "GenuineIntel", (2, 36), b"x86_64", (), (b"x86_64",), 1),
    (frozenset(), "", (2, 36), b"x86_64", (), (b"x86_64",), 0),
])
def test_levels_and_platform_of_x86_64(features, vendor, version, platform, hwcaps, legacy, isa):
    found = capabilities(62, Processor(vendor, features), version)
    assert found.platform == platform
    assert found.hwcaps == tuple(b"x86-64-v%d" % level for level in hwcaps)
    assert (found.legacy, found.isa) == (legacy, isa)


@pytest.mark.parametrize("version, names, expected", [
    ((2, 31), None, (b"tls/x86_64/", b"tls/", b"x86_64/", b"")),
    ((2, 28), (b"x86-64-v3", b"x86-64-v2"),
     (b"glibc-hwcaps/x86-64-v3/", b"glibc-hwcaps/x86-64-v2/", b"tls/x86_64/", b"tls/", b"x86_64/", b"")),
    ((2, 38), None, (b"glibc-hwcaps/x86-64-v3/", b"glibc-hwcaps/x86-64-v2/", b"")),
])
def test_sub_directories_of_a_generation_and_of_a_distribution_that_took_them_over(version, names, expected):
    system = describe(62, version, Processor("AuthenticAMD", V3), hwcaps_names=names)
    assert [name for name in system.subdirectories if b"x86_64/x86_64" not in name] == list(expected)


@pytest.mark.parametrize("version, features, expected", [
    ((2, 31), {"fp", "atomics"},
     (b"tls/aarch64/atomics/", b"tls/aarch64/", b"tls/atomics/", b"tls/", b"aarch64/atomics/", b"aarch64/",
      b"atomics/", b"")),
    ((2, 36), {"fp"}, (b"tls/aarch64/", b"tls/", b"aarch64/", b"")),
    ((2, 38), {"fp", "atomics"}, (b"",)),
])
def test_aarch64_has_no_levels_and_its_own_older_names(version, features, expected):
    system = describe(183, version, Processor("", frozenset(features)))
    assert system.subdirectories == expected
    assert (system.platform, system.isa, system.cache_rules.flags) == (b"aarch64", None, 0xA03)
    assert system.interpreter == b"/lib/ld-linux-aarch64.so.1"


def test_the_kernel_counts_before_glibc_2_36():
    processor = Processor("", frozenset())
    assert describe(62, (2, 35), processor, (5, 14, 300)).cache_rules.kernel == 0x050EFF
    assert describe(62, (2, 36), processor, (5, 14, 300)).cache_rules.kernel == 0


def test_cpuinfo_of_both_machines():
    x86 = parse_cpuinfo("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse2\n\nprocessor: 1\nflags: x\n")
    assert x86 == Processor("GenuineIntel", frozenset(("fpu", "sse2")))
    arm = parse_cpuinfo("processor\t: 0\nFeatures\t: fp atomics\nCPU implementer\t: 0x41\n")
    assert arm == Processor("", frozenset(("fp", "atomics")))
    assert parse_cpuinfo("") == Processor("", frozenset())


def loader(directory, *constants, machine=62, name="ld-linux-x86-64.so.2", libc=None):
    """A file that begins like a loader and holds these constants, and a libc.so.6 next to it."""
    directory.mkdir(parents=True, exist_ok=True)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0
    )
    (directory / name).write_bytes(header + b"\0" + b"\0".join(constants) + b"\0")
    if libc is not None:
        (directory / "libc.so.6").write_bytes(b"\0" + libc + b"\0")
    return os.fsencode(str(directory / name))


DEBIAN = (b"/lib/x86_64-linux-gnu/", b"/usr/lib/x86_64-linux-gnu/", b"/lib/", b"/usr/lib/")


@pytest.mark.parametrize("directories, lib", [
    (DEBIAN, b"lib/x86_64-linux-gnu"), ((b"/lib64/", b"/usr/lib64/"), b"lib64"),
    ((b"/usr/lib64/", b"/lib64/"), b"lib64"), ((b"/spack/glibc-2.38/lib/", b"/spack/glibc-2.38/lib64/"), b"lib"),
])
def test_directories_cache_and_version_are_read_from_the_files(tmp_path, directories, lib):
    banner = b"GNU C Library (Some Distribution 2.31-7) stable release version 2.31."
    path = loader(tmp_path, b"/proc/self/\0/dev/", *directories, b"", b"x86-64-v4:x86-64-v3:x86-64-v2",
                  os.fsencode(str(tmp_path / "etc/ld.so.cache")), libc=banner)
    system = System.behind(path)
    assert (system.glibc, system.default_directories, system.lib) == ((2, 31), directories, lib)
    assert system.interpreter == path
    assert "No such file" in system.cache.problem


def test_a_distribution_s_own_sub_directories_are_seen_in_the_loader(tmp_path):
    banner = b"GNU C Library (GNU libc) stable release version 2.28."
    with_names = System.behind(loader(tmp_path / "a", b"x86-64-v3:x86-64-v2:x86-64-v4", libc=banner))
    without = System.behind(loader(tmp_path / "b", b"tls", libc=banner))
    assert without.cache_rules.hwcaps == ()
    assert not any(name.startswith(b"glibc-hwcaps") for name in without.subdirectories)
    assert set(with_names.cache_rules.hwcaps) <= {b"x86-64-v2", b"x86-64-v3", b"x86-64-v4"}
    assert len(with_names.cache_rules.hwcaps) == max(0, bin(with_names.isa).count("1") - 1)


def test_the_version_may_stand_in_the_file_name_only(tmp_path):
    real = loader(tmp_path, b"", name="ld-2.31.so")
    link = tmp_path / "ld-linux-x86-64.so.2"
    link.symlink_to(os.fsdecode(real))
    assert System.behind(os.fsencode(str(link))).glibc == (2, 31)


@pytest.mark.parametrize("make, reason", [
    (lambda path: loader(path, libc=b"musl libc"), "no version of glibc"),
    (lambda path: loader(path, machine=243, libc=b""), "does not know"),
    (lambda path: loader(path, libc=b"GNU C Library (GNU libc) stable release version 2.17."), "older than 2.27"),
    (lambda path: b"/nowhere/ld.so", "No such file"),
    (lambda path: os.fsencode(str(path)), "not a regular file"),
])
def test_a_loader_whose_rules_are_not_known_is_an_error_with_a_remedy(tmp_path, make, reason):
    with pytest.raises(StackError, match=reason) as caught:
        System.behind(make(tmp_path))
    assert caught.value.remedy


def test_this_machine_is_known_or_says_so(monkeypatch):
    if os.uname().machine in [machine.uname for machine in MACHINES.values()]:
        system = System.this_machine()
        assert system.glibc >= (2, 27) and system.default_directories
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n", "6.1", "v", "riscv64")))
    with pytest.raises(StackError, match="riscv64"):
        System.this_machine()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a processor means to the loader; whole machines are in test_glibc."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.hwcaps import (
    EM_AARCH64,
    EM_X86_64,
    Processor,
    capabilities,
    parse_cpuinfo,
    subdirectories,
)

BASE = "fpu cx8 cmov mmx fxsr sse sse2"
V2 = BASE + " cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = V2 + " avx avx2 f16c fma abm movbe"


@pytest.mark.parametrize("flags, glibc, names", [
    (BASE, (2, 36), ()), (V2, (2, 36), (b"x86-64-v2",)), (V3, (2, 36), (b"x86-64-v3", b"x86-64-v2")),
    (V3, (2, 37), (b"x86-64-v2",)), (V3 + " bmi1 bmi2", (2, 37), (b"x86-64-v3", b"x86-64-v2")),
])
def test_a_level_has_all_features_below_it(flags, glibc, names):
    processor = parse_cpuinfo("processor : 0\nvendor_id : AuthenticAMD\nflags : %s\n\nprocessor : 1\n" % flags)
    assert capabilities(EM_X86_64, processor, glibc).hwcaps == names


def test_atomics_count_on_aarch64():
    with_atomics, without = Processor("", frozenset({"atomics"})), Processor("", frozenset())
    assert capabilities(EM_AARCH64, with_atomics, (2, 31)).legacy == (b"atomics",)
    assert capabilities(EM_AARCH64, without, (2, 31)).legacy == ()
    assert capabilities(EM_AARCH64, with_atomics, (2, 37)).legacy == ()


def test_the_directory_itself_comes_last_and_each_once():
    assert subdirectories([b"x86-64-v3"], [], None) == (b"glibc-hwcaps/x86-64-v3/", b"")
    assert subdirectories([], [b"x86_64"], b"x86_64") == (
        b"tls/x86_64/x86_64/", b"tls/x86_64/", b"tls/", b"x86_64/x86_64/", b"x86_64/", b"")

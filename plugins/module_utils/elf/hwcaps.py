# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell what the dynamic loader learns of the processor, from ``/proc/cpuinfo``.

The loader derives directories from it: ``glibc-hwcaps/x86-64-v3`` and, before glibc 2.37, the older ``haswell`` or
``avx512_1``. The kernel lists a feature only when it is usable, which is also what glibc asks. The sources of the rules
are glibc's ``sysdeps/x86/get-isa-level.h`` and ``cpu-features.c``, and ``sysdeps/unix/sysv/linux/aarch64``.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple

EM_X86_64, EM_AARCH64 = 62, 183

X86_LEVELS = (b"x86-64-v2", b"x86-64-v3", b"x86-64-v4")

_BASELINE = frozenset(("cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"))
_V2 = frozenset(("cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"))
_V3 = frozenset(("avx", "avx2", "f16c", "fma", "abm", "movbe"))
_V3_SINCE_2_37 = frozenset(("bmi1", "bmi2"))
_V4 = frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
_HASWELL = frozenset(("avx2", "fma", "bmi1", "bmi2", "abm", "movbe", "popcnt"))
_XEON_PHI = frozenset(("avx512cd", "avx512er", "avx512pf"))
_AVX512_1 = frozenset(("avx512cd", "avx512bw", "avx512dq", "avx512vl"))

_HWCAP_X86_64, _HWCAP_AVX512_1, _HWCAP_ATOMICS = 1 << 1, 1 << 2, 1 << 8
_PLATFORM_BITS = {b"haswell": 1 << 50, b"xeon_phi": 1 << 51}


class Processor(NamedTuple):
    """Describe one processor as the kernel does: its vendor and its features, in the kernel's words."""

    vendor: str
    features: frozenset[str]


class Capabilities(NamedTuple):
    """Describe what a loader of one generation makes of a processor.

    Attributes:
        hwcaps: ``glibc-hwcaps`` sub-directories that fit, best first.
        legacy: names of the older sub-directories, without platform and ``tls``, in the loader's order.
        hwcap, platform_bit: the bits of the cache's entries that count, and the platform's, or 0.
        isa: levels of x86-64 as bits: 1 baseline, 2 v2, 4 v3, 8 v4; None on other machines.
    """

    platform: bytes
    hwcaps: tuple[bytes, ...] = ()
    legacy: tuple[bytes, ...] = ()
    hwcap: int = 0
    platform_bit: int = 0
    isa: int | None = None


def parse_cpuinfo(text: str) -> Processor:
    """Parse the first processor of ``/proc/cpuinfo``; the loader, too, sees only the one it runs on."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _colon, value = line.partition(":")
        found.setdefault(key.strip().lower(), value.strip())
    return Processor(found.get("vendor_id", ""), frozenset(found.get("flags", found.get("features", "")).split()))


def capabilities(machine: int, processor: Processor, glibc: tuple[int, int]) -> Capabilities:
    """Return what the loader of a glibc, such as ``(2, 31)``, makes of a processor; ``machine`` is e_machine."""
    if machine == EM_AARCH64:
        atomics = "atomics" in processor.features
        return Capabilities(
            b"aarch64", legacy=(b"atomics",) if atomics and glibc < (2, 37) else (),
            hwcap=_HWCAP_ATOMICS if atomics else 0,
        )
    isa = _x86_levels(processor.features, glibc)
    platform, hwcap, legacy = b"x86_64", _HWCAP_X86_64, [b"x86_64"]
    if processor.vendor == "GenuineIntel":
        if processor.features >= _XEON_PHI:
            platform = b"xeon_phi"
        elif processor.features >= _HASWELL:
            platform = b"haswell"
        if processor.features >= _AVX512_1 and "avx512er" not in processor.features:
            hwcap |= _HWCAP_AVX512_1
            legacy.append(b"avx512_1")
    return Capabilities(
        platform, tuple(name for bit, name in zip((8, 4, 2), reversed(X86_LEVELS)) if isa & bit),
        tuple(legacy) if glibc < (2, 37) else (), hwcap, _PLATFORM_BITS.get(platform, 0), isa,
    )


def subdirectories(hwcaps: Iterable[bytes], legacy: Iterable[bytes], platform: bytes | None) -> tuple[bytes, ...]:
    """List where a loader looks below each directory, in order, with a slash; the last is the directory itself.

    The older sub-directories are every combination of names, the last name outermost and first left out
    (``elf/dl-hwcaps.c``, before glibc 2.37); ``platform`` is None where the loader does not use them.
    """
    found = [b"glibc-hwcaps/%s/" % name for name in hwcaps]
    if platform is not None:
        names = [*legacy, platform, b"tls"]
        for bits in range((1 << len(names)) - 1, 0, -1):
            parts = [names[i] for i in range(len(names) - 1, -1, -1) if bits >> i & 1]
            found.append(b"/".join(parts) + b"/")
    found.append(b"")
    return tuple(dict.fromkeys(found))


def _x86_levels(features: frozenset[str], glibc: tuple[int, int]) -> int:
    levels = 0
    third = _V3 | _V3_SINCE_2_37 if glibc >= (2, 37) else _V3
    for bit, wanted in enumerate((_BASELINE, _V2, third, _V4)):
        if not wanted <= features:
            break
        levels |= 1 << bit
    return levels

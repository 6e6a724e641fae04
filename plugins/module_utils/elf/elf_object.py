# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe an ELF file by the facts that decide how it is loaded. Pure."""

from __future__ import annotations

from typing import NamedTuple

MAGIC = b"\x7fELF"
ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
_DF_1_NODEFLIB, _DF_1_PIE = 0x800, 0x08000000


class VersionNeed(NamedTuple):
    """Describe one symbol version that an object wants of one library (a DT_VERNEED record)."""

    library: bytes
    version: bytes
    weak: bool


class ElfObject(NamedTuple):
    """Describe the facts of one ELF file that decide how it is loaded; strings are bytes, as paths are.

    Attributes:
        bits: 32 or 64.
        machine: e_machine, 62 for x86-64, 183 for AArch64.
        kind: e_type; only programs and shared objects are read beyond the header.
        os_abi, abi_version, flags: EI_OSABI, EI_ABIVERSION, e_flags.
        interpreter: the loader that the file names (PT_INTERP).
        soname, needed, rpath, runpath, flags_1: as in the dynamic section; rpath and runpath may both be there.
        version_needs, version_definitions: symbol versions in file order; those defined with the base definition (the
            soname), because the loader matches it too.
        minimum_kernel: of the note NT_GNU_ABI_TAG: the oldest Linux that the file says it runs on.
        isa_needed: bits of GNU_PROPERTY_X86_ISA_1_NEEDED: 1 baseline, 2 v2, 4 v3, 8 v4.
        filters, auxiliaries: DT_FILTER and DT_AUXILIARY, which the loader loads like needed libraries; those of
            DT_AUXILIARY may be missing.
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
        """Tell whether the loader is asked to leave out the default directories (DF_1_NODEFLIB)."""
        return bool(self.flags_1 & _DF_1_NODEFLIB)

    @property
    def pie(self) -> bool:
        """Tell whether it is a program linked like a shared object (DF_1_PIE), refused as a library."""
        return self.kind == ET_DYN and bool(self.flags_1 & _DF_1_PIE)

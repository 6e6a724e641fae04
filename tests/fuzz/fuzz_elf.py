# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the ELF reader with atheris; see README.md beside this file."""

from __future__ import annotations

import io
import os
import sys
import time

import atheris

with atheris.instrument_imports(include=["ansible_collections"]):
    from ansible_collections.hpcml.torchstack.plugins.module_utils.elf import image as elf_image
    from ansible_collections.hpcml.torchstack.plugins.module_utils.elf import reader as elf

MOST_BYTES_READ = 24 << 20
"""Program headers, strings, blocks and notes together, at the limits of the reader."""

MOST_SECONDS = 20.0
"""Far above the second that a hostile file may cost, because coverage counters and a shared core slow it down."""


SMALL_LIMITS = {
    elf: {"BLOCK": 64, "MAX_LOADS": 4, "MAX_ENTRIES": 12, "MAX_NOTES": 2, "MAX_NOTE_SIZE": 64},
    elf_image: {"BLOCK": 64, "MAX_BLOCKS": 2, "MAX_PIECES": 48, "MAX_STRING": 64, "MAX_STRINGS": 100},
}
"""Limits that small inputs reach, so that what lies behind them is fuzzed too (ELF_FUZZ_LIMITS=small)."""


class CountingStream(io.BytesIO):
    """A file that counts what is read of it, so that reading the same thing for ever is seen."""

    total = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


def optional_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def check(facts: elf.ElfObject) -> None:
    """What holds for the facts of each file, whatever its bytes."""
    assert facts.bits in (32, 64) and isinstance(facts.little_endian, bool)
    for number in (facts.machine, facts.kind, facts.os_abi, facts.flags, facts.flags_1, facts.isa_needed):
        assert isinstance(number, int) and 0 <= number < 1 << facts.bits
    assert all(map(optional_bytes, (facts.interpreter, facts.soname, facts.rpath, facts.runpath)))
    strings = [*facts.needed, *facts.filters, *facts.auxiliaries, *facts.version_definitions]
    for need in facts.version_needs:
        assert isinstance(need, elf.VersionNeed) and isinstance(need.weak, bool)
        strings += [need.library, need.version]
    assert all(isinstance(text, bytes) and b"\0" not in text for text in strings)
    assert max(map(len, strings), default=0) <= elf_image.MAX_STRING + elf_image.BLOCK
    assert sum(map(len, set(strings))) <= elf_image.MAX_STRINGS
    assert len(facts.needed) <= elf.MAX_ENTRIES and len(facts.version_needs) <= elf_image.MAX_PIECES
    assert facts.dynamic or not (strings or facts.flags_1)
    assert not (facts.pie and facts.kind != elf.ET_DYN)


def one_input(data: bytes) -> None:
    """Reads one file; everything but facts and ElfError is a finding."""
    stream = CountingStream(data)
    started = time.monotonic()
    try:
        check(elf.parse_elf(stream, len(data)))
    except elf.ElfError as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 300
    assert stream.total <= MOST_BYTES_READ
    assert time.monotonic() - started < MOST_SECONDS


if __name__ == "__main__":
    if os.environ.get("ELF_FUZZ_LIMITS") == "small":
        for module, limits in SMALL_LIMITS.items():
            vars(module).update(limits)
    # Merging starts the program again by its first argument, through a shell.
    atheris.Setup([sys.executable + " " + sys.argv[0], *sys.argv[1:]], one_input)
    atheris.Fuzz()

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The ELF reader agrees with readelf, with pyelftools and with the loader itself, over the files of this machine."""

from __future__ import annotations

import functools
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf import reader as elf

SAMPLE = 300
"""Files compared with readelf, spread evenly over all; pyelftools, which is slower, gets a fifth of them."""

MUTANTS = 150


@functools.lru_cache(maxsize=None)
def elf_files() -> dict[bytes, elf.ElfObject]:
    """The ELF files below /usr/lib and /usr/bin; each other file must be told from them without an error."""
    found = {}
    for root in (b"/usr/lib", b"/usr/bin"):
        for directory, _names, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                try:
                    facts = None if os.path.islink(path) else elf.read_elf(path)
                except OSError:
                    continue
                if facts is not None:
                    found[path] = facts
    return found


def sample(count: int) -> list[bytes]:
    paths = sorted(elf_files())
    return paths[:: max(1, len(paths) // count)]


def readelf(paths: list[bytes]) -> dict[bytes, bytes]:
    """What readelf prints of each file; it heads each one when it is given several."""
    program = shutil.which("readelf")
    if program is None:
        pytest.skip("readelf (binutils) is not installed")
    command = [program.encode(), b"-dlVnhW", *paths, b"/dev/null"]
    result = subprocess.run(command, capture_output=True, env={"LC_ALL": "C"}, check=False)
    parts = re.split(rb"^File: (.*)\n", result.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def one(pattern: bytes, text: bytes) -> bytes | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def facts_of_readelf(text: bytes) -> dict[str, object]:
    """The same facts, read from readelf's output."""
    needs = []
    for block in re.findall(rb"^Version needs section .*?(?=^Version|^Displaying|\Z)", text, re.M | re.S):
        library = b""
        for name, version, flags in re.findall(rb"File: (\S+)  Cnt|Name: (\S+)  Flags: (.*?) Version:", block):
            library = name or library
            if version:
                needs.append((library, version, b"WEAK" in flags))
    definitions = []
    for block in re.findall(rb"^Version definition section .*?(?=^Version|^Displaying|\Z)", text, re.M | re.S):
        definitions += re.findall(rb"Rev: .*Name: (\S+)", block)
    kernel = one(rb"OS: Linux, ABI: (\S+)", text)
    levels = one(rb"x86 ISA needed: (.*)", text) or b""
    bits = {b"baseline": 1, b"v2": 2, b"v3": 4, b"v4": 8}
    return {
        "bits": int(one(rb"Class:\s+ELF(\d+)", text) or 0),
        "little_endian": b"little endian" in (one(rb"Data:\s+(.*)", text) or b""),
        "interpreter": one(rb"Requesting program interpreter: (.*)\]", text),
        "dynamic": b"Dynamic section at offset" in text,
        "soname": one(rb"Library soname: \[(.*)\]", text),
        "needed": tuple(re.findall(rb"Shared library: \[(.*)\]", text)),
        "rpath": one(rb"Library rpath: \[(.*)\]", text),
        "runpath": one(rb"Library runpath: \[(.*)\]", text),
        "pie": b"PIE" in (one(rb"\(FLAGS_1\)\s+(.*)", text) or b"").split(),
        "nodeflib": b"NODEFLIB" in (one(rb"\(FLAGS_1\)\s+(.*)", text) or b"").split(),
        "version_needs": tuple(needs),
        "version_definitions": tuple(definitions),
        "minimum_kernel": tuple(map(int, kernel.split(b"."))) if kernel else None,
        "isa_needed": sum(bits.get(level, 0) for level in set(re.findall(rb"x86-64-(\w+)", levels))),
    }


def test_files_of_this_machine_read_as_readelf_says():
    paths = [path for path in sample(SAMPLE) if elf_files()[path].kind in (elf.ET_EXEC, elf.ET_DYN)]
    printed = readelf(paths)
    assert len(paths) > 50 and set(paths) <= set(printed)
    differences = []
    for path in paths:
        facts = elf_files()[path]
        for field, expected in facts_of_readelf(printed[path]).items():
            if getattr(facts, field) != expected:
                differences.append("%s: %s is %r, readelf: %r" % (path, field, getattr(facts, field), expected))
    assert differences == []


def test_files_of_this_machine_read_as_pyelftools_says():
    pytest.importorskip("elftools")
    from elftools.elf.elffile import ELFFile

    differences = []
    for path in sample(SAMPLE // 5):
        facts = elf_files()[path]
        with open(path, "rb") as stream:
            other = ELFFile(stream)
            expected: dict[str, object] = {
                "bits": other.elfclass,
                "little_endian": other.little_endian,
                "flags": other["e_flags"],
            }
            if facts.kind in (elf.ET_EXEC, elf.ET_DYN):
                dynamic = [segment for segment in other.iter_segments("PT_DYNAMIC") if segment["p_filesz"]]
                tags = [tag for segment in dynamic for tag in segment.iter_tags()]
                expected.update(dynamic=bool(dynamic), interpreter=None)
                expected["needed"] = tuple(tag.needed.encode() for tag in tags if tag.entry.d_tag == "DT_NEEDED")
                for field in ("soname", "rpath", "runpath"):
                    found = [getattr(tag, field) for tag in tags if tag.entry.d_tag == "DT_" + field.upper()]
                    expected[field] = found[-1].encode() if found else None
                expected["flags_1"] = sum(tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS_1")
                for segment in other.iter_segments("PT_INTERP"):
                    # Separate debugging information names a place in the file that holds something else.
                    if segment["p_filesz"]:
                        expected["interpreter"] = segment.get_interp_name().encode()
        for field, value in expected.items():
            if getattr(facts, field) != value:
                differences.append("%s: %s is %r, pyelftools: %r" % (path, field, getattr(facts, field), value))
    assert differences == []


def mutant(data: bytes, numbers: random.Random) -> bytes:
    """The file with one or two changes in its header, program headers, notes and version records or dynamic section."""
    (headers,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    entries = [struct.unpack_from("<IIQQQQQQ", data, headers + 56 * index) for index in range(count)]
    start, size = next((entry[2], entry[5]) for entry in entries if entry[0] == 2)
    places = [*range(16, 64), *range(headers, headers + 56 * count + 0x300), *range(start, start + size)]
    changed = bytearray(data)
    for _number in range(numbers.choice((1, 1, 2))):
        place = numbers.choice(places)
        if numbers.random() < 0.5:
            changed[place] = numbers.choice((0, 1, 0x7F, 0x80, 0xFF, numbers.randrange(256)))
        else:
            value = numbers.choice(
                (0, 1, 4096, 1 << 32, 1 << 63, (1 << 64) - 1, len(data), numbers.randrange(len(data)))
            )
            struct.pack_into("<Q", changed, place & ~7, value)
    return bytes(changed)


def test_what_the_loader_of_this_machine_accepts_is_read(tmp_path):
    """Damaged libraries are given to ld.so, which only lists here what they need: what it takes, the reader takes.

    Left out are the two kinds of damage that the reader reports on purpose although the loader goes on: a segment
    that the file does not hold, and a string outside all segments, which the loader finds in the rest of a page.
    """
    program = elf.read_elf(os.path.realpath(sys.executable))
    compiler = shutil.which("gcc")
    if (
        compiler is None
        or program is None
        or not program.interpreter
        or not program.little_endian
        or program.bits == 32
    ):
        pytest.skip("needs gcc and a dynamic Python of a 64-bit little-endian machine")
    (tmp_path / "a.c").write_text('#include <stdio.h>\nint f(void) { return puts("x"); }\n')
    build = [compiler, "-shared", "-fPIC", "-s", "-Wl,-soname,liba.so.1,-rpath,/nowhere", "-o", "a.so", "a.c"]
    subprocess.run(build, cwd=tmp_path, check=True)
    if subprocess.run(
        [program.interpreter, "--list", "./a.so"], cwd=tmp_path, capture_output=True, check=False
    ).returncode:
        pytest.skip("this loader does not know --list")
    data = (tmp_path / "a.so").read_bytes()
    numbers = random.Random(45)
    path = tmp_path / "mutant.so"
    accepted = 0
    refused = []
    for _number in range(MUTANTS):
        path.write_bytes(mutant(data, numbers))
        command = [program.interpreter, "--list", "./mutant.so"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
        if result.returncode:
            continue
        accepted += 1
        try:
            assert elf.read_elf(str(path)) is not None
        except elf.ElfError as error:
            if not re.search("truncated: the segment|no loadable segment holds it", str(error)):
                refused.append(str(error))
    assert accepted > MUTANTS // 3
    assert refused == []


def test_each_file_below_usr_is_told_from_others_quickly():
    files = elf_files()
    assert len(files) > 100
    assert pathlib.Path(os.fsdecode(next(iter(files)))).read_bytes()[:4] == elf.MAGIC

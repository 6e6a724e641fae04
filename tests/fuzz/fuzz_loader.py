# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of library resolution with atheris: a few libraries that need each other in any way.

The input decides what the libraries of a temporary directory say (names, needs in circles, search paths, versions), and
which of their bytes are then damaged. See README.md beside this file.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import time
from types import ModuleType

import atheris

with atheris.instrument_imports(include=["ansible_collections"]):
    from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
    from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.glibc import System
    from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolver import Loader, Plugin, Resolution

MOST_SECONDS = 20.0
NAMES = (b"liba.so", b"libb.so", b"libc.so", b"libd.so")
WORDS = (
    *NAMES,
    *(b"", b"/", b".", b"..", b":", b"::", b"./liba.so", b"$ORIGIN", b"${ORIGIN}", b"${ORIGIN", b"$LIB", b"$PLATFORM"),
    *(b"$ORIGIN/../x", b"$ORIGIN/libb.so", b"/nonexistent", b"/dev/null", b"\xff\xfe", b"x" * 300, b"*", b"[", b"V_1"),
)


def writer() -> ModuleType:
    """The writer of ELF files that the unit tests use."""
    path = pathlib.Path(__file__).parents[1] / "unit" / "plugins" / "module_utils" / "elf" / "test_reader.py"
    spec = importlib.util.spec_from_file_location("elf_writer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["elf_writer"] = module
    spec.loader.exec_module(module)
    return module


WRITER = writer()
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-loader-"))


def word(choices: atheris.FuzzedDataProvider) -> bytes:
    if choices.ConsumeIntInRange(0, 9) == 0:
        return bytes(choices.ConsumeBytes(12).replace(b"\0", b""))
    return choices.PickValueInList(list(WORDS))


def words(choices: atheris.FuzzedDataProvider, most: int) -> list[bytes]:
    return [word(choices) for _number in range(choices.ConsumeIntInRange(0, most))]


def library(choices: atheris.FuzzedDataProvider) -> bytes:
    """One library, sound or damaged."""
    strings = [(WRITER.NEEDED, text) for text in words(choices, 4)]
    for tag in (WRITER.SONAME, WRITER.RPATH, WRITER.RUNPATH, WRITER.FILTER, WRITER.AUXILIARY):
        if choices.ConsumeIntInRange(0, 3) == 0:
            strings.append((tag, b":".join(words(choices, 3))))
    needs = [
        (word(choices), [(word(choices), choices.ConsumeBool())]) for _number in range(choices.ConsumeIntInRange(0, 2))
    ]
    built = WRITER.build(
        kind=choices.PickValueInList([3, 3, 3, 3, 2, 1]),
        machine=choices.PickValueInList([62, 62, 62, 62, 3]),
        interpreter=choices.PickValueInList([b"", b"", b"", b"/lib64/ld-linux-x86-64.so.2", b"/nonexistent/ld.so"]),
        strings=strings,
        values=[(WRITER.FLAGS_1, choices.PickValueInList([0, 0, 0x800, 1 << 27]))],
        needs=needs,
        definitions=words(choices, 3),
        dynamic=choices.ConsumeIntInRange(0, 9) != 0,
    )
    data = bytearray(built.data)
    if choices.ConsumeIntInRange(0, 3) == 0:
        for _number in range(choices.ConsumeIntInRange(0, 4)):
            data[choices.ConsumeIntInRange(0, len(data) - 1)] = choices.ConsumeIntInRange(0, 255)
    return bytes(data)


def check(resolution: Resolution) -> None:
    """What holds for each answer."""
    assert isinstance(resolution.path, bytes) and isinstance(resolution.problem, str)
    for edge in resolution.edges:
        assert isinstance(edge.needer, bytes) and isinstance(edge.name, bytes) and isinstance(edge.rule, str)
        assert edge.path is None or isinstance(edge.path, bytes)
        assert bool(edge.rule) == (edge.path is not None)
        assert len(edge.searched) < 2000
    paths = [path for _name, path in resolution.loaded]
    # The loader does not know its main program by device and inode, so that one may be mapped again as a library.
    assert len(paths) - 1 <= len(set(paths)) <= 40


def one_input(data: bytes) -> None:
    """Writes the libraries and resolves the first one; everything but an answer and StackError is a finding."""
    choices = atheris.FuzzedDataProvider(data)
    for index in range(len(NAMES)):
        path = FOLDER / os.fsdecode(NAMES[index])
        if index == 0 or choices.ConsumeIntInRange(0, 7):
            path.write_bytes(library(choices))
        else:
            path.unlink(missing_ok=True)
    system = System(
        default_directories=(os.fsencode(FOLDER) + b"/",) if choices.ConsumeBool() else (b"/nonexistent/",),
        interpreter=b"/nonexistent/ld.so",
    )
    place = os.fsencode(FOLDER) + b"/"
    preloaded = [place + name for name in NAMES[2:]] if choices.ConsumeIntInRange(0, 3) == 0 else []
    program = place + NAMES[3] if choices.ConsumeIntInRange(0, 3) == 0 else None
    plugins = [Plugin(word(choices), word(choices)) for _number in range(choices.ConsumeIntInRange(0, 2))]
    started = time.monotonic()
    try:
        check(Loader(system, words(choices, 2)).resolve(place + NAMES[0], preloaded, program, plugins))
    except StackError as error:
        assert error.message and error.remedy
    assert time.monotonic() - started < MOST_SECONDS


if __name__ == "__main__":
    os.chdir(FOLDER)
    atheris.Setup(sys.argv, one_input)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)

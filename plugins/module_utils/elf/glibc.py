# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the glibc behind a program interpreter, from its files and without running it.

Default directories, the cache's path and the ``glibc-hwcaps`` names are constants in the loader's own bytes, so that
the builds of all distributions, of Spack and of Nix tell their own; the version stands in the banner of libc.so.6. What
depends on the version comes from the glibc sources of that version: before 2.36 the oldest kernel of a library's note
is honoured, before 2.37 the older sub-directories (``tls``, ``haswell``) are searched.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from typing import NamedTuple

from ..core.errors import StackError
from .hwcaps import (
    EM_AARCH64,
    EM_X86_64,
    X86_LEVELS,
    Processor,
    capabilities,
    parse_cpuinfo,
    subdirectories,
)
from .image import ElfError
from .ld_so_cache import (
    MAX_SIZE,
    CacheRules,
    LdCache,
    parse_cache,
)
from .reader import OPEN_FILE, read_elf

MAX_LIBRARY = 1 << 26  # bytes of a loader or a libc.so.6: they have about one and three megabytes
MIN_GLIBC = (2, 27)  # the oldest whose rules are held here

_DIRECTORIES = re.compile(rb"(?:/[!-~]{0,255}/\0){2,16}")
_CACHE_PATH = re.compile(rb"\0(/[!-~]{0,255}/ld\.so\.cache)\0")
_BANNER = re.compile(rb"GNU C Library [^\n\0]{0,200}version (\d{1,3})\.(\d{1,3})")
_FILE_NAME = re.compile(rb"^ld-(\d{1,3})\.(\d{1,3})\.so$")
_DEFINITION = re.compile(rb"^GLIBC_(\d{1,3})\.(\d{1,3})(?:\.\d+)?$")


class Machine(NamedTuple):
    """Describe what glibc fixes for one kind of machine.

    ``uname`` is the kernel's name of it, ``cache_flags`` the kind of its libraries in the cache, ``directories`` what
    counts where the loader's own default directories are not found in it.
    """

    uname: str
    interpreter: bytes
    cache_flags: int
    directories: tuple[bytes, ...] = (b"/lib64/", b"/usr/lib64/")


MACHINES = {
    EM_X86_64: Machine("x86_64", b"/lib64/ld-linux-x86-64.so.2", 0x303),
    EM_AARCH64: Machine("aarch64", b"/lib/ld-linux-aarch64.so.1", 0xA03),
}


class System(NamedTuple):
    """Describe what decides what a loader maps, of one machine and one glibc; it can be invented.

    Attributes:
        bits, machine, little_endian: of the objects that this loader takes.
        interpreter: the loader's path, as the trace mode of the loader would print it.
        default_directories: each with a slash at its end.
        lib, platform: $LIB and $PLATFORM.
        subdirectories: where each directory is looked at, in order; the last is the directory itself.
        cache_rules: what of the cache counts.
        kernel: the running Linux.
        isa: bits of the x86-64 levels of this processor, None elsewhere.
    """

    bits: int = 64
    machine: int = EM_X86_64
    little_endian: bool = True
    glibc: tuple[int, int] = (2, 36)
    interpreter: bytes = b"/lib64/ld-linux-x86-64.so.2"
    default_directories: tuple[bytes, ...] = (b"/lib64/", b"/usr/lib64/")
    lib: bytes = b"lib64"
    platform: bytes = b"x86_64"
    subdirectories: tuple[bytes, ...] = (b"",)
    cache: LdCache = LdCache()
    cache_rules: CacheRules = CacheRules(flags=0x303)
    kernel: tuple[int, int, int] = (0, 0, 0)
    isa: int | None = None

    @classmethod
    def this_machine(cls) -> System:
        """Describe the loader that this machine's programs name, on this processor and kernel."""
        name = os.uname().machine
        for machine in MACHINES.values():
            if machine.uname == name:
                return cls.of_interpreter(machine.interpreter)
        message = "The rules of the dynamic loader on %s are not known to this collection." % name
        raise StackError(message, "facts of the dynamic loader", "Verify libraries with ldd on this machine.")

    @classmethod
    def of_interpreter(cls, interpreter: bytes) -> System:
        """Describe the loader in a file, as programs name it, and as it would run on this processor and kernel.

        Raises:
            StackError: it cannot be read, is not glibc's, or is for another machine.
        """
        try:
            facts = read_elf(interpreter)
            content = _read_file(interpreter)
        except (ElfError, OSError) as error:
            raise _unknown_loader(interpreter, str(error)) from error
        if facts is None or facts.machine not in MACHINES or facts.bits != 64 or not facts.little_endian:
            raise _unknown_loader(interpreter, "it is for a machine that this collection does not know")
        version = _find_version(interpreter, content)
        if version is None:
            raise _unknown_loader(interpreter, "no version of glibc is found with it, so it may be another library's")
        if version < MIN_GLIBC:
            raise _unknown_loader(interpreter, "glibc %d.%d is older than %d.%d" % (*version, *MIN_GLIBC))
        names = tuple(name for name in X86_LEVELS if name in content)
        system = describe(facts.machine, version, _read_processor(), _kernel_version(), names)
        directories = _default_directories(content) or system.default_directories
        path = _CACHE_PATH.search(content)
        return system._replace(
            interpreter=interpreter, default_directories=directories, lib=_library_directory(directories),
            cache=_read_cache(path.group(1) if path else b"/etc/ld.so.cache"),
        )

    def cached(self, name: bytes) -> bytes | None:
        """Return the path that the cache has for a name."""
        return self.cache.lookup(name, self.cache_rules)


def describe(
    machine: int, version: tuple[int, int], processor: Processor, kernel: tuple[int, int, int] = (0, 0, 0),
    hwcaps_names: tuple[bytes, ...] | None = None,
) -> System:
    """Describe a system as glibc's sources have it, before a distribution's own directories.

    ``hwcaps_names`` are the ``glibc-hwcaps`` names that the loader holds, where its bytes were read; distributions took
    them into older versions than glibc did (2.33).
    """
    if hwcaps_names is None:
        hwcaps_names = X86_LEVELS if version >= (2, 33) else ()
    found = capabilities(machine, processor, version)
    hwcaps = tuple(name for name in found.hwcaps if name in hwcaps_names)
    known = MACHINES[machine]
    major, minor, patch = kernel
    return System(
        machine=machine, glibc=version, interpreter=known.interpreter, default_directories=known.directories,
        lib=_library_directory(known.directories), platform=found.platform, kernel=kernel, isa=found.isa,
        subdirectories=subdirectories(hwcaps, found.legacy, found.platform if version < (2, 37) else None),
        cache_rules=CacheRules(
            flags=known.cache_flags, hwcaps=hwcaps, hwcap=found.hwcap, platforms=machine == EM_X86_64,
            platform=found.platform_bit, isa=found.isa,
            kernel=(major << 16) + (min(minor, 255) << 8) + min(patch, 255) if version < (2, 36) else 0,
        ),
    )


def _default_directories(content: bytes) -> tuple[bytes, ...]:
    """Find the loader's default directories, which it keeps one behind the other, each with a slash."""
    for match in _DIRECTORIES.finditer(content):
        names = match.group().split(b"\0")
        for libraries, group in itertools.groupby(names, key=lambda name: b"lib" in name):
            directories = tuple(group)
            if libraries and len(directories) > 1:
                return directories
    return ()


def _library_directory(directories: tuple[bytes, ...]) -> bytes:
    """Return $LIB, the first default directory below the root: ``lib64``, ``lib/x86_64-linux-gnu``."""
    first = directories[0].strip(b"/")
    if first.startswith(b"usr/"):
        first = first[4:]
    return first if first.startswith(b"lib") else os.path.basename(first)


def _find_version(interpreter: bytes, content: bytes) -> tuple[int, int] | None:
    """Find the version: in libc.so.6's banner, the loader's file name, or that library's versions."""
    real = os.path.realpath(interpreter)
    for directory in (os.path.dirname(real) + b"/", *_default_directories(content)):
        with contextlib.suppress(OSError):
            found = _BANNER.search(_read_file(directory + b"libc.so.6"))
            if found:
                return _numbers(found)
    named = _FILE_NAME.match(os.path.basename(real))
    if named:
        return _numbers(named)
    with contextlib.suppress(OSError, ElfError):
        libc = read_elf(os.path.join(os.path.dirname(real), b"libc.so.6"))
        matches = map(_DEFINITION.match, libc.version_definitions if libc else ())
        return max((_numbers(match) for match in matches if match), default=None)
    return None


def _numbers(match: re.Match[bytes]) -> tuple[int, int]:
    return int(match.group(1)), int(match.group(2))


def _read_processor() -> Processor:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as stream:
            return parse_cpuinfo(stream.read(1 << 16))
    except OSError:
        return Processor("", frozenset())


def _kernel_version() -> tuple[int, int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", os.uname().release)[:3]]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return major, minor, patch


def _read_cache(path: bytes) -> LdCache:
    try:
        return parse_cache(_read_file(path, MAX_SIZE))
    except OSError as error:
        return LdCache(problem=str(error))


def _read_file(path: bytes, limit: int = MAX_LIBRARY) -> bytes:
    with open(os.open(path, OPEN_FILE), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError("%s is not a regular file" % os.fsdecode(path))
        return stream.read(limit)


def _unknown_loader(interpreter: bytes, reason: str) -> StackError:
    name = os.fsdecode(interpreter)
    message = "The rules of the dynamic loader %s are not known: %s." % (name, reason)
    return StackError(message, "facts of the dynamic loader", "Verify what runs on it with its own ldd.", name)

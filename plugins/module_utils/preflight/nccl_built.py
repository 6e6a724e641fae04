# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Inspect the files of a built NCCL and its plugin, executing nothing: versions, search paths, interfaces."""

from __future__ import annotations

import glob
import mmap
import os
import re
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..core.digests import text_of
from ..core.errors import StackError
from ..elf.elf_object import ElfObject
from ..elf.glibc import System
from ..elf.image import ElfError
from ..elf.reader import read_elf
from ..elf.resolution import Plugin
from ..elf.resolver import Loader

STEP = "check what was built"
LIBRARY, PLUGIN = "lib/libnccl.so.2", "lib/libnccl-net.so"
TORCH = "torch/lib/libtorch_cuda.so"
"""What needs NCCL in PyTorch's CUDA wheels, below the directory of packages."""
OWN_DIRECTORY = "$ORIGIN"
"""The RPATH of NCCL: dlopen("libnccl-net.so") then finds the plugin that lies beside it, whatever the program is and
whatever a user has in LD_LIBRARY_PATH."""

_BANNER = re.compile(rb"NCCL version (\d+\.\d+\.\d+)[^+\0\n]{0,32}\+cuda(\d+\.\d+)")
"""What NCCL prints at its start: ``NCCL version 2.21.5+cuda12.2``."""
_OFFERED = re.compile(rb"\0ncclNetPlugin_v(\d{1,3})(?=\0)")
"""The symbol of each version of the interface, in the table of strings."""


class Wanted(NamedTuple):
    """What has to be there: versions of NCCL and of CUDA (empty for any), and whether the archive is kept."""

    version: str
    cuda: str
    plugin: bool
    api: int | None
    """the version of the interface that NCCL and the plugin were found to have in common; None for any"""
    runpath: tuple[str, ...]
    """directories of the plugin's RPATH"""
    static: bool
    wheel: str = ""
    """the directory of the NCCL that PyTorch's wheel brings, beside which the plugin is linked; empty for one built"""


class Built(NamedTuple):
    """What is there, and problems: what is wrong and what to do, as sentences."""

    facts: dict[str, Any]
    problems: list[tuple[str, str]]


def inspect(prefix: str, wanted: Wanted) -> Built:
    """Look at the prefix where NCCL and the plugin are installed, or the plugin beside a wheel's NCCL."""
    if wanted.wheel:
        return _inspect_wheel(prefix, wanted)
    header, banner = header_version(prefix), _banner(os.path.join(prefix, LIBRARY))
    library = _elf(prefix, LIBRARY)
    facts: dict[str, Any] = {"version": header, "cuda": banner[1], "runpath": _directories(library.rpath)}
    problems = [
        ("NCCL %s was asked for, and %s says %s" % (wanted.version, name, found or "nothing"),
         "Correct nccl.version, nccl.tag or nccl.commit in the release file")
        for name, found in (("nccl.h", header), ("its banner", banner[0]), ("nccl.pc", _package_version(prefix)))
        if found != wanted.version]
    if wanted.cuda and banner[1] != wanted.cuda:
        problems.append((
            "NCCL was built with CUDA %s, and not with %s" % (banner[1], wanted.cuda),
            "Look into the log of the step nccl for another CUDA_HOME"))
    problems += _search_path(LIBRARY, library, (OWN_DIRECTORY,), "nccl")
    problems += _archives(prefix, wanted)
    if wanted.plugin:
        facts["plugin"], others = _inspect_plugin(prefix, wanted)
        problems += others
    return Built(facts, problems)


def _archives(prefix: str, wanted: Wanted) -> list[tuple[str, str]]:
    return [] if wanted.static else [
        ("%s is there, which others could embed unseen" % os.path.relpath(path, prefix), "Remove it, and run again")
        for path in sorted(glob.glob(os.path.join(glob.escape(prefix), "lib", "*.a")))
    ]


def _inspect_wheel(prefix: str, wanted: Wanted) -> Built:
    """Look at a wheel's NCCL, which is taken as it is, and at whether PyTorch's libraries lead it to the plugin."""
    header, banner = header_version(wanted.wheel), _banner(os.path.join(wanted.wheel, LIBRARY))
    problems = [
        ("NCCL %s was asked for, and %s of PyTorch's wheel says %s" % (wanted.version, name, found or "nothing"),
         "Correct nccl.version in the release file, or the lock")
        for name, found in (("nccl.h", header), ("the banner", banner[0])) if found != wanted.version]
    if wanted.cuda and banner[1].partition(".")[0] != wanted.cuda.partition(".")[0]:
        problems.append((
            "NCCL of PyTorch's wheel was built with CUDA %s, and its plugin with %s" % (banner[1], wanted.cuda),
            "Correct cuda in the release file: the first number has to be the same"))
    problems += _archives(prefix, wanted)
    plugin, others = _inspect_plugin(prefix, wanted)
    found_by, astray = _way_to_plugin(prefix, wanted.wheel)
    facts = {"version": header, "cuda": banner[1], "wheel": True, "plugin": dict(plugin, found_by=found_by)}
    return Built(facts, [*problems, *others, *astray])


def _way_to_plugin(prefix: str, wheel: str) -> tuple[str, list[tuple[str, str]]]:
    """Follow the loader from PyTorch to NCCL and the plugin, without LD_LIBRARY_PATH; by which rule, and problems.

    A wheel's NCCL has no run-path, so that the RPATH of what brought it counts when it opens its plugin.
    """
    opener = os.path.normpath(os.path.join(wheel, "..", "..", TORCH))
    _elf(os.path.dirname(opener), os.path.basename(opener))
    resolution = Loader(System.this_machine()).resolve(
        os.fsencode(opener), plugins=[Plugin(b"libnccl.so.2", os.path.basename(PLUGIN).encode())])
    edges = {os.path.basename(edge.name).decode("utf-8", "replace"): edge for edge in resolution.edges}
    library, plugin = (edges.get(os.path.basename(name)) for name in (LIBRARY, PLUGIN))
    place = os.fsdecode(library.path) if library and library.path else ""
    if not place or not os.path.samefile(place, os.path.join(wheel, LIBRARY)):
        return "", [(
            "%s gets NCCL from %s, and not from its wheel" % (TORCH, place or "nowhere"),
            "Correct pytorch in the release file: the wheel has to be one of a CUDA build that needs nvidia-nccl")]
    rule = plugin.rule.replace(os.path.dirname(opener) + "/", "") if plugin else ""
    found = os.fsdecode(plugin.path) if plugin and plugin.path else ""
    if not found or not os.path.samefile(found, os.path.join(prefix, PLUGIN)):
        return rule, [(
            "The NCCL of PyTorch's wheel finds %s when it opens libnccl-net.so, and not the plugin" % (
                found or "nothing"),
            "Look at the RPATH of %s and at that of libnccl.so.2: a RUNPATH hides the way that an RPATH shows. With "
            "such a wheel, build NCCL from its source" % TORCH)]
    return rule, []


def _inspect_plugin(prefix: str, wanted: Wanted) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    plugin = _elf(prefix, PLUGIN)
    offered = sorted({int(match) for match in _search(os.path.join(prefix, PLUGIN), _OFFERED)})
    problems = list(_search_path(PLUGIN, plugin, wanted.runpath, "nccl-plugin"))
    if not any(needed.startswith(b"libfabric.so") for needed in plugin.needed):
        problems.append((
            "%s does not need libfabric" % PLUGIN,
            "Look into the log of the step nccl-plugin for what configure found"))
    if wanted.api is not None and wanted.api not in offered:
        problems.append((
            "%s offers %s of the plugin interface, and version %d was expected" % (
                PLUGIN, "version " + ", ".join(str(one) for one in offered) if offered else "no version", wanted.api),
            "Correct nccl.plugin.version in the release file, or nccl_ofi_compatibility"))
    needed = [name.decode("utf-8", "replace") for name in plugin.needed]
    used = {} if wanted.api is None else {"used": wanted.api}
    return dict(used, api=offered, runpath=_directories(plugin.rpath), needed=needed), problems


def _search_path(name: str, found: ElfObject, wanted: Sequence[str], step: str) -> Iterator[tuple[str, str]]:
    """Tell what is wrong with the RPATH of an object.

    Its order is no matter: libtool puts those of its own descriptions first, and no two have a library in common.
    """
    if found.runpath is not None:
        yield (
            "%s has a RUNPATH (%s), and any directory in LD_LIBRARY_PATH comes before that" % (
                name, os.fsdecode(found.runpath)),
            "Give the compiler itself for step %s under toolchain.steps, not a wrapper that adds its own" % step)
    elif sorted(_directories(found.rpath)) != sorted(wanted):
        yield (
            "%s has the RPATH '%s', and not '%s'" % (name, ":".join(_directories(found.rpath)), ":".join(wanted)),
            "Give the compiler itself for step %s under toolchain.steps: a wrapper may add its own" % step)


def _directories(path: bytes | None) -> list[str]:
    return [os.fsdecode(part) for part in path.split(b":") if part] if path else []


def _elf(prefix: str, name: str) -> ElfObject:
    path = os.path.join(prefix, name)
    try:
        found = read_elf(path)
    except (OSError, ElfError) as error:
        raise StackError(
            "%s cannot be read: %s." % (path, getattr(error, "strerror", None) or error), STEP, "Build it again.", path
        ) from error
    if found is None:
        raise StackError("%s is no shared object." % path, STEP, "Build it again.", path)
    return found


def header_version(prefix: str) -> str:
    """Return the version in nccl.h; empty where it says none."""
    text = text_of(os.path.join(prefix, "include", "nccl.h"))
    found = [re.search(r"(?m)^\s*#\s*define\s+NCCL_%s\s+(\d+)" % part, text) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(match.group(1) for match in found if match)


def _package_version(prefix: str) -> str:
    match = re.search(r"(?m)^Version:\s*(\S+)", text_of(os.path.join(prefix, "lib", "pkgconfig", "nccl.pc")))
    return match.group(1) if match else ""


def _search(path: str, pattern: re.Pattern[bytes]) -> list[Any]:
    """Return all matches in a file, as ``re.findall`` gives them."""
    try:
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return pattern.findall(content)
    except (OSError, ValueError) as error:
        raise StackError("%s cannot be read: %s." % (path, error), STEP, "Build it again.", path) from error


def _banner(path: str) -> tuple[str, str]:
    """Return the versions of NCCL and of CUDA in the library; empty where there is no banner."""
    found = _search(path, _BANNER)
    return (found[0][0].decode("ascii"), found[0][1].decode("ascii")) if found else ("", "")


def record_of(built: Built, added: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of nccl.json: what is there, with what else is known of how it was built."""
    record = dict(added, **built.facts)
    if "plugin" in built.facts:
        record["plugin"] = dict(added.get("plugin") or {}, **built.facts["plugin"])
    return record

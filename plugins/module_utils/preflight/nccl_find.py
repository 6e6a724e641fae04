# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find libfabric, hwloc and the CUDA toolkit, and their versions.

A directory's name says little: below /opt/cray/libfabric it may be the number of a package of the fabric's software.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sysconfig
from typing import Iterable, Iterator, Mapping, NamedTuple

from ..core.digests import text_of
from ..core.run_command import run

TIMEOUT = 120.0
"""Seconds that a program may take to say its version, from a cold file system."""

PLUGIN_COMMANDS = ("make", "autoreconf", "aclocal", "automake", "libtoolize")
"""What the plugin's autogen.sh and configure call."""


class Place(NamedTuple):
    """Something that is built with, and the directory of its libraries; no version where nothing is there."""

    prefix: str
    version: str
    library: str


def _library_directories(prefix: str) -> Iterator[str]:
    """Tell where libraries of a prefix may lie, in the order of preference."""
    multiarch = str(sysconfig.get_config_var("MULTIARCH") or "")
    for name in ("lib64", "lib") + ((os.path.join("lib", multiarch),) if multiarch else ()):
        yield os.path.join(prefix, name)


def _library_directory(prefix: str, name: str) -> str:
    """Return the first directory of a prefix that has a library; empty where none has."""
    return _first(one for one in _library_directories(prefix) if os.path.exists(os.path.join(one, name)))


def _first(found: Iterable[str]) -> str:
    return next((one for one in found if one), "")


def libfabric(prefix: str) -> Place:
    """Return the libfabric of a prefix, as libfabric.pc, fi_info or rdma/fabric.h says, in this order."""
    return Place(
        prefix, _first(_libfabric_versions(prefix)) if prefix else "",
        _library_directory(prefix, "libfabric.so") if prefix else "")


def _libfabric_versions(prefix: str) -> Iterator[str]:
    for directory in _library_directories(prefix):
        match = re.search(r"(?m)^Version:\s*(\d[\w.]*)", text_of(os.path.join(directory, "pkgconfig", "libfabric.pc")))
        yield match.group(1) if match else ""
    program = os.path.join(prefix, "bin", "fi_info")
    if os.access(program, os.X_OK):
        match = re.search(r"(?m)^libfabric:\s*(\d[\w.]*)", run([program, "--version"], TIMEOUT).output)
        yield match.group(1) if match else ""
    header = text_of(os.path.join(prefix, "include", "rdma", "fabric.h"))
    numbers = [
        re.search(r"(?m)^\s*#\s*define\s+FI_%s_VERSION\s+(\d+)" % part, header)
        for part in ("MAJOR", "MINOR", "REVISION")
    ]
    yield ".".join(match.group(1) for match in numbers if match) if numbers[0] and numbers[1] else ""


def cuda(prefix: str) -> Place:
    """Find the CUDA toolkit of a prefix, and its version by nvcc, or by version.json where nvcc cannot run here."""
    program = os.path.join(prefix, "bin", "nvcc")
    if not prefix or not os.access(program, os.X_OK):
        return Place(prefix, "", "")
    match = re.search(r"release (\d+\.\d+)", run([program, "--version"], TIMEOUT).output)
    version = match.group(1) if match else _cuda_listed(prefix)
    library = _first(filter(os.path.isdir, _library_directories(prefix)))
    return Place(prefix, version, library)


def _cuda_listed(prefix: str) -> str:
    try:
        return str(json.loads(text_of(os.path.join(prefix, "version.json")))["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def hwloc(prefix: str, environment: Mapping[str, str]) -> Place:
    """Find hwloc.h (as the version) and its library, in a prefix or wherever the compiler looks, CPATH included."""
    if prefix:
        header = os.path.join(prefix, "include", "hwloc.h")
        return Place(prefix, header if os.path.exists(header) else "", _library_directory(prefix, "libhwloc.so"))
    named = [environment.get(name, "") for name in ("CPATH", "C_INCLUDE_PATH")]
    directories = [part for value in named for part in value.split(":") if part]
    headers = [os.path.join(one, "hwloc.h") for one in (*directories, "/usr/local/include", "/usr/include")]
    return Place("", _first(header for header in headers if os.path.exists(header)), "")


def missing_commands(commands: Iterable[str], path: str | None) -> list[str]:
    """Return those that are not on a search path (None for this process's own)."""
    return [command for command in commands if shutil.which(command, path=path) is None]

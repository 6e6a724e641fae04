# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rank has imported and mapped: Python modules with the time that they took, and the libraries behind them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import sys
import time
from types import ModuleType
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

LIBRARY = re.compile(r"(libmpi[a-z0-9_]*|libtorch[a-z_]*|libnccl[a-z_-]*|librccl[a-z_-]*|libstdc\+\+)\.so")
"""Libraries of which all ranks must map the same file."""


class Imported(NamedTuple):
    """The Python modules by name, their files, what their packages say of their versions, and seconds of the import."""

    modules: dict[str, ModuleType]
    files: dict[str, str]
    versions: dict[str, str]
    seconds: dict[str, float]


def imported(names: Iterable[str], required: Sequence[str]) -> Imported:
    """Import modules, one after the other: the seconds of one are without what an earlier one has imported.

    Args:
        names: all of them.
        required: those that have to be there.

    Raises:
        ImportError: one of these is not.
    """
    found = Imported({}, {}, {}, {})
    for name in dict.fromkeys(names):
        started = time.monotonic()
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            if name in required:
                raise ImportError("%s cannot be imported: %s" % (name, error)) from error
            continue
        found.seconds[name] = round(time.monotonic() - started, 3)
        found.modules[name] = module
        top = name.partition(".")[0]
        found.files[name] = os.path.realpath(getattr(module, "__file__", None) or "")
        found.versions[top] = str(getattr(sys.modules[top], "__version__", ""))
    torch: Any = found.modules.get("torch")
    if torch is not None and torch.version.cuda:
        found.versions["cuda"] = torch.version.cuda
        with contextlib.suppress(Exception):
            found.versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def mapped(maps: str = "/proc/self/maps") -> dict[str, list[list[Any]]]:
    """The library files that this process has mapped: stem of the name -> list of [path, size in bytes]."""
    paths = set()
    with open(maps, encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and LIBRARY.match(os.path.basename(fields[5])):
                paths.add(fields[5])
    found: dict[str, list[list[Any]]] = {}
    for path in sorted(paths):
        match = LIBRARY.match(os.path.basename(path))
        try:
            size = os.stat(path).st_size
        except OSError:
            size = -1
        if match:
            found.setdefault(match.group(1), []).append([path, size])
    return found


def mpi_version(libraries: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """What the mapped MPI library calls itself, its first line; empty where there is none or it does not tell.

    Args:
        libraries: see :func:`mapped`.
    """
    for path, _size in libraries.get("libmpi", []):
        with contextlib.suppress(OSError, AttributeError):
            text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
            if ctypes.CDLL(path).MPI_Get_library_version(text, ctypes.byref(length)) == 0:
                return " ".join(text.value.decode("utf-8", "replace").split("\n", maxsplit=1)[0].split())
    return ""

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Import the Python modules of a rank, and list the libraries that its process has mapped."""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import importlib
import os
import re
import sys
import time
from types import ModuleType
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

LIBRARY = re.compile(r"(libmpi[a-z0-9_]*|libtorch[a-z_]*|libnccl[a-z_-]*|librccl[a-z_-]*|libstdc\+\+)\.so")
"""Libraries of which all ranks must map the same file."""


class ImportedModules(NamedTuple):
    """Hold modules, files and versions by name, and the seconds of each import."""

    modules: dict[str, ModuleType]
    files: dict[str, str]
    versions: dict[str, str]
    seconds: dict[str, float]


def import_modules(names: Iterable[str], required: Sequence[str]) -> ImportedModules:
    """Import modules one after the other; the time of each is without what was imported before."""
    found = ImportedModules({}, {}, {}, {})
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


def mapped_libraries(maps: str = "/proc/self/maps") -> dict[str, list[list[Any]]]:
    """List the mapped library files: stem of the name -> list of [path, size in bytes]."""
    paths = {}
    with open(maps, encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            for path in line.rstrip("\n").split(None, 5)[5:]:
                match = LIBRARY.match(os.path.basename(path))
                if match:
                    paths[path] = match.group(1)
    found: dict[str, list[list[Any]]] = {}
    for path, stem in sorted(paths.items()):
        size = -1
        with contextlib.suppress(OSError):
            size = os.stat(path).st_size
        found.setdefault(stem, []).append([path, size])
    return found


def declared_libraries(names: Sequence[str], maps: str = "/proc/self/maps") -> list[str]:
    """List the paths of mapped files whose soname one of some globs means; versions may follow it in a file's name."""
    with open(maps, encoding="utf-8", errors="surrogateescape") as stream:
        paths = {line.rstrip("\n").split(None, 5)[-1] for line in stream}
    return sorted(path for path in paths if path.startswith("/") and any(is_named(path, name) for name in names))


def is_named(path: str, name: str) -> bool:
    """Tell whether a mapped file is one whose soname a glob means."""
    base = os.path.basename(path)
    return fnmatch.fnmatchcase(base, name) or fnmatch.fnmatchcase(base, name + ".*")


def mpi_version(libraries: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """Return the first line of the version of the MPI library among :func:`mapped_libraries`; empty for none."""
    for path, _size in libraries.get("libmpi", []):
        with contextlib.suppress(OSError, AttributeError):
            text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
            if ctypes.CDLL(path).MPI_Get_library_version(text, ctypes.byref(length)) == 0:
                return " ".join(text.value.decode("utf-8", "replace").split("\n", maxsplit=1)[0].split())
    return ""

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find what software compiled against a release depends on: versions, sonames, symbol versions."""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, Mapping, Sequence

from ..core.lenient_json import mapping, text
from ..definition.packages import canonical
from ..elf.image import ElfError
from ..elf.reader import read_elf
from .installed_components import library_version

SONAMES = ("libmpi", "libnccl", "libcudart", "libcudnn", "libstdc++")
"""Libraries whose soname a user's extension is linked with."""
SYMBOLS = ("GLIBCXX", "GLIBC")
"""Families of symbol versions; the highest that an object of the release needs has to be there at run time."""

_MPI = re.compile(r"libmpi(?:_(?:amd|aocc|cray|gnu|intel|nvidia|pgi)[_0-9]*)?\Z")
"""An MPI's own library, of Cray's by its compiler; not those for C++ and Fortran, and not the GPU transport layer."""
_SYMBOL = re.compile(r"([A-Z]+)_(\d+(?:\.\d+)*)\Z")


def libraries(
    prefix: str, resolved: Mapping[str, Any], build: Mapping[str, Any], python: Sequence[Mapping[str, Any]],
    components: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    """Find what is known of the release's interfaces; what is not known is left out."""
    base = mapping(resolved.get("base"))
    versions = {canonical(one["name"]): one["version"] for one in python}
    of_component = {one["key"]: one["version"] for one in components}
    wheel_nccl = next((versions[name] for name in sorted(versions) if name.startswith("nvidia-nccl-")), "")
    torch = mapping(build.get("pytorch"))
    mpi = next((one for one in components if one["key"] == "mpi"), {})
    found = {
        "python": text(base.get("minor")),
        "torch": text(torch.get("version")) or versions.get("torch", "") or of_component.get("pytorch", ""),
        "numpy": versions.get("numpy", ""),
        "nccl": text(mapping(build.get("nccl")).get("version")) or of_component.get("nccl", "") or wheel_nccl,
        "mpi": library_version(build) or " ".join(filter(None, (mpi.get("name"), mpi.get("version")))),
        "cuda": text(torch.get("cuda")) or of_component.get("cuda", ""),
    }
    objects = mapping(mapping(build.get("verification")).get("objects"))
    found.update(_sonames(objects))
    found.update(_symbols(prefix, objects))
    return {name: value for name, value in sorted(found.items()) if value}


def _sonames(objects: Mapping[str, Any]) -> dict[str, str]:
    """Find the sonames that the release's objects need, by the library's name."""
    found: dict[str, set[str]] = {}
    for entry in objects.values():
        for soname in mapping(mapping(entry).get("needed")):
            stem = text(soname).partition(".so")[0]
            name = "libmpi" if _MPI.match(stem) else stem
            if name in SONAMES:
                found.setdefault(name, set()).add(text(soname))
    return {name: ", ".join(sorted(sonames)) for name, sonames in found.items()}


def _symbols(prefix: str, objects: Iterable[str]) -> dict[str, str]:
    """Find the highest version of each family of symbols that the release's objects need."""
    highest: dict[str, tuple[int, ...]] = {}
    for path in objects:
        try:
            facts = read_elf(os.path.join(prefix, path))
        except (OSError, ElfError):
            # The drift against the manifest is where a damaged object is an error.
            continue
        for need in facts.version_needs if facts else ():
            match = _SYMBOL.match(need.version.decode("ascii", "replace"))
            if match and match.group(1) in SYMBOLS and not need.weak:
                version = tuple(int(part) for part in match.group(2).split("."))
                highest[match.group(1)] = max(version, highest.get(match.group(1), ()))
    return {name: ".".join(map(str, version)) for name, version in highest.items()}

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find what a release file asks for GPUs of AMD, for which nothing but containers is made here. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

from . import components

INSTEAD = "nothing is built for GPUs of AMD here, and releases for ROCm are containers (base.kind: container)"

_VARIABLE = re.compile(
    r"(USE_|HOROVOD_|PYTORCH_|BUILD_|MPI4PY_)?(ROCM|RCCL|HIP|HSA)(_.*)?|HIPCC.*|USE_MIOPEN|MIOPEN_.*")
_OFF = frozenset(("", "0", "off", "no", "false", "n"))
_OF_HOROVOD = re.compile(r"HOROVOD_GPU(_\w+)?")
_WHEEL = re.compile(r"\+rocm|[/.]rocm", re.IGNORECASE)
_MEASURED = re.compile(r"\(Topology\)\s*Numa\s+(Node|Affinity)")


def problems(definition: object, source: str = "") -> list[str]:
    """Find build variables and wheels for ROCm, as one sentence for each place.

    Args:
        definition: a release file's data, as written; what has the wrong type is passed over.
        source: the file that the sentences name.
    """
    if not isinstance(definition, Mapping) or components.in_image(definition):
        return []
    where = " in %s" % source if source else ""
    found = []
    for path, variables in _environments(definition):
        asked = [str(name) for name, value in variables.items() if _asks(str(name), str(value))]
        if asked:
            found.append("'%s'%s has %s: %s; remove %s." % (
                path, where, ", ".join(asked), INSTEAD, "it" if len(asked) == 1 else "them"))
    pytorch = definition.get("pytorch")
    for key in ("version", "lock", "index"):
        value = pytorch.get(key) if isinstance(pytorch, Mapping) else None
        if isinstance(value, str) and _WHEEL.search(value):
            found.append("'pytorch.%s'%s is of a build for ROCm: %s; name another build." % (key, where, INSTEAD))
    return found


def site_problems(definition: Mapping[str, Any], topology: Mapping[str, Any], site: str) -> list[str]:
    """Find a release for CUDA on a site whose nodes have GPUs of AMD, as their own program has measured them."""
    if "cuda" not in definition or not _MEASURED.search(str(topology.get("gpus") or "")):
        return []
    return ["'cuda' is there, and torchstack_topology of site %s has GPUs of AMD, as rocm-smi names them: %s." % (
        site, INSTEAD)]


def _asks(name: str, value: str) -> bool:
    """Tell whether a variable asks for GPUs of AMD; one that says off does not."""
    if _OF_HOROVOD.fullmatch(name):
        return value.strip().lower() in ("rocm", "rccl", "hip")
    return _VARIABLE.fullmatch(name) is not None and value.strip().lower() not in _OFF


def _environments(value: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the variables that builds get, with their paths."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            below = "%s.%s" % (path, key) if path else str(key)
            if key in ("environment", "compilers") and isinstance(inner, Mapping):
                yield below, inner
            elif key not in ("module", "runtime", "verification", "acceptance"):
                yield from _environments(inner, below)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _environments(inner, "%s[%d]" % (path, number))

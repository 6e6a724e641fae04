# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The components of a release file: what is wrong between their keys, and what follows from which are there. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

OPTIONAL = {"nccl": "NCCL", "mpi4py": "mpi4py", "horovod": "Horovod"}
"""Components that a release need not have, by key and name."""

OF_THE_WHEEL = ("cpu", "cuda_lock")
"""Keys of ``pytorch`` that only mean something beside ``lock``."""

SERIES = {
    "horovod": (("horovod",), "horovod"),
    "pytorch": (("pytorch", "source"), "pytorch"),
    "mpi_backend": (("pytorch", "mpi_backend"), "pytorch"),
}
"""Patch series: name, the keys that lead to the mapping that names it, and the role that has its files."""


def problems(definition: object, source: str = "") -> list[str]:
    """Everything in the components that contradicts itself or lacks its counterpart, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here.

    Args:
        definition: a release file's data, as written.
        source: the file that the sentences name.
    """
    if not isinstance(definition, dict):
        return []
    where = " in %s" % source if source else ""
    found: list[str] = []
    for key, judge in (("pytorch", _pytorch), ("mpi", _mpi), ("nccl", _nccl)):
        if isinstance(definition.get(key), dict):
            found += ["'%s'%s %s." % (path, where, trouble) for path, trouble in judge(definition[key], definition)]
    return found


def _pytorch(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if section.get("lock") and "source" in section:
        yield "pytorch", "has both lock and source; keep the lock to install the wheel, or the source to build one"
    elif "source" in section:
        for key in OF_THE_WHEEL:
            if key in section:
                yield "pytorch." + key, "means nothing to a build from source; remove it"
        if "cuda" in definition and "nccl" not in definition:
            yield "pytorch.source", "has cuda and no nccl, so that any NCCL of the machine would do; add nccl"
    elif not section.get("lock"):
        yield "pytorch", "has neither lock nor source; add the lock of its wheel, or the source to build it from"
    else:
        for key in OF_THE_WHEEL:
            if key not in section:
                yield "pytorch", "has a lock and no %s; add it" % key


def _mpi(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    named = section.get("prefix") or section.get("cc")
    if not named and section.get("allow_path", True) is False and not section.get("lock"):
        yield "mpi", "names no MPI: it has neither prefix nor cc nor lock, and allow_path is false; add one of them"


def _nccl(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "cuda" not in definition:
        yield "nccl", "is there without cuda; say under cuda which toolkit it is compiled with, and for which GPUs"
    tests, mpi = section.get("tests"), definition.get("mpi")
    with_mpi = isinstance(tests, dict) and tests.get("mpi")
    if with_mpi and isinstance(mpi, dict) and not (mpi.get("prefix") or mpi.get("cc")):
        yield "nccl.tests.mpi", "wants an MPI before that of a wheel is there; name one as mpi.prefix, or remove it"


def left_out(definition: Mapping[str, Any]) -> list[str]:
    """Names of the components that a release does without; NCCL is missed only where there is CUDA.

    Args:
        definition: a resolved release file.
    """
    missed = [key for key in OPTIONAL if key not in definition and (key != "nccl" or "cuda" in definition)]
    return [OPTIONAL[key] for key in missed]


def torch_step(definition: Mapping[str, Any]) -> str:
    """The step after which torch is installed, which all that is built on torch needs."""
    return "pytorch-install" if "source" in (definition.get("pytorch") or {}) else "pytorch"


def package_needs(definition: Mapping[str, Any]) -> list[str]:
    """The steps that every package of a release is built on; one of which nothing is known is taken to have all."""
    needed = ["base", torch_step(definition)]
    needed += ["nccl"] if "nccl" in definition else []
    return needed + (["mpi4py-install"] if not definition or "mpi4py" in definition else [])


def commands(definition: Mapping[str, Any]) -> list[str]:
    """Commands of the machine that the components of a release need besides those that every release needs.

    Args:
        definition: a resolved release file.
    """
    pytorch = definition.get("pytorch") or {}
    nccl = definition.get("nccl") or {}
    repositories = [
        nccl, pytorch.get("source") or {}, pytorch.get("mpi_backend") or {}, *(definition.get("packages") or [])
    ]
    found = ["git"] if any("repository" in part for part in repositories) else []
    if nccl:
        found.append("make")
    if nccl.get("plugin"):
        # Its autogen.sh calls autoreconf, which calls the others.
        found += ["autoreconf", "automake", "libtoolize"]
    return found


def accepted(definition: Mapping[str, Any]) -> dict[str, list[str]]:
    """What the acceptance of a release runs: what its parts allow, and what the release file says instead.

    Args:
        definition: a resolved release file; empty for a release of which nothing is known, which is taken to have all.

    Returns:
        ``imports``, ``checks`` and ``where_possible``, as the role acceptance takes them.
    """
    horovod = not definition or "horovod" in definition
    checks = ["imports", "devices"]
    if horovod:
        checks += ["horovod_allreduce", "horovod_broadcast"]
    elif "mpi4py" in definition:
        checks.append("mpi4py_allreduce")
    backend = (definition.get("pytorch") or {}).get("mpi_backend") or {}
    if backend.get("name") == "mpi":
        checks.append("torch_mpi_allreduce")
    found = {
        "imports": ["torch", *(["horovod.torch"] if horovod else [])],
        "checks": [*checks, "torch_gloo_allreduce"],
        "where_possible": ["torch_nccl_allreduce", "torch_mpi_allreduce", "cuda_graph_replay"],
    }
    found.update({key: list(value) for key, value in (definition.get("acceptance") or {}).items() if value is not None})
    checked = set(found["checks"])
    return dict(found, where_possible=[name for name in found["where_possible"] if name not in checked])

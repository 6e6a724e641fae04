# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The components of a release file: what is wrong between their keys, and what follows from which are there. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from ..ranks import plan as bandwidth_plan
from . import container as containers
from . import left_over

OPTIONAL = {"nccl": "NCCL", "mpi4py": "mpi4py", "horovod": "Horovod"}
"""Components that a release need not have, by key and name."""

OF_A_BUILD = {
    "mpi": "the MPI that everything is compiled against",
    "locks": "everything else that pip installs, with hashes",
}
"""Keys that every release needs of which anything is built, and what they are."""

OF_THE_IMAGE = ("toolchain", "cuda", "mpi", "nccl", "mpi4py", "horovod", "packages", "locks")
"""Keys that say what is built; a container has all of that in its image, or does without."""

OF_THE_WHEEL = ("cpu", "cuda_lock", "index")
"""Keys of ``pytorch`` that only mean something beside ``lock``."""

OF_PYTORCHS_BUILD = ("lock", *OF_THE_WHEEL, "source", "mpi_backend")
"""Keys of ``pytorch`` that say where torch comes from."""

SERIES = {
    "horovod": (("horovod",), "horovod"),
    "pytorch": (("pytorch", "source"), "pytorch"),
    "mpi_backend": (("pytorch", "mpi_backend"), "pytorch"),
}
"""Patch series: name, the keys that lead to the mapping that names it, and the role that has its files."""


WHERE_POSSIBLE = ("torch_nccl", "torch_mpi", "cuda_graph_replay")
"""Checks of an acceptance that need not be possible; all but one of them are of GPUs."""

MEASURED: dict[str, Any] = {
    "operations": ["all_reduce"], "smallest": "32 KiB", "largest": "1 GiB", "warmups": 5, "trials": 20, "seconds": 20,
    "latency": {"bytes": [8], "iterations": 1000},
}
"""What an acceptance measures of each backend, unless the site or the release file says otherwise."""


def problems(definition: object, source: str = "", lines: Mapping[str, int] | None = None) -> list[str]:
    """Everything in the components that contradicts itself or lacks its counterpart, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here.

    Args:
        definition: a release file's data, as written.
        source: the file that the sentences name.
        lines: the lines of its keys, by their dotted paths.
    """
    if not isinstance(definition, dict):
        return []
    where = " in %s" % source if source else ""
    if in_image(definition):
        return [
            "'%s'%s means nothing to a container, of which only the image has it or does without; remove it." % (
                path, where)
            for path in _not_of_an_image(definition)
        ]
    base = definition.get("base")
    found = [
        "'%s' is missing%s; add it (%s)." % (key, where, meaning)
        for key, meaning in OF_A_BUILD.items() if isinstance(base, dict) and key not in definition
    ]
    for key, judge in (("pytorch", _pytorch), ("mpi", _mpi), ("nccl", _nccl), ("horovod", _horovod)):
        if isinstance(definition.get(key), dict):
            found += ["'%s'%s %s." % (path, where, trouble) for path, trouble in judge(definition[key], definition)]
    for key, paths in left_over.left_over(definition).items():
        found.append("There is no '%s'%s, and these still speak of it: %s; remove them, or add it." % (
            key, where, ", ".join(path + _line(path, lines or {}) for path in paths)))
    return found


def _line(path: str, lines: Mapping[str, int]) -> str:
    return " (line %d)" % lines[path] if path in lines else ""


def in_image(definition: object) -> bool:
    """Whether a release is a container, of which nothing is built but the files around its image."""
    base = definition.get("base") if isinstance(definition, Mapping) else None
    return isinstance(base, Mapping) and base.get("kind") == containers.KIND


def _not_of_an_image(definition: Mapping[str, Any]) -> list[str]:
    """The dotted paths of what a container cannot have."""
    pytorch = definition.get("pytorch")
    return [key for key in OF_THE_IMAGE if key in definition] + [
        "pytorch.%s" % key for key in (pytorch if isinstance(pytorch, dict) else {}) if key in OF_PYTORCHS_BUILD
    ]


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
        if section.get("index") and "cpu" in section:
            yield "pytorch", (
                "has both index and cpu; keep the index that the wheel of the lock is on, or the CPU build's"
            )
        if "cuda" in definition and "cpu" in section:
            yield "pytorch.cpu", "means nothing to a release for GPUs; remove it, or cuda"
        for key in ("cuda_lock",) if section.get("index") or "cuda" in definition else ("cpu", "cuda_lock"):
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


def _horovod(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    origin, pytorch = section.get("nccl"), definition.get("pytorch")
    if "cuda" not in definition:
        for key in ("nccl", "driver_stub"):
            if section.get(key):
                yield "horovod." + key, "means nothing without cuda; add cuda, or remove it"
        given = [name for name in section.get("environment") or {} if str(name).startswith("HOROVOD_GPU")]
        if given:
            yield "horovod.environment", "has %s, which means nothing without cuda; add cuda, or remove it" % (
                ", ".join(given))
    elif origin == "release" and "nccl" not in definition:
        yield "horovod.nccl", "asks for the release's own NCCL, and there is no nccl; add nccl, or say wheel"
    if origin != "wheel":
        return
    if "nccl" in definition or (isinstance(pytorch, dict) and "source" in pytorch):
        yield "horovod.nccl", (
            "asks for the NCCL of PyTorch's wheel, beside which a process would have another one; say release"
        )
    given = [name for name in section.get("environment") or {} if str(name).startswith("HOROVOD_NCCL_")]
    if given:
        yield "horovod.environment", "has %s; that follows from horovod.nccl, so remove it" % ", ".join(given)


def left_out(definition: Mapping[str, Any]) -> list[str]:
    """Names of the components that a release does without; NCCL only where there is CUDA, and no use of the wheel's.

    Nothing is known of what the image of a container is without.

    Args:
        definition: a resolved release file.
    """
    if in_image(definition):
        return []
    wanted = "cuda" in definition and (definition.get("horovod") or {}).get("nccl") != "wheel"
    missed = [key for key in OPTIONAL if key not in definition and (key != "nccl" or wanted)]
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


def accepted(definition: Mapping[str, Any], site: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the acceptance of a release runs: what its parts allow, and what the site and the release file say instead.

    Args:
        definition: a resolved release file; empty for a release of which nothing is known, which is taken to have all.
        site: what the site asks of every acceptance, its ``torchstack_acceptance``.

    Returns:
        ``imports``, ``checks``, ``where_possible``, ``measure``, ``transport`` and ``import_ceiling`` (seconds), as the
        role acceptance takes them; ``problem`` is what is wrong with ``measure``, as a sentence, or empty.
    """
    horovod = not definition or "horovod" in definition
    checks = ["imports", "devices", *(["horovod"] if horovod else [])]
    if not definition or "mpi4py" in definition:
        checks.append("mpi4py")
    backend = (definition.get("pytorch") or {}).get("mpi_backend") or {}
    if backend.get("name") == "mpi":
        checks.append("torch_mpi")
    if definition.get("cuda"):
        # Where it may be left out, a driver that shows no GPU would pass, and no floor or transport would be judged.
        checks.append("torch_nccl")
    found = {
        "imports": ["torch", *(["horovod.torch"] if horovod else [])],
        "checks": [*checks, "torch_gloo"],
        "where_possible": [name for name in WHERE_POSSIBLE if name == "torch_mpi" or _may_use_gpus(definition)],
    }
    own = definition.get("acceptance") or {}
    found.update({key: list(own[key]) for key in found if own.get(key) is not None})
    checked = set(found["checks"])
    asked = [site or {}, own]
    measure = _measured(asked)
    return {
        **found, "where_possible": [name for name in found["where_possible"] if name not in checked],
        "measure": measure, "problem": bandwidth_plan.problem(measure),
        "transport": _laid_over([part.get("transport") for part in asked]),
        "import_ceiling": _laid_over(asked).get("import_ceiling", 0),
    }


def _may_use_gpus(definition: Mapping[str, Any]) -> bool:
    """Whether a release may use GPUs: what it is compiled for, or unknown, as in an image."""
    return not definition or in_image(definition) or "cuda" in definition


def _measured(asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is measured; empty where neither collectives nor latencies are."""
    parts = [MEASURED, *(part.get("measure") or {} for part in asked)]
    found = _laid_over(parts)
    if not found.get("operations") and not found.get("latency"):
        return {}
    floors = _laid_over([part.get("floors") for part in parts])
    return {**found, **({"floors": floors} if floors else {})}


def _laid_over(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Mappings in one, key by key; the later ones win, where they say anything."""
    return {key: value for part in parts for key, value in (part or {}).items() if value is not None}

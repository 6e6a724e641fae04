# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find contradictions between the keys of one component and the rest of a release file. Pure.

Each function takes the mapping of its component and the release file, and yields the path of a key with what is the
matter with it, the end of a sentence.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Tuple

Found = Iterator[Tuple[str, str]]

OF_THE_WHEEL = ("cpu", "cuda_lock", "index")
"""Keys of ``pytorch`` that only mean something beside ``lock``."""

SOURCE = ("repository", "tag", "commit")
OF_A_BUILT_NCCL = (*SOURCE, "cuda", "environment", "make", "tests")
"""Keys of ``nccl`` that mean nothing to one that is taken from a wheel."""

MEANINGLESS = (
    "has %s, and Horovod ignores every value but \"1\" there; to leave a part out, set HOROVOD_WITHOUT_<PART> to "
    "\"1\"")
"""What is the matter with :func:`meaningless_variables`."""

_WITH = re.compile(r"HOROVOD_WITH(OUT)?_")

CHOICES = {
    "HOROVOD_CPU_OPERATIONS": ("MPI", "GLOO", "CCL"),
    "HOROVOD_GPU": ("CUDA", "ROCM"),
    "HOROVOD_GPU_OPERATIONS": ("NCCL", "MPI"),
}
"""What Horovod's build variables may say, of those that stop the build otherwise; its page on installation."""


def pass_all(_section: Mapping[str, Any], _definition: Mapping[str, Any]) -> Found:
    """Find nothing: the component has no rules of its own."""
    return iter(())


def check_mpi(section: Mapping[str, Any], _definition: Mapping[str, Any]) -> Found:
    """Check ``mpi``, which is no component but what they are compiled against."""
    named = section.get("prefix") or section.get("cc")
    if not named and section.get("allow_path", True) is False and not section.get("lock"):
        yield "mpi", "names no MPI: it has neither prefix nor cc nor lock, and allow_path is false; add one of them"


def check_nccl(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Found:
    """Check ``nccl``, which is compiled, or taken from PyTorch's wheel with nothing but its plugin compiled."""
    if "cuda" in definition and section.get("cuda"):
        yield "nccl.cuda", "is there beside cuda, and a release for GPUs is compiled with one toolkit; remove it"
    elif "cuda" not in definition and not section.get("cuda"):
        yield "nccl", (
            "is there without cuda; say under cuda which toolkit it is compiled with, and for which GPUs, or as "
            "nccl.cuda where nothing else is for GPUs")
    pytorch = definition.get("pytorch")
    if section.get("wheel") is True:
        given = [key for key in OF_A_BUILT_NCCL if section.get(key)]
        if given:
            yield "nccl.wheel", "takes NCCL as it is in its wheel, and %s only mean%s something to one that is " \
                "compiled; remove %s" % (", ".join(given), *(("s", "it") if len(given) == 1 else ("", "them")))
        if not section.get("plugin"):
            yield "nccl", "takes the NCCL of PyTorch's wheel and names no plugin to compile; add plugin, or remove nccl"
        if isinstance(pytorch, dict) and "source" in pytorch:
            yield "nccl.wheel", (
                "asks for the NCCL of PyTorch's wheel, and pytorch is built from source; remove it, and add "
                "repository, tag and commit")
        return
    missing = [key for key in SOURCE if section and key not in section]
    if missing:
        yield "nccl", "has no %s; add %s, or say wheel: true for the NCCL that PyTorch's CUDA wheel brings" % (
            " and no ".join(missing), "it" if len(missing) == 1 else "them")
    tests, mpi = section.get("tests"), definition.get("mpi")
    with_mpi = isinstance(tests, dict) and tests.get("mpi")
    if with_mpi and isinstance(mpi, dict) and not (mpi.get("prefix") or mpi.get("cc")):
        yield "nccl.tests.mpi", "wants an MPI before that of a wheel is there; name one as mpi.prefix, or remove it"


def check_pytorch(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Found:
    """Check ``pytorch``, which comes from the lock of a wheel or from source."""
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
                "has both index and cpu; keep the index that the wheel of the lock is on, or the CPU build's")
        if "cuda" in definition and "cpu" in section:
            yield "pytorch.cpu", "means nothing to a release for GPUs; remove it, or cuda"
        if "cuda_lock" not in section:
            yield "pytorch", (
                "has a lock and no cuda_lock; add it, the CUDA libraries that the wheel needs, empty for none. Where "
                "the wheel is, index says, or cpu of a CPU build; without both it is where pip looks")


def meaningless_variables(environment: object) -> list[str]:
    """List the build variables of Horovod whose value it ignores: of these, it looks only for the text 1."""
    given = environment.items() if isinstance(environment, Mapping) else ()
    return [str(name) for name, value in given if _WITH.match(str(name)) and value != "1"]


def _variables(section: Mapping[str, Any]) -> Mapping[str, Any]:
    given = section.get("environment")
    return given if isinstance(given, Mapping) else {}


def _contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    """Say which build variables of Horovod have a value that it refuses, or exclude each other."""
    for name, known in CHOICES.items():
        if name in given and given[name] not in known:
            yield "has %s=%s, which Horovod's build refuses; known are %s" % (name, given[name], ", ".join(known))
    for name in given:
        other = str(name).replace("HOROVOD_WITH_", "HOROVOD_WITHOUT_")
        if other != name and other in given:
            yield "has both %s and %s; keep one of them" % (name, other)


def check_horovod(section: Mapping[str, Any], definition: Mapping[str, Any]) -> Found:
    """Check ``horovod``."""
    origin, pytorch, nccl = section.get("nccl"), definition.get("pytorch"), definition.get("nccl")
    of_the_wheel = isinstance(nccl, dict) and nccl.get("wheel") is True
    meaningless = meaningless_variables(section.get("environment"))
    if meaningless:
        yield "horovod.environment", MEANINGLESS % ", ".join(meaningless)
    for trouble in _contradictions(_variables(section)):
        yield "horovod.environment", trouble
    if "cuda" not in definition:
        for key in ("nccl", "driver_stub"):
            if section.get(key):
                yield "horovod." + key, "means nothing without cuda; add cuda, or remove it"
        given = [name for name in _variables(section) if str(name).startswith("HOROVOD_GPU")]
        if given:
            yield "horovod.environment", "has %s, which means nothing without cuda; add cuda, or remove it" % (
                ", ".join(given))
    elif origin == "release" and "nccl" not in definition:
        yield "horovod.nccl", "asks for the release's own NCCL, and there is no nccl; add nccl, or say wheel"
    elif origin == "release" and of_the_wheel:
        yield "horovod.nccl", "asks for the release's own NCCL, and nccl takes that of PyTorch's wheel; say wheel"
    if origin != "wheel":
        return
    if ("nccl" in definition and not of_the_wheel) or (isinstance(pytorch, dict) and "source" in pytorch):
        yield "horovod.nccl", (
            "asks for the NCCL of PyTorch's wheel, beside which a process would have another one; say release")
    given = [name for name in _variables(section) if str(name).startswith("HOROVOD_NCCL_")]
    if given:
        yield "horovod.environment", "has %s; that follows from horovod.nccl, so remove it" % ", ".join(given)

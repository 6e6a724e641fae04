# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What of two releases software that users have built themselves depends on, and what they have to do. Pure.

- Python extensions are for one minor version of Python (PEP 425, tags such as cp312); so are virtual environments.
- PyTorch promises no binary interface between minor versions, and its extensions are compiled for one CUDA.
- An extension compiled against NumPy 1 does not import with NumPy 2 (NumPy 2.0 migration guide).
- A program finds its MPI by the soname that it was linked with.
- libstdc++ is compatible upwards alone: the one that a process has must know the highest GLIBCXX that anything needs.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..core.lenient_json import mapping, text
from ..core.versions import UP, direction

TITLES = {
    "python": "Python", "torch": "PyTorch", "cuda": "CUDA", "numpy": "NumPy", "mpi": "MPI", "nccl": "NCCL",
    "libmpi": "MPI library", "libnccl": "NCCL library", "libcudart": "CUDA runtime library",
    "libcudnn": "cuDNN library", "libstdc++": "C++ library", "GLIBCXX": "GLIBCXX (libstdc++)", "GLIBC": "glibc",
}
"""The interfaces, in the order of the notice."""

_PARTS = {"torch": 2, "cuda": 2, "nccl": 2, "numpy": 1}
"""How many parts of a version belong to the interface, where not all of them do."""

_COMPILED = ("python", "torch", "cuda", "numpy", "libcudart", "libcudnn")
_LINKED = ("libmpi", "mpi")


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, str]]:
    """The interfaces that differ and are known on both sides: ``key``, ``name``, ``before`` and ``after``.

    Args:
        before: ``libraries`` of the outgoing release, as :mod:`installed` has them.
        after: those of the incoming one.
    """
    known = [key for key in TITLES if key in before and key in after]
    known += sorted(key for key in after if key in before and key not in TITLES)
    rows = [
        {"key": key, "name": TITLES.get(key, key), "before": _interface(key, before[key]),
         "after": _interface(key, after[key])}
        for key in known
    ]
    return [row for row in rows if row["before"] != row["after"]]


def _interface(key: str, value: object) -> str:
    said = text(value)
    if key == "mpi":
        # Which MPI it is, and its first number: MPICH 4.
        return re.sub(r"(\d+)\..*", r"\1", said)
    public, plus, local = said.partition("+")
    return ".".join(public.split(".")[:_PARTS[key]]) + plus + local if key in _PARTS else said


def actions(rows: list[dict[str, str]], base: Mapping[str, Any], modules: Mapping[str, str]) -> list[str]:
    """What users have to do, one sentence or two each, in the order of importance.

    Args:
        rows: what :func:`changes` found.
        base: ``base`` of the incoming release, as :mod:`installed` has it.
        modules: the names of the modules ``before`` and ``after``.
    """
    found = {row["key"]: row for row in rows}
    sentences = []
    compiled = [found[key] for key in _COMPILED if key in found and not (key == "libcudart" and "cuda" in found)]
    if compiled:
        sentences.append("Compile C++ and CUDA extensions of your own again, for %s." % _listed(
            ["%s %s" % (row["name"], row["after"]) for row in compiled]))
    linked = next((found[key] for key in _LINKED if key in found), None)
    if linked:
        sentences.append("Link MPI programs of your own again: the %s is %s now, no longer %s." % (
            linked["name"], linked["after"], linked["before"]))
    kind = text(mapping(base).get("kind"))
    if "python" in found or kind == "conda":
        sentences.append(
            "Make your virtual environments anew on top of %s: those made with %s do not find its packages." % (
                modules["after"], modules["before"]))
    elif kind == "python_overlay":
        sentences.append(
            "To move a virtual environment to the new release, load %s and run `extend-venv-activate` on it."
            % modules["after"])
    sentences.append(
        "Install again what you have installed with `pip install --user`, for which every release has its own place.")
    symbols = found.get("GLIBCXX")
    if symbols and direction(symbols["before"], symbols["after"]) == UP:
        sentences.append(
            "Where your programs bring a libstdc++ of their own, from a compiler's module or a conda environment, it "
            "has to know GLIBCXX_%s." % symbols["after"])
    return sentences


def _listed(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)

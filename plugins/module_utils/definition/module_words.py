# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell users what a release's module has in it: the words of its help, its whatis line and its extensions. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

from ..conda import lockfile
from ..core.errors import StackError
from ..core.text import printable
from . import bundles, components, markers, packages
from .base import CONDA, OVERLAY
from .user_job import describe_job

MOST = 400
"""How many extensions a modulefile names; Lmod lists all of them in ``module avail``."""

PLACES = {"prefix": "It lies in %s.", "afterwards": "How it is used: %s/use.md"}
"""What is said of the directories of a release, by the keys of ``release_context``."""

_OF_PYTHON = re.compile(r"(?:^|_)(?:py|pyh)[0-9a-f]+")
"""In the build of a conda package, what says that it is of Python."""

_EXTENSION = re.compile(r"[a-z0-9][a-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._!-]*\Z")


def describe(
    context: Mapping[str, Any], name: str, site: Mapping[str, Any], built: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe a release to those who ask the module system.

    Args:
        context: ``release_context``.
        name: the name of the module.
        site: the variable ``torchstack_notice``: ``contact`` and ``documentation`` as sentences.
        built: the record of the installed PyTorch, ``pytorch.json``; empty where there is none (yet).

    Returns:
        ``help``, ``whatis`` and ``extensions`` of a modulefile's description.
    """
    definition = context.get("definition") or {}
    inside = _versions(context, definition, built)
    width = max(map(len, inside))
    paragraphs = [
        ["%s/%s: %s" % (name, context["release"], _one_line(definition.get("title") or "PyTorch"))],
        ["What is in it (all packages: python3 -m pip list):",
         *("  %s  %s" % (part.ljust(width), version) for part, version in inside.items())],
        _start(context, definition),
        [sentence % context[key] for key, sentence in PLACES.items() if context.get(key)],
        [_one_line(site[key]) for key in ("documentation", "contact") if site.get(key)],
    ]
    said = ", ".join("%s %s" % pair if pair[0] != "MPI" else pair[1] for pair in _main_first(inside))
    return {
        "help": "\n\n".join("\n".join(lines) for lines in paragraphs if lines),
        "whatis": {"Description": said},
        "extensions": extensions(context, built),
    }


def extensions(context: Mapping[str, Any], built: Mapping[str, Any]) -> list[str]:
    """List the Python packages of a release, ``name/version``, sorted: what its file names first, then its locks.

    A version is without its local part, as people ask for it: 2.13.0 is found, whichever build it is.
    """
    variables = _interpreter(context)
    found: dict[str, str] = {}
    for name, version in _packages(context.get("definition") or {}, variables, _is_for_gpus(context, built)):
        entry = "%s/%s" % (packages.canonical(name), version.partition("+")[0])
        if len(found) < MOST and _EXTENSION.match(entry):
            found.setdefault(packages.canonical(name), entry)
    return sorted(found.values())


def _packages(
    definition: Mapping[str, Any], variables: Mapping[str, str], for_gpus: bool
) -> Iterator[tuple[str, str]]:
    """Yield names and versions, those first that are asked for by name."""
    for row in components.COMPONENTS:
        part = definition.get(row.key)
        if row.distribution and isinstance(part, Mapping) and part.get("version"):
            yield row.distribution, str(part["version"])
    if (definition.get("pytorch") or {}).get("version"):
        yield "torch", str(definition["pytorch"]["version"])
    entries = bundles.entries(definition, "packages")
    for entry in entries:
        if entry.get("version"):
            yield entry["name"], str(entry["version"])
    grouped = bundles.entries(definition)
    for entry in grouped:
        asked = bundles.asked(entry)
        yield from (pin for pin in _pins(entry.get("lock"), variables) if packages.canonical(pin[0]) in asked)
    pytorch = definition.get("pytorch") or {}
    locks = [(definition.get("locks") or {}).get("base"), pytorch.get("lock"), *([pytorch.get("cuda_lock")] * for_gpus)]
    locks += [entry.get("requires") for entry in entries] + [entry.get("lock") for entry in grouped]
    for lock in locks:
        yield from _pins(lock, variables)
    yield from _of_conda(definition.get("base") or {})


def _pins(lock: object, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what a lock has for the release's interpreter; nothing of what cannot be read."""
    try:
        found = packages.requirements(lock) if isinstance(lock, str) else []
        for one in found:
            if markers.applies(one.marker, variables):
                yield one.name, one.version
    except ValueError:
        return


def _of_conda(base: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the Python packages of an explicit list of conda packages; of a solution nothing is known before."""
    lock = base.get("lock")
    if base.get("kind") != CONDA or not isinstance(lock, str) or not lockfile.is_explicit(lock):
        return
    try:
        for package in lockfile.parse(lock, "base.lock"):
            if _OF_PYTHON.search(package.build):
                yield package.name, package.version
    except StackError:
        return


def _interpreter(context: Mapping[str, Any]) -> dict[str, str]:
    python = context.get("python") or {}
    return markers.environment(
        _python(context), python.get("implementation") or "cpython", python.get("platform") or "linux_x86_64")


def _python(context: Mapping[str, Any]) -> str:
    """Return the version of the release's Python, of a base of its own as far as it is asked for."""
    base, python = context.get("base") or {}, context.get("python") or {}
    own = "" if base.get("kind") == OVERLAY else base.get("minor")
    return str(own or python.get("version") or "")


def _versions(
    context: Mapping[str, Any], definition: Mapping[str, Any], built: Mapping[str, Any]
) -> dict[str, str]:
    """Return the parts that a user asks for first, as far as the release has them and their version is known."""
    pytorch = definition.get("pytorch") or {}
    version = str(built.get("version") or pytorch.get("version") or "").partition("+")[0]
    build = _build(context, definition, built)
    found = {
        "Python": _python(context),
        "PyTorch": version + (" (%s)" % build if version and build else ""),
        "NCCL": _nccl(context, definition, built),
        "MPI": _mpi(context, definition),
        **{name: str((definition.get(key) or {}).get("version") or "")
           for name, key in (("mpi4py", "mpi4py"), ("Horovod", "horovod"))},
    }
    return {name: _one_line(text) for name, text in found.items() if text} or {"Release": str(context["release"])}


def _main_first(inside: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(inside.items(), key=lambda pair: pair[0] != "PyTorch")


def _build(context: Mapping[str, Any], definition: Mapping[str, Any], built: Mapping[str, Any]) -> str:
    """Say what PyTorch is built for: as it is installed, else as it is asked for; empty where neither says it."""
    local = re.search(r"\+rocm(\d[\d.]*)", str(built.get("version") or ""))
    if local:
        return "ROCm " + local.group(1)
    if built.get("version"):
        return "CUDA %s" % built["cuda"] if built.get("cuda") else "CPU"
    if (definition.get("cuda") or {}).get("version"):
        return "CUDA %s" % definition["cuda"]["version"]
    tag = (context.get("base") or {}).get("tag")
    hashes = ((definition.get("pytorch") or {}).get("cpu") or {}).get("hashes") or {}
    return "CPU" if tag in hashes else ""


def _is_for_gpus(context: Mapping[str, Any], built: Mapping[str, Any]) -> bool:
    return _build(context, context.get("definition") or {}, built) not in ("", "CPU")


def _nccl(context: Mapping[str, Any], definition: Mapping[str, Any], built: Mapping[str, Any]) -> str:
    """Return the version of NCCL: the one that is compiled, else that of PyTorch's wheel."""
    wanted, pytorch = definition.get("nccl") or {}, definition.get("pytorch") or {}
    if wanted.get("version") or not _is_for_gpus(context, built):
        return str(wanted.get("version") or "")
    pins = (pin for key in ("lock", "cuda_lock") for pin in _pins(pytorch.get(key), _interpreter(context)))
    return next((version for name, version in pins if name.startswith("nvidia-nccl")), "")


def _mpi(context: Mapping[str, Any], definition: Mapping[str, Any]) -> str:
    mpi = context.get("mpi") or {}
    if mpi.get("provider") == "wheel":
        pins = list(_pins((definition.get("mpi") or {}).get("lock"), _interpreter(context)))
        return "%s %s" % pins[0] if pins else ""
    return ("%s %s" % (mpi.get("vendor") or "", mpi.get("version") or "")).strip()


def _start(context: Mapping[str, Any], definition: Mapping[str, Any]) -> list[str]:
    """Return how a program is started, the ways that the release and the site have."""
    ways = []
    if not components.in_image(definition):
        ways.append("torchrun --standalone --nproc-per-node 2 train.py")
    job = describe_job(context)
    if "horovod" in definition and not job.submit and not components.in_image(definition):
        ways.append("horovodrun -np 2 python3 train.py")
    if "horovod" in definition or "mpi4py" in definition:
        ways.append("%s python3 train.py%s" % (job.start, "   (within a job)" if job.submit else ""))
    return ["How a program is started:", *("  " + way for way in ways)] if ways else []


def _one_line(text: object) -> str:
    return " ".join(printable(str(text)).split())

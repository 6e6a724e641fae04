# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the MPI that a release is built with, and describe its wrappers and its launcher."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from typing import Any, Mapping

from ..core.run_command import run

CXX_WRAPPERS = ("mpicxx", "mpic++", "mpiCC")
LAUNCHERS = ("mpiexec", "mpirun")
START_SECONDS = 60.0
"""How long a launcher may take to start one process."""

OPEN_MPI, MPICH, CRAY, INTEL, MVAPICH, PALS, SLURM = (
    "Open MPI", "MPICH", "Cray MPICH", "Intel", "MVAPICH", "PALS", "Slurm")

# An MPI derived from MPICH defines MPICH's macro too, so the more special name comes first.
_MACROS = (
    (CRAY, ("CRAY_MPICH_VERSION",)),
    (INTEL, ("I_MPI_VERSION",)),
    (MVAPICH, ("MVAPICH_VERSION",)),
    (MVAPICH, ("MVAPICH2_VERSION",)),
    (OPEN_MPI, ("OMPI_MAJOR_VERSION", "OMPI_MINOR_VERSION", "OMPI_RELEASE_VERSION")),
    (MPICH, ("MPICH_VERSION",)),
)
_MARK = "torchstack_asks"
HEADER_PROBE = "#include <mpi.h>\n" + "".join(
    "%s %d %s\n" % (_MARK, number, " ".join(names)) for number, (_vendor, names) in enumerate(_MACROS))

_LAUNCHER_WORDS = (
    (OPEN_MPI, re.compile(r"\((?:OpenRTE|Open MPI|PRRTE)\)\s+(\S+)")),
    (INTEL, re.compile(r"Intel\(R\) MPI Library.*?Version\s+(\S+)", re.DOTALL)),
    (PALS, re.compile(r"PALS\b\D*([\d.]+\d)", re.IGNORECASE)),
    (SLURM, re.compile(r"^slurm\S*\s+(\S+)", re.MULTILINE)),
    (MPICH, re.compile(r"HYDRA build details:.*?Version:\s+(\S+)", re.DOTALL)),
)


def parse_show(text: str) -> dict[str, Any]:
    """Tell what a compiler wrapper would run, from the output of ``mpicc -show``.

    ``library_dirs`` are those of the linker and of the run-time path; no list has anything twice.
    """
    try:
        words = shlex.split(text.strip().splitlines()[0]) if text.strip() else []
    except ValueError:
        words = []
    # The linker's words come as "-Wl,-rpath,DIR", "-Wl,-rpath -Wl,DIR" or "-Xlinker -rpath -Xlinker DIR".
    flat: list[str] = []
    for word in words[1:]:
        if word.startswith("-Wl,"):
            flat += word[4:].split(",")
        elif word != "-Xlinker":
            flat.append(word)
    found: dict[str, list[str]] = {"-I": [], "-L": [], "-l": []}
    position = 0
    while position < len(flat):
        word = flat[position]
        if word in ("-rpath", "--rpath", "-I", "-L") and position + 1 < len(flat):
            position += 1
            found["-I" if word == "-I" else "-L"].append(flat[position])
        elif word.startswith(("-rpath=", "--rpath=")):
            found["-L"].append(word.partition("=")[2])
        elif word[:2] in found and len(word) > 2:
            found[word[:2]].append(word[2:])
        position += 1
    absolute = [path for path in dict.fromkeys(found["-L"]) if path.startswith("/")]
    return {
        "compiler": words[0] if words else "", "include_dirs": list(dict.fromkeys(found["-I"])),
        "library_dirs": absolute, "libraries": list(dict.fromkeys(found["-l"])),
    }


def parse_launcher(text: str) -> tuple[str, str]:
    """Parse vendor and version from ``mpiexec --version``; empty where it does not tell."""
    for vendor, pattern in _LAUNCHER_WORDS:
        match = pattern.search(text)
        if match:
            return vendor, match.group(1)
    return "", ""


def parse_header(text: str) -> tuple[str, str]:
    """Parse vendor and version from the preprocessed :data:`HEADER_PROBE`; empty where it does not tell."""
    for line in text.splitlines():
        if not line.startswith(_MARK):
            continue
        words = line.split(None, 2)
        vendor, names = _MACROS[int(words[1])]
        values = words[2].replace('"', " ").split()
        if values and values[0] != names[0]:
            return vendor, ".".join(values)
    return "", ""


def fits(vendor: str, launcher_vendor: str) -> bool:
    """Tell whether ranks of one MPI find each other under a launcher; under a foreign one each is alone in its world.
    """
    if not vendor or launcher_vendor in ("", PALS, SLURM):
        return True
    return (vendor == OPEN_MPI) == (launcher_vendor == OPEN_MPI)


def find(wanted: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Choose the MPI and find its commands, without running any.

    Args:
        wanted: ``prefix`` (its installation, or empty), ``cc``, ``cxx``, ``launcher`` (commands, where they have
            names of their own, such as Cray's cc and CC), ``allow_path`` (take the mpicc on PATH), ``wheel`` (fall back
            on the MPI that comes as a Python wheel).

    Returns:
        ``provider`` (``named``, ``path``, ``wheel``, or empty where there is none), ``prefix`` and ``bin``
        (directories), ``cc``, ``cxx``, ``launcher`` (commands; empty where missing), ``looked_for`` (the wrapper for C
        that was not found, or empty).
    """
    path = environment.get("PATH")
    facts = dict.fromkeys(("provider", "prefix", "bin", "cc", "cxx", "launcher", "looked_for"), "")
    on_path = shutil.which("mpicc", path=path) if wanted.get("allow_path", True) else ""
    if wanted.get("prefix") or wanted.get("cc"):
        cc = _wrapper(wanted.get("cc") or "", wanted.get("prefix") or "")
        facts["provider"] = "named"
    elif on_path:
        cc, facts["provider"] = on_path, "path"
    else:
        return dict(facts, provider="wheel" if wanted.get("wheel", True) else "")
    first = shlex.split(cc)[0]
    place = shutil.which(first, path=path)
    if not place:
        return dict(facts, looked_for=first)
    beside = os.path.dirname(place)
    cxx = wanted.get("cxx") or _beside(beside, CXX_WRAPPERS)
    if wanted.get("launcher"):
        launcher = shutil.which(wanted["launcher"], path=path) or ""
    else:
        launcher = _beside(beside, LAUNCHERS) or _on_path(LAUNCHERS, path)
    prefix = wanted.get("prefix") or os.path.dirname(beside)
    return dict(facts, prefix=prefix, bin=beside, cc=cc, cxx=cxx, launcher=launcher)


def _wrapper(typed: str, prefix: str) -> str:
    """Return the wrapper for C of an MPI that was named.

    One that is typed is taken from the prefix where that has it, else from PATH as it is typed: Cray's cc lies in the
    programming environment, and the prefix says which MPI it is to bring.
    """
    if not prefix or "/" in typed:
        return typed
    inside = os.path.join(prefix, "bin", typed or "mpicc")
    return inside if not typed or os.access(shlex.split(inside)[0], os.X_OK) else typed


def _beside(directory: str, names: tuple[str, ...]) -> str:
    paths = [os.path.join(directory, name) for name in names]
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def _on_path(names: tuple[str, ...], path: str | None) -> str:
    return next((found for found in (shutil.which(name, path=path) for name in names) if found), "")


def describe(found: Mapping[str, Any], directory: str, timeout: float, start: bool = False) -> dict[str, Any]:
    """Ask the commands that were found what they are.

    Args:
        start: whether the launcher is to start a process here.

    Returns:
        ``found``, and ``vendor``, ``version``, ``include_dirs``, ``library_dirs``, ``cxx_library_dirs``,
        ``launcher_vendor``, ``launcher_version``, ``launcher_complaint`` (why it started nothing; empty where it did or
        was not tried), ``header`` (whether mpi.h is found) and ``complaint`` (why the wrapper for C did not preprocess
        a file that includes it).
    """
    facts: dict[str, Any] = dict(
        found, vendor="", version="", include_dirs=[], library_dirs=[], cxx_library_dirs=[], launcher_vendor="",
        launcher_version="", launcher_complaint="", header=False, complaint="")
    if not found["cc"]:
        return facts
    source = os.path.join(directory, "mpi_probe.c")
    with open(source, "w", encoding="ascii") as stream:
        stream.write(HEADER_PROBE)
    header = run([*shlex.split(found["cc"]), "-E", source], timeout, directory)
    facts.update(header=header.ok, complaint="" if header.ok else header.complaint)
    facts["vendor"], facts["version"] = parse_header(header.output)
    show = parse_show(run([*shlex.split(found["cc"]), "-show"], timeout, directory).output)
    facts.update(include_dirs=show["include_dirs"], library_dirs=show["library_dirs"])
    if found["cxx"]:
        cxx = run([*shlex.split(found["cxx"]), "-show"], timeout, directory)
        facts["cxx_library_dirs"] = parse_show(cxx.output)["library_dirs"]
    if found["launcher"]:
        said = run([found["launcher"], "--version"], timeout, directory)
        facts["launcher_vendor"], facts["launcher_version"] = parse_launcher(said.output + said.errors)
        if not facts["vendor"] and os.path.dirname(found["launcher"]) == found["bin"]:
            facts.update(vendor=facts["launcher_vendor"], version=facts["launcher_version"])
        if start:
            facts["launcher_complaint"] = _start_complaint(found["launcher"], directory, timeout)
    return facts


def _start_complaint(launcher: str, directory: str, timeout: float) -> str:
    """Tell why a launcher does not start a process on this machine, in one line; empty where it does."""
    trial = run([launcher, "-n", "1", "true"], max(timeout, START_SECONDS), directory)
    # Open MPI frames its explanations in lines of dashes.
    told = [line.strip() for line in (trial.errors + trial.output).splitlines() if line.strip().strip("-")]
    return "" if trial.ok else " ".join(told[:4])[:300] or trial.complaint

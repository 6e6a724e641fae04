# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect everything that a release fetches, and for which part of it."""

from __future__ import annotations

import sys
from typing import Any, Iterator, Mapping, NamedTuple

from ..core.errors import StackError
from ..core.interpreter import glibc, outside
from ..definition import bundles, container, packages
from ..definition.base import CONDA
from ..definition.nccl_compatibility import repository_name
from . import markers
from .wheel_tags import Interpreter

FILE, ARCHIVE, TREE = "file", "archive", "tree"
WHEEL, SOURCE, ANY = "wheel", "source", "any"
STEP = "read the release file"


class Need(NamedTuple):
    """One file or source that a release fetches."""

    kind: str
    """``file`` of an index, ``archive`` by its address, ``tree`` of a git commit"""
    name: str
    version: str
    who: str
    """the key of the release file that asks for it"""
    hashes: tuple[str, ...] = ()
    """sha256 of the files that will do"""
    form: str = ANY
    """``wheel``, ``source``, or ``any``"""
    place: str = ""
    """another index or directory than those of pip's configuration"""
    url: str = ""
    """of an archive or a repository"""
    commit: str = ""
    for_machine: bool = False
    """whether the machine's own Python takes it, and not that of a conda base"""

    @property
    def described(self) -> str:
        """Name it as part of a sentence."""
        return ("%s %s" % (self.name, self.version)).rstrip()


class Choice(NamedTuple):
    """Needs of which the first will do, or else all others; ``last`` only after the file of a CUDA build."""

    first: Need | None
    otherwise: tuple[Need, ...]
    last: tuple[Need, ...]


class Needs(NamedTuple):
    """All that a release fetches."""

    plain: tuple[Need, ...]
    pytorch: Choice | None
    problems: tuple[str, ...]
    """Why some of it cannot come from a mirror, in sentences."""


def machine_interpreter(python: str, timeout: float, remedy: str, changed: Mapping[str, Any]) -> Interpreter:
    """Ask the machine's interpreter which wheels fit it, with facts of another one that are ``changed``.

    An empty ``python`` is the one that runs this. Raises StackError: it does not answer.
    """
    facts = outside(python or sys.executable, timeout)
    if facts["problem"] or "platform" not in facts:
        raise StackError(
            "The Python %s does not answer: %s." % (facts["command"], facts["problem"] or "it is too old"),
            "look at the interpreter", remedy)
    facts.update((key, value) for key, value in changed.items() if value)
    version = str(facts["version"])
    tag = "cp%s%s" % tuple(version.split(".")[:2]) if changed.get("version") else str(facts["abi_tag"])
    return Interpreter(
        version, str(facts["implementation"]), tag, str(facts["platform"]), str(facts.get("glibc") or glibc()))


def cpu_hashes(cpu: Mapping[str, Any], tag: str) -> tuple[str, ...]:
    """Return the sha256 of PyTorch's CPU wheels for an interpreter: one, or one for each kind of machine."""
    known = (cpu.get("hashes") or {}).get(tag) or []
    return tuple(str(one).rpartition(":")[2] for one in ([known] if isinstance(known, str) else known))


def base_interpreter(definition: Mapping[str, Any], machine: Interpreter) -> Interpreter:
    """Return the interpreter of a release: the machine's, or that of its conda base or image, there or not yet."""
    base = definition.get("base") or {}
    if base.get("kind") not in (CONDA, container.KIND):
        return machine
    tag = "cp" + str(base["python"]).replace(".", "")
    return machine._replace(version=str(base["python"]) + ".0", implementation="cpython", abi_tag=tag)


def needs_of(definition: Mapping[str, Any], machine: Interpreter, mpi_wheel: bool) -> Needs:
    """Tell what a release fetches, but for the packages of a conda base. Raises StackError: a lock cannot be read."""
    asked = _Asked(definition, base_interpreter(definition, machine))
    plain: list[Need] = []
    for name in sorted(asked.section("locks")):
        if name == CONDA:
            plain += [need._replace(for_machine=True) for need in _Asked(definition, machine).lock("locks.conda")]
        else:
            plain += asked.lock("locks.%s" % name)
    if mpi_wheel:
        plain += asked.lock("mpi.lock")
    for component in ("mpi4py", "horovod"):
        section = asked.section(component)
        if section.get("sha256"):
            plain.append(Need(FILE, component, str(section["version"]), component, (str(section["sha256"]),), SOURCE))
    venv = asked.section("base").get("venv") or {}
    plain += asked.locked(str(venv.get("lock") or ""), "base.venv.lock", ANY, "")
    plain += asked.repositories()
    for bundle in bundles.entries(definition):
        plain += asked.locked(str(bundle.get("lock") or ""), "bundle %s" % bundle["name"], WHEEL, "")
    problems: list[str] = []
    for entry in packages.planned_packages(list(definition.get("packages") or [])):
        plain += asked.package(entry)
        if entry["build_isolation"]:
            problems.append(
                "Package '%s' has build_isolation, and nothing says which packages pip makes that of; give it "
                "build_requires instead." % entry["name"])
    return Needs(tuple(_without_repetitions(plain)), asked.pytorch(), tuple(problems))


def _without_repetitions(needs: list[Need]) -> Iterator[Need]:
    """Return the needs without repetitions; of one that several ask for, all of them are named."""
    merged: dict[Need, list[str]] = {}
    for need in needs:
        merged.setdefault(need._replace(who=""), []).append(need.who)
    for need, who in merged.items():
        yield need._replace(who=" and ".join(dict.fromkeys(who)))


class _Asked:
    """A release file, asked for what it fetches."""

    def __init__(self, definition: Mapping[str, Any], interpreter: Interpreter) -> None:
        self.definition = definition
        self.interpreter = interpreter
        self.variables = markers.environment(interpreter.version, interpreter.implementation, interpreter.platform)

    def section(self, name: str) -> Mapping[str, Any]:
        found = self.definition.get(name)
        return found if isinstance(found, dict) else {}

    def lock(self, key: str) -> list[Need]:
        """Return the needs of a lock by its key, such as ``locks.base``."""
        section, _dot, name = key.partition(".")
        return self.locked(str(self.section(section).get(name) or ""), key, ANY, "")

    def locked(self, text: str, who: str, form: str, index: str) -> list[Need]:
        """Return the needs of a lock, those of other interpreters left out."""
        try:
            return [
                Need(FILE, one.name, one.version, who, one.hashes, form, index)
                for one in packages.requirements(text) if markers.applies(one.marker, self.variables)]
        except ValueError as error:
            raise StackError("In %s, %s." % (who, error), STEP, "Correct it.") from error

    def pytorch(self) -> Choice | None:
        """Return the needs of PyTorch: the CPU build where one is known for the interpreter, else the lock's wheel."""
        section = self.section("pytorch")
        if not section.get("lock"):
            return None
        cpu = section.get("cpu") or {}
        known = cpu_hashes(cpu, _tag(self.interpreter))
        first = None
        if known:
            first = Need(
                FILE, "torch", "%s+cpu" % section["version"], "pytorch.cpu", known, WHEEL, str(cpu.get("index") or ""))
        wheel = self.locked(str(section["lock"]), "pytorch.lock", ANY, str(section.get("index") or ""))
        return Choice(first, tuple(wheel), tuple(self.lock("pytorch.cuda_lock")))

    def repositories(self) -> list[Need]:
        """Return the git commits that components are built from."""
        nccl, pytorch = self.section("nccl"), self.section("pytorch")
        plugin, tests = nccl.get("plugin") or {}, nccl.get("tests") or {}
        found = []
        for who, source, versioned in (
            ("nccl", nccl, nccl), ("nccl.plugin", plugin, plugin), ("nccl.tests", tests, {}),
            ("pytorch.source", pytorch.get("source") or {}, pytorch),
            ("pytorch.mpi_backend", pytorch.get("mpi_backend") or {}, pytorch),
        ):
            if source.get("repository") and source.get("commit"):
                address = str(source["repository"])
                version = str(versioned.get("version") or source.get("tag") or "")
                found.append(Need(
                    TREE, repository_name(address), version, who, url=address, commit=str(source["commit"])))
        return found

    def package(self, entry: dict[str, Any]) -> list[Need]:
        """Return the needs of one planned entry of ``packages``."""
        who = "package %s" % entry["name"]
        found: list[Need] = []
        if "lock" in entry:
            found += self.locked(entry["lock"], who, SOURCE if entry["kind"] == "archive" else WHEEL, entry["index"])
        elif "archive" in entry:
            found.append(Need(
                ARCHIVE, entry["name"], str(entry["version"]), who, (str(entry["sha256"]),), url=entry["archive"]))
        elif "repository" in entry:
            found.append(Need(
                TREE, entry["name"], str(entry["version"]), who, url=entry["repository"], commit=entry["commit"]))
        for key in ("requires", "build_requires"):
            found += self.locked(entry[key], "%s (%s)" % (who, key), WHEEL, entry["index"])
        return found


def _tag(interpreter: Interpreter) -> str:
    return "cp%s%s" % tuple(interpreter.version.split(".")[:2])

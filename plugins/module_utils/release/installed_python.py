# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List the Python distributions and conda packages of a release, from installers' metadata.

https://packaging.python.org/en/latest/specifications/core-metadata/ and .../recording-installed-packages/
"""

from __future__ import annotations

import email.parser
import glob
import os
import platform
from typing import Any, Iterable, Iterator, Mapping

from ..conda.prefix import META
from ..core.files import regular_file
from ..core.lenient_json import mapping, mappings, sequence, text, texts
from ..core.redaction import without_credentials
from ..definition import markers
from ..definition.packages import canonical, planned_packages
from . import suppliers
from .installed_needs import needs
from .installed_records import read_record, unreadable_error
from .installed_wheels import Wheels

BASE = "base"
PLACES = ("base/lib*/python*/*-packages",)
"""Where a base has its distributions."""
CONTAINER_PLACES = ("base/**/lib/python*/site-packages", "easybuild/software/**/lib/python*/site-packages")
"""Where the virtual environment on top of an image has them."""
METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}
MAX_LICENCE_NAME = 120
"""Characters from which what stands for a licence is its text, and not its name."""
MEANINGLESS = ("", "UNKNOWN")


def distributions(prefix: str, resolved: Mapping[str, Any], owners: Mapping[str, str]) -> list[dict[str, Any]]:
    """List the distributions, sorted by name; ``owners`` has conda packages by directories of what they brought."""
    built, wheels = built_names(mapping(resolved.get("definition"))), Wheels(prefix)
    found = [_distribution(prefix, place, owners.get(place, ""), built, wheels) for place in _places(prefix, resolved)]
    minor = text(mapping(resolved.get("base")).get("minor"))
    variables = markers.environment(minor + ".0", "cpython", "linux_" + platform.machine())
    needed = needs({canonical(one["name"]): one.pop("requires") for one in found}, variables)
    for one in found:
        one["needs"] = needed[canonical(one["name"])]
    return sorted(found, key=lambda one: (canonical(one["name"]), one["version"], one["place"]))


def built_names(definition: Mapping[str, Any]) -> set[str]:
    """Return canonical names of the distributions that a release file asks to be built from source."""
    names = {name for name in ("mpi4py", "horovod") if name in definition}
    if "source" in mapping(definition.get("pytorch")):
        names.add("torch")
    entries = [entry for entry in mappings(definition.get("packages")) if text(entry.get("name"))]
    return names | {entry["key"] for entry in planned_packages(entries) if entry["kind"] != "wheel"}


def _places(prefix: str, resolved: Mapping[str, Any]) -> Iterator[str]:
    """Find the directories of metadata, relative to the release."""
    container = mapping(resolved.get("base")).get("kind") == "container"
    seen = set()
    for pattern in PLACES + (CONTAINER_PLACES if container else ()):
        for directory in sorted(glob.glob(os.path.join(glob.escape(prefix), pattern), recursive=True)):
            own = os.path.realpath(directory)
            # lib64 is often a link to lib.
            if own in seen or not os.path.isdir(own):
                continue
            seen.add(own)
            try:
                names = sorted(os.listdir(directory))
            except OSError as error:
                raise unreadable_error(directory, error) from error
            for name in names:
                if os.path.splitext(name)[1] in METADATA:
                    yield os.path.relpath(os.path.join(directory, name), prefix)


def _distribution(prefix: str, place: str, owner: str, built: set[str], wheels: Wheels) -> dict[str, Any]:
    path = os.path.join(prefix, place)
    metadata = _metadata(path)
    stem = os.path.splitext(os.path.basename(place))[0].split("-")
    name = text(metadata.get("Name")) or stem[0]
    version = text(metadata.get("Version")) or (stem[1] if len(stem) > 1 else "")
    found = {
        "name": name, "version": version,
        "licence": _licence(metadata), "place": place, "supplier": suppliers.of_metadata(metadata),
        "requires": _every(metadata, "Requires-Dist"),
        "source": "conda" if owner else "built" if canonical(name) in built else "wheel",
    }
    if owner:
        found["conda_package"] = owner
    archive = mapping(mapping(read_record(os.path.join(path, "direct_url.json"))).get("archive_info"))
    digest = text(mapping(archive.get("hashes")).get("sha256")) or text(archive.get("hash")).partition("sha256=")[2]
    if digest:
        found["sha256"] = digest
    tags = _every(_metadata(path, "WHEEL"), "Tag")
    wheel = None if owner else wheels.find(name, version, tags, digest)
    if wheel is not None:
        found.update(file=wheel.file, sha256=wheel.sha256)
    return found


def _metadata(path: str, name: str = "") -> Any:
    """Read a file of a distribution, by default its metadata; an egg's may be the path itself."""
    file = os.path.join(path, name or METADATA[os.path.splitext(path)[1]]) if name or os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8", errors="replace", opener=regular_file) as stream:
            return email.parser.HeaderParser().parse(stream)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise unreadable_error(file, error) from error


def _licence(metadata: Any) -> str:
    """Return the licence in as few words as there are: expression, field, else the classifiers."""
    expression = text(metadata.get("License-Expression")).strip()
    if expression:
        return expression
    field = text(metadata.get("License")).strip()
    if field not in MEANINGLESS and "\n" not in field and len(field) <= MAX_LICENCE_NAME:
        return field
    classifiers = _every(metadata, "Classifier")
    named = [value.rpartition(" :: ")[2] for value in classifiers if value.startswith("License :: ")]
    return ", ".join(sorted(set(named) - {"OSI Approved"}))


def _every(metadata: Any, field: str) -> list[str]:
    """Return all values of a field that may be there several times."""
    return [text(value) for value in (metadata.get_all(field) if hasattr(metadata, "get_all") else None) or ()]


def conda_packages(prefix: str) -> list[dict[str, Any]]:
    """List a conda base's packages as :func:`installed.installed` does, with ``files`` relative to the release."""
    pattern = os.path.join(glob.escape(os.path.join(prefix, BASE, META)), "*.json")
    found = [_conda_package(mapping(read_record(path))) for path in sorted(glob.glob(pattern))]
    return sorted((one for one in found if one["name"]), key=lambda one: (one["name"], one["version"], one["build"]))


def _conda_package(record: Mapping[str, Any]) -> dict[str, Any]:
    paths = [text(mapping(entry).get("_path")) for entry in sequence(mapping(record.get("paths_data")).get("paths"))]
    return {
        "name": text(record.get("name")), "version": text(record.get("version")), "build": text(record.get("build")),
        "channel": without_credentials(text(record.get("channel")).rstrip("/")), "subdir": text(record.get("subdir")),
        "url": without_credentials(text(record.get("url"))), "licence": text(record.get("license")),
        "sha256": text(record.get("sha256")),
        "needs": [line.split()[0] for line in texts(record.get("depends")) if line.split()],
        "files": [os.path.join(BASE, path) for path in paths or map(text, sequence(record.get("files")))],
    }


def conda_owners(found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Map a distribution's directory to the name of the conda package that brought it."""
    return {
        os.path.dirname(path): one["name"]
        for one in found for path in one["files"]
        if path.endswith((".dist-info/METADATA", ".egg-info/PKG-INFO"))}

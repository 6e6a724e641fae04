# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The Python distributions of a release, from the metadata that installers leave beside them.

https://packaging.python.org/en/latest/specifications/core-metadata/ and .../recording-installed-packages/
"""

from __future__ import annotations

import email.parser
import glob
import os
from typing import Any, Iterator, Mapping

from ..core.lenient_json import mapping, mappings, text
from ..definition.packages import canonical, planned_packages
from .installed_records import read_record, unreadable

PLACES = ("base/lib*/python*/*-packages",)
"""Where a base has its distributions."""
OF_A_CONTAINER = ("base/**/lib/python*/site-packages", "easybuild/software/**/lib/python*/site-packages")
"""Where the virtual environment on top of an image has them."""
METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}
LONGEST = 120
"""Characters from which what stands for a licence is its text, and not its name."""
SAYS_NOTHING = ("", "UNKNOWN")


def distributions(prefix: str, resolved: Mapping[str, Any], owners: Mapping[str, str]) -> list[dict[str, Any]]:
    """The distributions, sorted by name.

    Args:
        prefix: the release's directory.
        resolved: its resolved release file.
        owners: the conda package that brought a distribution, by its directory.

    Raises:
        StackError: metadata cannot be read.
    """
    built = built_names(mapping(resolved.get("definition")))
    found = [_distribution(prefix, place, owners.get(place, ""), built) for place in _places(prefix, resolved)]
    return sorted(found, key=lambda one: (canonical(one["name"]), one["version"], one["place"]))


def built_names(definition: Mapping[str, Any]) -> set[str]:
    """Canonical names of the distributions that a release file asks to be built from source."""
    names = {name for name in ("mpi4py", "horovod") if name in definition}
    if "source" in mapping(definition.get("pytorch")):
        names.add("torch")
    entries = [entry for entry in mappings(definition.get("packages")) if text(entry.get("name"))]
    return names | {entry["key"] for entry in planned_packages(entries) if entry["kind"] != "wheel"}


def _places(prefix: str, resolved: Mapping[str, Any]) -> Iterator[str]:
    """The directories of metadata, relative to the release."""
    container = mapping(resolved.get("base")).get("kind") == "container"
    seen = set()
    for pattern in PLACES + (OF_A_CONTAINER if container else ()):
        for directory in sorted(glob.glob(os.path.join(glob.escape(prefix), pattern), recursive=True)):
            own = os.path.realpath(directory)
            # lib64 is often a link to lib.
            if own in seen or not os.path.isdir(own):
                continue
            seen.add(own)
            try:
                names = sorted(os.listdir(directory))
            except OSError as error:
                raise unreadable(directory, error) from error
            for name in names:
                if os.path.splitext(name)[1] in METADATA:
                    yield os.path.relpath(os.path.join(directory, name), prefix)


def _distribution(prefix: str, place: str, owner: str, built: set[str]) -> dict[str, Any]:
    path = os.path.join(prefix, place)
    said = _metadata(path)
    stem = os.path.splitext(os.path.basename(place))[0].split("-")
    name = text(said.get("Name")) or stem[0]
    found = {
        "name": name, "version": text(said.get("Version")) or (stem[1] if len(stem) > 1 else ""),
        "licence": _licence(said), "place": place,
        "source": "conda" if owner else "built" if canonical(name) in built else "wheel",
    }
    if owner:
        found["conda_package"] = owner
    archive = mapping(mapping(read_record(os.path.join(path, "direct_url.json"))).get("archive_info"))
    digest = text(mapping(archive.get("hashes")).get("sha256")) or text(archive.get("hash")).partition("sha256=")[2]
    if digest:
        found["sha256"] = digest
    return found


def _metadata(path: str) -> Any:
    file = os.path.join(path, METADATA[os.path.splitext(path)[1]]) if os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return email.parser.HeaderParser().parse(stream)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(file, error) from error


def _licence(said: Any) -> str:
    """The licence in as few words as the metadata has: the expression, the field, else what the classifiers say."""
    expression = text(said.get("License-Expression")).strip()
    if expression:
        return expression
    field = text(said.get("License")).strip()
    if field not in SAYS_NOTHING and "\n" not in field and len(field) <= LONGEST:
        return field
    classifiers = [text(value) for value in (said.get_all("Classifier") if hasattr(said, "get_all") else None) or ()]
    named = [value.rpartition(" :: ")[2] for value in classifiers if value.startswith("License :: ")]
    return ", ".join(sorted(set(named) - {"OSI Approved"}))

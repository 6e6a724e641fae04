# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List what is installed in a release, as its files and the records of its build say, wherever it lies."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Iterator, Mapping

from ..core.canonical import digest_of
from ..core.files import regular_file
from ..core.lenient_json import mapping, mappings, text, texts
from ..core.redaction import without_credentials
from ..definition import site_files
from . import (
    installed_components,
    installed_libraries,
    installed_parts,
    installed_python,
)
from .installed_records import Places, read_build, unreadable_error


def installed(prefix: str, release_yml: Mapping[str, Any]) -> dict[str, Any]:
    """List what is installed in a release.

    Args:
        release_yml: its resolved release file, ``.torchstack/release.yml``, as a mapping.

    Returns:
        * ``release``: ``name``, ``site``, ``title``, ``digest``
        * ``python``: per distribution ``name``, ``version``, ``licence``, ``place`` (directory, relative to the
          release), ``source`` (``conda``, ``built`` or ``wheel``), ``supplier``, ``needs`` (canonical names of other
          distributions here), where they are known ``file`` and ``sha256`` of its wheel and ``conda_package``, which
          brought it
        * ``conda``: per package ``name``, ``version``, ``build``, ``channel``, ``subdir``, ``url``, ``licence``,
          ``sha256``, ``needs`` (names)
        * ``components``: per part of the release file ``key``, ``name``, ``version``, ``kind`` (``git``, ``archive``,
          ``wheel``, ``image`` or ``site``), ``patches`` (``file``, ``sha256``) and ``flags`` (the environment of its
          build); where they are known also ``commit``, ``tag``, ``url``, ``sha256``, ``series`` and ``place``
        * ``parts``: what a PyTorch from source has of others, see :func:`.installed_parts.parts`
        * ``files``: per file of the site's own ``name`` (its path in the release file), ``place`` (relative to the
          release), ``sha256`` (of what is there) and ``source``, which two releases have in common where the site gave
          the same file, whatever the words in braces stand for
        * ``base``: ``kind``, ``python``, and of a container ``image``
        * ``runtime``: ``setenv``, ``prepend``, ``append`` and ``depends_on`` of the modulefile
        * ``libraries``: what software compiled against the release depends on: ``python`` (as 3.11), versions of
          ``torch``, ``numpy``, ``nccl``, ``mpi`` and ``cuda``, the sonames of ``libmpi``, ``libnccl``, ``libcudart``,
          ``libcudnn`` and ``libstdc++`` that its objects need, and the highest ``GLIBCXX`` and ``GLIBC`` that they
          need

        Lists are sorted by name. Places below the release, its tools and its root are written ``{prefix}``,
        ``{tools}`` and ``{root}``. Credentials in addresses are left out.

    Raises:
        StackError: a file of the release cannot be read.
    """
    resolved = mapping(release_yml)
    places = Places.of(prefix, resolved)
    build = read_build(prefix)
    conda = installed_python.conda_packages(prefix)
    python = installed_python.distributions(prefix, resolved, installed_python.conda_owners(conda))
    components = installed_components.components(places, resolved, build, python)
    return {
        "release": {key: text(value) for key, value in (
            ("name", resolved.get("release")), ("site", resolved.get("site")),
            ("title", mapping(resolved.get("definition")).get("title")), ("digest", resolved.get("digest")))},
        "python": python,
        "conda": [{key: value for key, value in one.items() if key != "files"} for one in conda],
        "components": components,
        "parts": installed_parts.parts(build, components),
        "files": list(_files(prefix, resolved, build)),
        "base": _base(resolved, conda),
        "runtime": _runtime(places, mapping(resolved.get("module"))),
        "libraries": installed_libraries.libraries(prefix, resolved, build, python, components),
    }


def _files(prefix: str, resolved: Mapping[str, Any], build: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """List the site's own files that are there, in the order of their names."""
    base = mapping(resolved.get("base"))
    if not text(base.get("site_packages")):
        # A container has no files of the site's.
        return
    written = {text(one.get("path")): texts(one.get("sha256"))
               for one in mappings(mapping(build.get("site_files")).get("files"))}
    for entry in sorted(site_files.entries(resolved.get("definition")), key=lambda entry: str(entry["path"])):
        below = site_files.place_of(entry["path"], base)
        place = os.path.join(installed_python.BASE, below)
        try:
            with open(os.path.join(prefix, place), "rb", opener=regular_file) as stream:
                digest = hashlib.sha256(stream.read()).hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unreadable_error(os.path.join(prefix, place), error) from error
        # Of a file that a hot fix has changed, what was asked for says nothing.
        asked = [entry.get("content"), bool(entry.get("executable")), entry.get("fill") or []]
        source = digest_of(asked) if digest in written.get(below, ()) else digest
        yield {"name": entry["path"], "place": place, "sha256": digest, "source": source}


def _base(resolved: Mapping[str, Any], conda: list[dict[str, Any]]) -> dict[str, Any]:
    base = mapping(resolved.get("base"))
    found: dict[str, Any] = {"kind": text(base.get("kind"))}
    own = next((one["version"] for one in conda if one["name"] == "python"), "")
    machine = mapping(resolved.get("python")).get("version") if base.get("kind") == "python_overlay" else ""
    found["python"] = own or text(machine) or text(base.get("minor"))
    image = mapping(base.get("image"))
    if image:
        found["image"] = {key: text(image.get(key)) for key in ("file", "sha256")}
    return found


def _runtime(places: Places, module: Mapping[str, Any]) -> dict[str, Any]:
    def said(value: object) -> str:
        return without_credentials(places.generic(text(value)))

    return {
        "setenv": {text(name): said(value) for name, value in sorted(mapping(module.get("setenv")).items())},
        **{
            key: {
                text(entry.get("name")): [said(value) for value in texts(entry.get("values"))]
                for entry in sorted(mappings(module.get(key)), key=lambda entry: text(entry.get("name")))}
            for key in ("prepend", "append")},
        "depends_on": texts(module.get("depends_on")) if module.get("depends_on") else [],
    }

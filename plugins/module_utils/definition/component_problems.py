# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find what the components of a release file lack or contradict. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from . import components, left_over, lock_lines
from .component_checks import OF_THE_WHEEL, check_mpi

OF_A_BUILD = {
    "mpi": "the MPI that everything is compiled against", "locks": "everything else that pip installs, with hashes"}
"""Keys that every release needs of which anything is built, and what they are."""

OF_PYTORCHS_BUILD = ("lock", *OF_THE_WHEEL, "source", "mpi_backend")
"""Keys of ``pytorch`` that say where torch comes from."""


def problems(definition: object, source: str = "", places: lock_lines.Places = lock_lines.NOWHERE) -> list[str]:
    """Find everything in the components that contradicts itself or lacks its counterpart, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here. ``places`` has the
    lines of its keys.
    """
    if not isinstance(definition, dict):
        return []
    where = " in %s" % source if source else ""
    if components.in_image(definition):
        return [
            "'%s'%s means nothing to a container, of which only the image has it or does without; remove it." % (
                path, where)
            for path in _not_of_an_image(definition)]
    base = definition.get("base")
    found = [
        "'%s' is missing%s; add it (%s)." % (key, where, meaning)
        for key, meaning in OF_A_BUILD.items() if isinstance(base, dict) and key not in definition]
    for key, check in (("mpi", check_mpi), *((row.key, row.check) for row in components.COMPONENTS)):
        if isinstance(definition.get(key), dict):
            found += ["'%s'%s %s." % (path, where, trouble) for path, trouble in check(definition[key], definition)]
    for key, paths in left_over.left_over(definition).items():
        found.append("There is no '%s'%s, and these still speak of it: %s; remove them, or add it." % (
            key, where, ", ".join(path + places.of_key(path) for path in paths)))
    return found


def _not_of_an_image(definition: Mapping[str, Any]) -> list[str]:
    """List the dotted paths of what a container cannot have: the image has it, or does without."""
    pytorch = definition.get("pytorch")
    built = [row.key for row in components.COMPONENTS if row.optional]
    keys = ("toolchain", "cuda", "mpi", *built, "packages", "bundles", "files", "locks")
    return [key for key in keys if key in definition] + [
        "pytorch.%s" % key for key in (pytorch if isinstance(pytorch, dict) else {}) if key in OF_PYTORCHS_BUILD]

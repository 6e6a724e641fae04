# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what each step of a release brings, with its version, as a plan has it. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.lenient_json import mapping, text
from . import bundles, components, packages

PARTS: dict[str, tuple[str, components.Keys]] = {
    "nccl-plugin": ("NCCL's plugin", ("nccl", "plugin", "version")),
    "nccl-tests": ("NCCL's tests", ("nccl", "tests", "version")),
    "mpi-backend": ("the MPI backend", ("pytorch", "mpi_backend", "version")),
}
"""Parts of a component with a version of their own: how their steps begin, what people call them, where it stands."""


def step_subjects(definition: Mapping[str, Any]) -> dict[str, str]:
    """Map the steps of components, packages and bundles to what they bring, such as ``Horovod 0.28.1``."""
    found = {}
    for row in components.present(definition):
        for step in row.steps:
            part = next((own for begin, own in PARTS.items() if step == begin or step.startswith(begin + "-")), None)
            name, keys = part or (row.name, (row.key, "version"))
            said = _named(name, components.value_at(definition, keys))
            found.update(dict.fromkeys((step, step + "-fetch", step + "-source"), said))
    for entry in bundles.entries(definition, "packages"):
        step = "package-" + packages.canonical(entry["name"])
        said = _named(entry["name"], entry.get("version"))
        found.update(dict.fromkeys((step + "-fetch", step + "-wheel", step), said))
    for entry in bundles.entries(definition):
        step = bundles.STEP + entry["name"]
        count = len(packages.pinned(entry.get("lock")))
        found.update(dict.fromkeys((step + "-fetch", step), "%d package%s" % (count, "" if count == 1 else "s")))
    python = text(mapping(definition.get("base")).get("python"))
    if python:
        found["base"] = "Python %s" % python
    return found


def _named(name: str, version: object) -> str:
    return "%s %s" % (name, version) if isinstance(version, (str, int, float)) and version != "" else name

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe a release's modulefile from base, MPI, run-time settings and release file. Pure."""

from __future__ import annotations

import posixpath
from typing import Any, Mapping, Sequence

from ..conda.request import spec_name
from ..modulefiles import conda_command, description, description_checks, module_ranges
from . import runtime_settings
from .base import CONDA, NAMES
from .toolchain import actions, is_module


def describe(
    base: Mapping[str, Any], mpi: Mapping[str, Any], settings: Sequence[Mapping[str, str]], own: Mapping[str, Any],
    mpi_prefix: str = "", toolchain: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe the modulefile, as the role modulefile takes it.

    Args:
        mpi: as site_preflight found it. Its commands go on PATH where they are its own; wrappers of a programming
            environment, outside of its prefix, come with the site's modules.
        mpi_prefix: the MPI's prefix as the release file has it. Where that is a variable of a module, or nothing while
            there is a toolchain of modules, a module brings the commands to users as well, by ``depends_on``; two
            modules cannot take one directory off PATH again.
    """
    commands = [mpi["bin"]] if mpi["provider"] != "wheel" and _is_below(mpi["bin"], mpi["prefix"]) else []
    of_a_module = mpi_prefix.startswith("${") or (not mpi_prefix and len(toolchain) > 0)
    if of_a_module and own.get("depends_on"):
        commands = []
    search = {name: list(values) for name, values in base["search"].items()}
    search["PATH"] = search.get("PATH", []) + commands
    for entry in own.get("prepend") or []:
        known = search.setdefault(entry["name"], [])
        known += [value for value in entry["values"] if value not in known]
    external = [*base.get("external", []), *commands, *(own.get("external") or [])]
    found: dict[str, Any] = {
        "external": list(dict.fromkeys(external)),
        "prepend": [{"name": name, "values": values} for name, values in search.items()],
        "setenv": {**base["setenv"], **runtime_settings.setenv(settings), **(own.get("setenv") or {})},
    }
    if base.get("first_file"):
        found["first_file"] = base["first_file"]
    reasons = {setting["name"]: setting["reason"] for setting in settings}
    reasons.update(own.get("reasons") or {})
    if reasons:
        found["reasons"] = reasons
    found.update({key: value for key, value in own.items() if key not in found})
    return found


def problems(own: Mapping[str, Any], settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Find what of ``module`` in a release file contradicts its run-time settings."""
    twice = [setting["name"] for setting in settings if setting["name"] in (own.get("setenv") or {})]
    return ["module.setenv and the run-time settings both set %s; keep it in one of them." % name for name in twice]


def conda_problems(definition: object, source: str = "") -> list[str]:
    """Find why the module cannot define conda for the shell, as far as a release file's data, as written, tells it."""
    own, base = (definition.get(key) if isinstance(definition, Mapping) else None for key in ("module", "base"))
    if not isinstance(own, Mapping) or own.get(conda_command.KEY) is not True or not isinstance(base, Mapping):
        return []
    where = "'module.%s'%s" % (conda_command.KEY, " in %s" % source if source else "")
    if base.get("kind") != CONDA:
        return ["%s is true, and %s has no conda of its own; remove the key." % (
            where, NAMES.get(str(base.get("kind")), "the base"))]
    specs = [spec for key in ("specs", "optional_specs") for spec in base.get(key) or [] if isinstance(spec, str)]
    if base.get("specs") and "conda" not in set(map(spec_name, specs)):
        return ["%s is true, and base.specs has no conda; add it there, or remove the key." % where]
    return []


def rendering_problems(definition: Mapping[str, Any], settings: Sequence[Mapping[str, str]], root: str) -> list[str]:
    """Find why a modulefile could not be rendered, as far as that is known before the machine is looked at.

    Args:
        definition: a resolved release file. What has ``${`` in it is left out: modules may set it.
        settings: the run-time settings of the release.
        root: the directory of the releases.
    """
    own: dict[str, Any] = dict(definition.get("module") or {})
    for key in ("prepend", "append"):
        own[key] = [dict(entry, values=[value for value in entry["values"] if "${" not in value])
                    for entry in own.get(key) or []]
    own["setenv"] = {name: value for name, value in (own.get("setenv") or {}).items() if "${" not in str(value)}
    wheel = {"provider": "wheel", "bin": "", "prefix": ""}
    described = describe({"search": {}, "setenv": {}}, wheel, settings, own)
    # Of a root that is none, the look at the machine tells what is wrong.
    prefix = "/" + posixpath.normpath("%s/%s" % (root, definition["release"])).lstrip("/")
    raw = {"name": "torchstack", "version": definition["release"], "prefix": prefix, **described}
    faults = conda_command.faults(raw) or description_checks.find_faults(description.normalise(raw))
    return ["'module': %s" % fault for fault in faults]


def family_problems(definition: object, source: str = "") -> list[str]:
    """Find a family that is the name of a module which is loaded along: Environment Modules take it for a conflict.

    Args:
        definition: a release file's data, as written.
        source: the file that the sentences name.
    """
    parts = [definition.get(key) if isinstance(definition, Mapping) else None for key in ("module", "toolchain")]
    own, toolchain = (part if isinstance(part, Mapping) else {} for part in parts)
    family, where = own.get("family"), " in %s" % source if source else ""
    listed = [(key, part.get(name)) for key, part, name in (
        ("module.depends_on", own, "depends_on"), ("toolchain.modules", toolchain, "modules"))]
    return [
        "'module.family'%s is %s, and %s has %s: Environment Modules load no two modules of which one has the other's "
        "name as its family; give the family another name, or remove the key." % (where, family, key, name)
        for key, names in listed for name in actions(names)
        if isinstance(family, str) and family and is_module(module_ranges.name_of(name), family)
    ][:1]


def _is_below(directory: str, prefix: str) -> bool:
    return bool(prefix) and (directory + "/").startswith(prefix.rstrip("/") + "/")

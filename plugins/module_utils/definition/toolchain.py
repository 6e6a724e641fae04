# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Derive what steps are compiled in: modules, variables and compilers. Pure.

What a release file says of it is part of what is asked for. How the site defines the command ``module``, and where its
modulefiles are, is the site's, and may change under a release that is frozen.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Iterable, Mapping, Sequence

from . import bundles, components
from .packages import texts

FORMS = (
    "an entry is a module to load, '-name' for one to unload, or {swap: [name, other]} for one to load in place of "
    "another")
STEP_KEYS = ("modules", "without", "environment", "unset", "compilers")
"""What may differ for one step."""

_STEP = re.compile(r"[a-z0-9_][a-z0-9._-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def problems(definition: object, source: str = "") -> list[str]:
    """Find everything in ``toolchain`` that cannot be used, as one sentence each.

    Types and unknown keys are the schema's matter, except below ``steps``, whose keys are names of steps.
    """
    toolchain = definition.get("toolchain") if isinstance(definition, dict) else None
    if not isinstance(toolchain, dict):
        return []
    where = " in %s" % source if source else ""
    found = list(_part_problems(toolchain, "toolchain", where))
    modules = actions(toolchain.get("modules"))
    steps = toolchain.get("steps")
    for name, own in (steps.items() if isinstance(steps, dict) else ()):
        path = "toolchain.steps.%s" % name
        if not isinstance(name, str) or not _STEP.match(name):
            found.append("'toolchain.steps'%s has the key %r, which is not the name of a step." % (where, name))
        elif not isinstance(own, dict):
            found.append("'%s'%s must be a mapping of keys to values." % (path, where))
        else:
            found += _step_problems(own, path, where, modules)
    return found


def _step_problems(own: Mapping[str, Any], path: str, where: str, modules: Sequence[str]) -> Iterable[str]:
    for key in own:
        if key not in STEP_KEYS:
            yield "Unknown key '%s.%s'%s; known here: %s." % (path, key, where, ", ".join(STEP_KEYS))
    if not isinstance(own.get("modules", []), list):
        yield "'%s.modules'%s must be a list; %s." % (path, where, FORMS)
    for key in ("without", "unset"):
        value = own.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            yield "'%s.%s'%s must be a list of texts." % (path, key, where)
    for key in ("environment", "compilers"):
        if not isinstance(own.get(key, {}), dict):
            yield "'%s.%s'%s must be a mapping of variables to texts." % (path, key, where)
    yield from _part_problems(own, path, where)
    listed = actions(own.get("modules")) if "modules" in own else modules
    for name in texts(own.get("without")):
        if not any(is_module(module, name) for module in listed):
            yield "'%s.without'%s has '%s', which is none of the modules of that step; remove it." % (path, where, name)


def _part_problems(part: Mapping[str, Any], path: str, where: str) -> Iterable[str]:
    """Find what is wrong with the variables, modules and compilers of one level."""
    for key in ("environment", "compilers"):
        variables = part.get(key)
        for name, value in (variables.items() if isinstance(variables, dict) else ()):
            if not isinstance(name, str) or not _VARIABLE.match(name):
                yield "'%s.%s'%s has the key %r, which is not the name of a variable." % (path, key, where, name)
            elif isinstance(value, bool) or not isinstance(value, (str, int)):
                yield "'%s.%s.%s'%s is no text; put it in quotes." % (path, key, name, where)
            elif key == "compilers" and name != name.upper():
                yield "'%s.compilers'%s has %s, which no build reads; did you mean %s?" % (
                    path, where, name, name.upper())
            elif key == "compilers" and not str(value).strip():
                yield "'%s.compilers.%s'%s is empty; name the compiler, or remove the key." % (path, name, where)
    for name in texts(part.get("unset")):
        if not _VARIABLE.match(name):
            yield "'%s.unset'%s has %r, which is not the name of a variable." % (path, where, name)
    modules = part.get("modules")
    for number, entry in enumerate(modules if isinstance(modules, list) else []):
        names = [entry[1:] if entry.startswith("-") else entry] if isinstance(entry, str) else _swapped(entry)
        for name in names:
            if not name or name.startswith("-") or name.split() != [name]:
                yield "'%s.modules'%s has %r, which is not the name of a module." % (path, where, name)
        if not names:
            yield "'%s.modules[%d]'%s is %r; %s." % (path, number, where, entry, FORMS)
    setup = part.get("setup")
    if isinstance(setup, str) and "\0" in setup:
        yield "'%s.setup'%s holds a NUL character, which no shell reads." % (path, where)


def _swapped(entry: object) -> list[str]:
    """Return both names of an entry ``{swap: [name, other]}``; nothing of what is none."""
    pair = entry.get("swap") if isinstance(entry, Mapping) and len(entry) == 1 else None
    return list(pair) if isinstance(pair, list) and len(pair) == 2 and texts(pair) == pair else []


def actions(entries: object) -> list[str]:
    """Return what is done with modules, in order: names to load, and those to unload behind a dash.

    To load one in place of another is to unload that one first.
    """
    found: list[str] = []
    for entry in entries if isinstance(entries, list) else []:
        pair = _swapped(entry)
        found += ["-" + pair[0], pair[1]] if pair else [entry] if isinstance(entry, str) else []
    return found


def is_module(module: str, name: str) -> bool:
    """Tell whether a module is the one of that name, which may leave its version out."""
    return module == name or module.startswith(name.rstrip("/") + "/")


def describe(
    definition: Mapping[str, Any], module_init: str = "", module_path: Sequence[str] = (), module_system: str = "auto"
) -> dict[str, Any]:
    """Describe the toolchain of a release in full, as ``release_context`` carries it; empty for nothing to say."""
    toolchain = definition.get("toolchain") or {}
    return {
        "modules": actions(toolchain.get("modules")),
        "setup": str(toolchain.get("setup") or ""),
        "environment": dict(toolchain.get("environment") or {}),
        "unset": list(toolchain.get("unset") or []),
        "compilers": dict(toolchain.get("compilers") or {}),
        "steps": {
            name: {**own, "modules": actions(own["modules"])} if "modules" in own else dict(own)
            for name, own in (toolchain.get("steps") or {}).items()},
        "module_init": defining_modules(module_init, module_path),
        "module_system": module_system,
    }


def defining_modules(module_init: str, module_path: Sequence[str] = ()) -> str:
    """Write what defines ``module`` and finds modulefiles; the first of ``module_path`` is searched first.

    ``module_init`` is a file's absolute path, shell text, or empty for the rollout's own ``module``.
    """
    if not module_path:
        return module_init
    is_file = module_init.startswith("/") and "\n" not in module_init
    lines = [". " + shlex.quote(module_init) if is_file else module_init] if module_init else []
    # Each one is put before those that are there already.
    lines += ["module use " + shlex.quote(directory) for directory in reversed(list(module_path))]
    return "\n".join(lines)


def step_toolchain(context: Mapping[str, Any], step: str) -> dict[str, Any]:
    """Derive what one step is run in; ``module_init`` is empty without modules and without ``setup``."""
    toolchain = context.get("toolchain") or {}
    own = (toolchain.get("steps") or {}).get(step) or {}
    without = own.get("without") or []
    modules = [
        module for module in (own["modules"] if "modules" in own else toolchain.get("modules") or [])
        if not any(is_module(module, name) for name in without)]
    return {
        "modules": modules,
        "module_init": (toolchain.get("module_init") or "") if modules or toolchain.get("setup") else "",
        "setup": toolchain.get("setup") or "",
        "environment": {**(toolchain.get("environment") or {}), **(own.get("environment") or {})},
        "unset": list(dict.fromkeys([*(toolchain.get("unset") or []), *(own.get("unset") or [])])),
        "compilers": {**(toolchain.get("compilers") or {}), **(own.get("compilers") or {})},
    }


def typed_compilers(compilers: Sequence[Mapping[str, Any]], toolchain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the compilers of site_preflight, as the site names them, those of the toolchain as typed there."""
    typed = toolchain["compilers"]
    return [
        dict(compiler, command=str(typed[compiler["name"]])) if compiler["name"] in typed else dict(compiler)
        for compiler in compilers]


def step_lists(toolchain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the modules of single steps that are not those of all steps, each list once."""
    seen = [toolchain["modules"]]
    found = []
    for step in toolchain["steps"]:
        modules = step_toolchain({"toolchain": toolchain}, step)["modules"]
        if modules and modules not in seen:
            seen.append(modules)
            found.append({"step": step, "modules": modules})
    return found


def unknown_steps(definition: Mapping[str, Any]) -> list[str]:
    """Find the steps that a toolchain speaks of and that the release does not have."""
    named = (definition.get("toolchain") or {}).get("steps") or {}
    known = {step for row in components.COMPONENTS if row.key in definition for step in row.steps}
    known |= bundles.steps(definition)
    return [name for name in named if name not in known]


def set_by_modules(purged: Mapping[str, Any], loaded: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that modules set, from answers of module_environment after a purge and after loading.

    Modules that stay (Lmod calls them sticky) leave their variables unchanged, and then all variables count.
    """
    if purged.get("loaded"):
        return {**loaded["environment"], **loaded["set"]}
    return dict(loaded["set"])


def task_environment(purged: Mapping[str, Any], loaded: Mapping[str, Any]) -> dict[str, str]:
    """Compose the ``environment`` of a task of both answers; what is unset becomes empty."""
    changes: dict[str, str] = {}
    for answer in (purged, loaded):
        changes.update(dict.fromkeys(answer["unset"], ""))
        changes.update(answer["set"])
    return {name: value for name, value in changes.items() if _VARIABLE.match(name)}

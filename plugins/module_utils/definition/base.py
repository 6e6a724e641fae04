# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and describe the base that a release stands on. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any, Mapping, Sequence

from ..conda.request import spec_name
from ..core.canonical import digest_of
from . import container

CONDA = "conda"
OVERLAY = "python_overlay"
CONTAINER = container.KIND

OWN_KEYS = {
    OVERLAY: ("minimum",),
    CONTAINER: ("name", "image", "gpu", "wrappers", "venv", "software"),
    CONDA: (
        "channels", "mirrors", "specs", "optional_specs", "lock", "virtual_packages", "channel_priority", "link_method",
        "accept_defaults_licence"),
}
"""Keys that mean something to one kind of base only."""

NAMES = {OVERLAY: "an overlay of the site's Python", CONDA: "a conda base", CONTAINER: "a container"}

_MINOR = re.compile(r"3[.][0-9]+\Z")


def problems(definition: object, source: str = "") -> list[str]:
    """Find what in ``base`` contradicts the rest of the release file, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here.
    """
    base = definition.get("base") if isinstance(definition, dict) else None
    if not isinstance(definition, dict) or not isinstance(base, dict) or str(base.get("kind")) not in NAMES:
        return []
    where = " in %s" % source if source else ""
    kind = base["kind"]
    found = [
        "'base.%s'%s means nothing to %s; remove it, or say kind: %s." % (key, where, NAMES[kind], other)
        for other, keys in OWN_KEYS.items() if other != kind
        for key in keys if key in base]
    if kind == CONTAINER:
        if not isinstance(base.get("python"), str) or not _MINOR.match(base["python"]):
            found.append("'base.python'%s must say which Python the image has, as \"3.10\" for instance." % where)
        return found + ["%s%s %s." % (key, where, problem) for key, problem in container.problems(base)]
    if kind == CONDA:
        locks = definition.get("locks")
        found += ["%s%s %s." % (key, where, problem) for key, problem in _conda_problems(base, locks)]
    return found


def _conda_problems(base: Mapping[str, Any], locks: object) -> list[tuple[str, str]]:
    """Find what is wrong with a conda base: the key, and what is the matter with it."""
    found = []
    specs, lock = base.get("specs"), base.get("lock")
    if specs and lock:
        found.append(("'base'", "has both specs and lock; keep the lock to install that, or the specs to solve again"))
    elif not specs and not lock:
        found.append(("'base'", "has neither specs nor lock, so that nothing is known of the prefix; add one of them"))
    elif isinstance(specs, list) and not lock and "python" not in {spec_name(str(spec)) for spec in specs}:
        found.append(("'base.specs'", "has no python; add it, as python 3.11.* for instance"))
    if not isinstance(base.get("python"), str) or not _MINOR.match(base["python"]):
        found.append(("'base.python'", "must say which Python the prefix will have, as \"3.11\" for instance"))
    virtual = base.get("virtual_packages")
    if isinstance(virtual, dict):
        found += [
            ("'base.virtual_packages'", "has %s, which is none; their names begin with __, as __glibc" % name)
            for name in virtual if not str(name).startswith("__")]
    if not isinstance(locks, dict) or not locks.get("conda"):
        found.append(("'locks'", "has no conda; that is the lock of py-rattler, which makes a conda base"))
    return found


def fill_defaults(definition: dict[str, Any]) -> dict[str, Any]:
    """Fill in those defaults of a base that depend on its kind.

    Other kinds are left as the schema has resolved them: with a key more, a release that is frozen has another digest.
    """
    base = definition.get("base")
    if not isinstance(base, dict) or base.get("kind") != CONTAINER:
        return definition
    return dict(definition, base=container.fill_defaults(base))


def describe(
    definition: Mapping[str, Any], root: str, release: str, python: Mapping[str, Any], channels: Sequence[str] = (),
    mirrors: Mapping[str, str] | None = None, site: Mapping[str, Any] | None = None, image_bytes: int = 0,
) -> dict[str, Any]:
    """Describe a base for every role after its own, whichever kind it is.

    Args:
        python: an interpreter of the machine, as the module site_preflight describes it: the one that an overlay
            extends, or the one that makes a conda prefix.
        channels: the site's channels, for a release file that names none.
        mirrors: the site's mirrors of channels; those of the release file win.
        site: ``torchstack_images`` and ``torchstack_container`` with their defaults, for a container.

    Returns:
        ``kind``, ``prefix``; ``python`` (the program that runs its Python), ``minor``, ``tag`` and ``platform`` (as in
        the names of wheels); ``site_packages``, ``customization`` (where its sitecustomize.py lies); ``tools`` (the
        environment of the build tools); ``environment`` (what a process of a build must have set), and ``run`` (text
        for a shell that starts its Python so); ``pip`` (``command``, ``options`` of an installation, ``environment``,
        and all three as ``install``, text for a shell, like ``uninstall``);
        ``search`` and ``setenv`` (what the modulefile says of it); ``rank_python`` (the program that the acceptance
        starts as a rank) and ``bytecode`` (whether there are Python files to compile); of a conda base also ``conda``.
        Of a container, what is about installing Python files is empty, and there are the keys of
        :func:`container.describe` besides.
    """
    base = definition["base"]
    if base["kind"] == CONTAINER:
        return dict({"kind": CONTAINER}, **container.describe(base, root, release, site or {}, image_bytes))
    prefix = "%s/%s/base" % (root, release)
    if base["kind"] == OVERLAY:
        found = _overlay(prefix, python)
    else:
        found = _conda(prefix, base, python)
        found["conda"] = _request(base, root, definition["locks"]["conda"], python, channels, mirrors or {})
    lock = definition["locks"]["tools"]
    if found["python"].startswith(prefix + "/"):
        # Made by the release's own Python, it belongs to that release. What it is stands in front, by which steps of
        # another release are known to build with the same (see own_place.py).
        own = {"lock": lock, "python": "own", "minor": found["minor"]}
        found["tools"] = "%s-%s" % (_environment(root, own), release)
    else:
        found["tools"] = _environment(root, {"lock": lock, "python": found["python"], "minor": found["minor"]})
    found["run"] = _shell_text(found["environment"], [found["python"]])
    found["pip"] = _pip(found["tools"], found["python"], found.pop("user_base"))
    found.update({"rank_python": found["python"], "bytecode": True})
    return dict({"kind": base["kind"], "prefix": prefix}, **found)


def _overlay(prefix: str, python: Mapping[str, Any]) -> dict[str, Any]:
    """Describe an install prefix over the site's Python, which users reach by PYTHONPATH."""
    return {
        "python": python["executable"], "minor": python["minor"], "tag": python["tag"], "platform": python["platform"],
        "site_packages": "%s/lib/python%s/site-packages" % (prefix, python["minor"]),
        "customization": prefix + "/site",
        "environment": {"PYTHONPATH": prefix + "/site", "PYTHONNOUSERSITE": "1"},
        "user_base": prefix,
        "search": {"PATH": [prefix + "/bin"], "PYTHONPATH": [prefix + "/site"]},
        "setenv": {},
    }


def _conda(prefix: str, base: Mapping[str, Any], python: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a conda prefix with a Python of its own, before it is there."""
    minor = base["python"]
    library = "%s/lib/python%s" % (prefix, minor)
    return {
        "python": prefix + "/bin/python3", "minor": minor, "tag": "cp" + minor.replace(".", ""),
        "platform": python["platform"],
        "site_packages": library + "/site-packages",
        # Beside its standard library, which a user's own virtual environment has on its search path too.
        "customization": library,
        "environment": {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"},
        "user_base": "",
        "search": {"PATH": [prefix + "/bin"]},
        "setenv": {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": prefix},
    }


def _request(
    base: Mapping[str, Any], root: str, tools_lock: str, python: Mapping[str, Any], channels: Sequence[str],
    mirrors: Mapping[str, str],
) -> dict[str, Any]:
    """Compose what is asked of the module conda_environment, with its tools and its cache."""
    own = (
        "specs", "optional_specs", "lock", "virtual_packages", "channel_priority", "link_method",
        "accept_defaults_licence")
    return dict(
        {key: base[key] for key in own}, channels=list(base["channels"] or channels),
        mirrors=dict(mirrors, **base["mirrors"]), cache=root + "/.torchstack/conda-pkgs",
        tools=_environment(root, {"lock": tools_lock, "python": python["executable"]}))


def _environment(root: str, what: dict[str, Any]) -> str:
    """Return the place of a tool environment: beside the releases that share it."""
    return "%s/.torchstack/tools/%s" % (root, digest_of(what)[:12])


def _pip(tools: str, python: str, user_base: str) -> dict[str, Any]:
    """Describe how pip of the build tools works on a base; in an overlay by a user install into the prefix.

    PEP 668's marker guards the interpreter's own packages, which such an install never touches.
    """
    environment = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PYTHONPATH": ""}
    environment.update(
        {"PYTHONUSERBASE": user_base, "PYTHONNOUSERSITE": ""} if user_base else
        {"PYTHONNOUSERSITE": "1", "PIP_USER": "0"})
    command = [tools + "/bin/python", "-m", "pip", "--python", python]
    options = [*(["--user"] if user_base else []), "--no-deps", "--no-warn-script-location"]
    install = _shell_text(environment, [*command, "install", *options])
    uninstall = _shell_text(environment, [*command, "uninstall", "--yes"])
    return {
        "command": command, "options": options, "environment": environment, "install": install, "uninstall": uninstall}


def _shell_text(environment: Mapping[str, str], words: Sequence[str]) -> str:
    """Write a command with its variables, as a shell reads it."""
    settings = ["%s=%s" % (name, shlex.quote(value) if value else "") for name, value in environment.items()]
    return " ".join([*settings, *(shlex.quote(word) for word in words)])

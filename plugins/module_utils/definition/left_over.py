# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find rules of a release file that speak of a component which the release does not have (any more). Pure.

Each of them would be refused by the verification or the acceptance, when everything else is built.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, NamedTuple

from . import components

ALWAYS = frozenset(["prefix", "base", "packages", "python", "mpi"])
"""Words in braces that stand for something in every release."""

FOR_PEOPLE = frozenset(["reason", "pattern"])
NOT_INSTALLED = frozenset(
    ["release", "title", "verification", "acceptance", "known_problems", "module", "runtime", "toolchain", "files"])
"""Keys of a release file from whose texts nothing is installed."""

_WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)[A-Za-z0-9_.]*\}")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MPI = re.compile(r"libmpi[^a-z]*")


class Rule(NamedTuple):
    """One text of a rule."""

    path: str
    """Dotted, as ``verification.libraries.require[0].object``."""
    key: str
    text: str
    rule: Mapping[str, Any]
    """The mapping that it is in, empty where it is in none."""


def component_modules() -> set[str]:
    """Return the components whose Python module has the name of their key."""
    return {row.key for row in components.COMPONENTS if row.distribution}


def parts() -> set[str]:
    """Return the keys of what a release may have or do without, for which words in braces stand."""
    return {"cuda", *(row.key for row in components.COMPONENTS)}


def left_over(definition: Mapping[str, Any]) -> dict[str, list[str]]:
    """Find the paths of the texts that speak of a component that is not there, by its key; not for a container."""
    found: dict[str, list[str]] = {}
    for rule in _rules(definition):
        missed = {key for key in _by_words(rule) if key not in definition}
        for key in sorted(missed | {name for name in _by_names(rule, definition) if not has(definition, name)}):
            found.setdefault(key, []).append(rule.path)
    return found


def unknown_modules(definition: Mapping[str, Any]) -> dict[str, str]:
    """Find the modules that rules import of which a release has nothing by that name, with the paths of these rules.

    For people to look at: a distribution may be called otherwise than its module. A conda base brings what its specs
    need.
    """
    if (definition.get("base") or {}).get("kind") != "python_overlay":
        return {}
    imported = {
        rule.path: rule.text.partition(".")[0] for rule in _rules(definition)
        if rule.key == "modules" and rule.path.startswith("verification.imports.")}
    return {
        path: name for path, name in imported.items()
        if name not in {*component_modules(), "torch"} and not has(definition, name)}


def has(definition: Mapping[str, Any], name: str) -> bool:
    """Tell whether a release has a component, or installs something of its name: a package, from a lock or by specs."""
    if name in definition:
        return True
    word = re.compile(r"(?<![A-Za-z0-9])%s(?![A-Za-z0-9])" % re.escape(name).replace("_", "[-_.]"), re.IGNORECASE)
    installed = {key: value for key, value in definition.items() if key not in NOT_INSTALLED}
    return any(word.search(rule.text) for rule in _texts(installed, "", "", {}) if ".left_out." not in rule.path)


def _by_words(rule: Rule) -> set[str]:
    """Find the components whose keys words in braces stand for."""
    places = {word: row.key for row in components.COMPONENTS for word in row.words}
    words = [] if rule.key in (*FOR_PEOPLE, "value") else _WORD.findall(rule.text)
    return {places.get(word, word) for word in words} & parts()


def _by_names(rule: Rule, definition: Mapping[str, Any]) -> set[str]:
    """Find the components that are named as what they install: a Python package, and what is linked with the MPI."""
    modules = component_modules()
    if rule.key in ("modules", "imports", "checks"):
        return {rule.text.partition(".")[0]} & modules
    if rule.key == "value":
        return set(_MODULE.findall(rule.text)) & modules
    if rule.key in FOR_PEOPLE:
        return set()
    found = {name for name in modules if "/%s/" % name in rule.text}
    wanted = rule.key == "name" and rule.rule.get("required") is True and rule.path.startswith("verification.imports.")
    if wanted and _MPI.match(rule.text) and not _links_mpi(definition):
        found.add("mpi4py")
    return found


def _links_mpi(definition: Mapping[str, Any]) -> bool:
    """Tell whether anything of a release may load the MPI when it is imported."""
    pytorch, packages = definition.get("pytorch"), definition.get("packages")
    built = [part for part in (packages if isinstance(packages, list) else []) if isinstance(part, dict)]
    return (
        any(has(definition, name) for name in component_modules())
        or any(key in (pytorch if isinstance(pytorch, dict) else {}) for key in ("source", "mpi_backend"))
        or any(key in part for part in built for key in ("repository", "archive")))


def _rules(definition: Mapping[str, Any]) -> Iterator[Rule]:
    for key in ("verification", "acceptance"):
        yield from _texts(definition.get(key), key, key, {})


def _texts(value: Any, path: str, key: str, rule: Mapping[str, Any]) -> Iterator[Rule]:
    if isinstance(value, str):
        yield Rule(path, key, value, rule)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, "%s.%s" % (path, name) if path else str(name), str(name), value)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _texts(inner, "%s[%d]" % (path, number), key, rule)

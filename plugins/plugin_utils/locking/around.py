# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what a bundle of packages has to fit to, and which of what was resolved for it is its own. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import bundles, components, locks, packages

NOT_AROUND = ("locks.tools", "locks.conda", "base.venv.lock", ".".join(locks.OF_CONDA))
"""Locks of what is in other environments than the release's base."""

_BUNDLE = re.compile(r"bundles\[(\d+)\]")
_COMMENT = re.compile(r"^\s+#.*\n", re.MULTILINE)
_VIA = re.compile(r"^\s+#\s+(?:via\b)?[ ]*(\S*)", re.MULTILINE)
_SPEC = re.compile(r"\s*(?:[^\s:]+::)?([A-Za-z0-9][\w.-]*)")


class Around(NamedTuple):
    """The rest of a release, as a bundle meets it."""

    constraints: tuple[str, ...]
    """versions that are there, as pip reads them"""
    excluded: tuple[str, ...]
    """what is not looked up at all: left out, or compiled by the release, which no index has as a wheel"""
    given: frozenset[str]
    """canonical names of all that the bundle does not install"""


def around(content: Mapping[str, Any], number: int) -> Around:
    """Describe what a bundle has to fit to: all of the release but the bundles from this one on.

    Raises ValueError: a lock cannot be read.
    """
    pins: dict[str, str] = {}
    given: set[str] = set()
    for lock in locks.texts(content):
        bundle = _BUNDLE.match(lock.path)
        if lock.path in NOT_AROUND or lock.key == "build_requires" or (bundle and int(bundle.group(1)) >= number):
            continue
        for one in packages.requirements(lock.value) if not locks.is_file_name(lock.value) else ():
            marker = " ; %s" % one.marker if one.marker else ""
            given.add(packages.canonical(one.name))
            pins["%s%s" % (one.name, marker)] = "%s==%s%s" % (one.name, one.version.partition("+")[0], marker)
    version = components.value_at(content, ("pytorch", "version"))
    if version and "torch" not in given:
        pins["torch"] = "torch==%s" % version
    compiled = {row.distribution for row in components.COMPONENTS if row.distribution and row.key in content}
    entries = packages.planned_packages(bundles.entries(content, "packages"))
    compiled |= {entry["key"] for entry in entries if entry["kind"] != "wheel"}
    left = {packages.canonical(str(name)) for name in bundles.entries(content)[number].get("left_out") or {}}
    given |= {"torch", *compiled, *left, *(entry["key"] for entry in entries), *_of_conda(content.get("base"))}
    excluded = sorted(compiled | left)
    constraints = [text for key, text in pins.items() if packages.canonical(key.partition(" ")[0]) not in excluded]
    return Around(tuple(constraints), tuple(excluded), frozenset(given))


def differs(mine: Around | None, path: str, other: Mapping[str, Any]) -> bool:
    """Tell whether the bundle with this lock has to fit to something else than in a release that has it too.

    Args:
        mine: what it has to fit to; None for what is no bundle, which has not.
        path: of its lock, the same in both.
        other: the data of that release.

    Raises ValueError: a lock cannot be read.
    """
    bundle = _BUNDLE.match(path)
    return bool(mine and bundle and around(other, int(bundle.group(1))) != mine)


def _of_conda(base: object) -> set[str]:
    """Return what the specs of a conda base name: that is there, in whichever version the solver takes."""
    if not isinstance(base, Mapping) or base.get("kind") != "conda":
        return set()
    specs = [*packages.texts(base.get("specs")), *packages.texts(base.get("optional_specs"))]
    return {packages.canonical(match.group(1)) for spec in specs for match in [_SPEC.match(spec)] if match}


def own(texts: Mapping[str, str], roots: Iterable[str], given: frozenset[str]) -> set[str]:
    """Find the packages that are there for a bundle alone.

    What only something needs that the release has elsewhere, as torch needs CUDA's packages, is not the bundle's.

    Args:
        texts: by canonical name, what uv says of a package, with the comments that tell what needs it.
        roots: canonical names of what is asked for.
        given: of what the bundle does not install.
    """
    needed_by = {name: {packages.canonical(word) for word in _VIA.findall(text) if word and not word.startswith("-")}
                 for name, text in texts.items()}
    found = {name for name in roots if name in texts and name not in given}
    while True:
        more = {name for name, parents in needed_by.items() if name not in given and parents & found} - found
        if not more:
            return found
        found |= more


def without_comments(text: str) -> str:
    """Remove the lines in which uv tells what needs a package."""
    return _COMMENT.sub("", text)


def names(roots: Sequence[str]) -> set[str]:
    """Return the canonical names of requirements."""
    return set(bundles.asked({"packages": list(roots)}))

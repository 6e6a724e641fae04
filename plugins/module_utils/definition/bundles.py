# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and plan the bundles of a release file: packages that are locked, fetched and installed together. Pure."""

from __future__ import annotations

import copy
import re
from typing import Any, Iterable, Iterator, Mapping

from ..core.near_names import nearest
from . import packages

DEFAULTS: dict[str, Any] = {"imports": [], "left_out": {}, "no_deps": False}
"""What a bundle that does not say otherwise means; the release file's schema has the same."""

STEP = "bundle-"
"""How the names of a bundle's build steps begin."""

_ASKED = re.compile(r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(?P<rest>[^\[\]]*)\Z")
_EXACTLY = re.compile(r"==\s*(?P<version>[^\s,;*]+)\Z")


def entries(definition: object, key: str = "bundles") -> list[dict[str, Any]]:
    """Return the named entries of a list of a release file; none of what has the wrong type."""
    found = definition.get(key) if isinstance(definition, Mapping) else None
    return [one for one in (found if isinstance(found, list) else [])
            if isinstance(one, dict) and isinstance(one.get("name"), str)]


def steps(definition: object) -> set[str]:
    """Return the build steps of the packages and bundles that a release has, without those that fetch and compile."""
    return {
        *("package-" + packages.canonical(one["name"]) for one in entries(definition, "packages")),
        *(STEP + one["name"] for one in entries(definition))}


def asked(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return what a bundle asks for: canonical name to the requirement as written."""
    return {packages.canonical(match.group("name")): text for text in packages.texts(entry.get("packages"))
            for match in [_ASKED.match(text.strip())] if match}


def planned_bundles(
    bundles: Iterable[Mapping[str, Any]], before: Iterable[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Plan bundles without problems as the entries of :func:`.packages.planned_packages` are planned.

    Args:
        bundles: the entries of the release file.
        before: the planned entries of ``packages``, after all of which they are installed.

    Returns:
        Per bundle what an entry that comes as a wheel has, with ``bundle`` true. ``owns`` has all that its lock names,
        also for other interpreters.
    """
    needs, found = [str(entry["step"]) for entry in before], []
    for bundle in bundles:
        own = {packages.canonical(pin.name): pin.version for pin in packages.pinned(bundle.get("lock"))}
        step = STEP + bundle["name"]
        found.append({
            **copy.deepcopy(packages.DEFAULTS), **copy.deepcopy(DEFAULTS), **bundle, "bundle": True, "key": step,
            "name": "bundle %s" % bundle["name"], "version": "with %d packages" % len(own), "reports": "",
            "licence": "", "step": step, "step_needs": needs, "kind": "wheel", "owns": own, "config_flags": []})
        needs = [*needs, step]
    return found


def problems(definition: object, source: str = "") -> list[str]:
    """Find bundles that contradict themselves, each other or the rest of the release, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here.
    """
    if not isinstance(definition, dict):
        return []
    claimed = packages.held(definition)
    for entry in entries(definition, "packages"):
        claimed.update(dict.fromkeys(packages.distributions(entry), "package '%s'" % entry["name"]))
    keys = {packages.canonical(entry["name"]) for entry in entries(definition, "packages")}
    found: list[str] = []
    for entry in entries(definition):
        who = "Bundle '%s'%s" % (entry["name"], " in %s" % source if source else "")
        if STEP + entry["name"] in keys:
            found.append("%s has the name of an entry before it; give it another one." % who)
        keys.add(STEP + entry["name"])
        found += ["%s %s." % (who, trouble) for trouble in _troubles(entry, claimed)]
        own = dict.fromkeys(_locked(entry), "bundle '%s'" % entry["name"])
        claimed.update((name, holder) for name, holder in own.items() if name not in claimed)
    return found


def _locked(entry: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return canonical name to the versions in the lock of a bundle; nothing of one that cannot be read."""
    found: dict[str, set[str]] = {}
    for pin in packages.pinned(entry.get("lock")):
        found.setdefault(packages.canonical(pin.name), set()).add(pin.version)
    return found


def _troubles(entry: Mapping[str, Any], claimed: Mapping[str, str]) -> Iterator[str]:
    """Find what is wrong with one bundle, each as the end of a sentence that begins with its name."""
    try:
        packages.pins(entry["lock"]) if isinstance(entry.get("lock"), str) else []
    except ValueError as error:
        yield "has a lock in which %s" % error
        return
    wanted, locked, left = asked(entry), _locked(entry), _left_out(entry)
    yield from _written(entry, left)
    for name in sorted({*wanted} & {*left}):
        yield "asks for %s, which it leaves out; keep one of the two" % name
    for name in sorted({*locked} & {*left}):
        yield "leaves %s out, which its lock has; make the lock anew with bin/lock" % name
    for name, text in wanted.items():
        if name in left or (name in claimed and name not in locked):
            continue  # what something before it brings need not come again
        if name not in locked:
            near = nearest(name, locked)
            yield "asks for %s, which its lock does not have%s; make the lock with bin/lock" % (
                name, " (it has %s)" % near if near else "")
        else:
            exactly = _EXACTLY.search(text)
            if exactly and exactly.group("version") not in locked[name]:
                yield "asks for %s, and its lock has %s; make the lock anew with bin/lock" % (
                    text.strip(), ", ".join(sorted(locked[name])))
    for name in sorted({*locked} & {*claimed}):
        yield "would install %s, which %s installs; make the lock anew with bin/lock" % (name, claimed[name])


def _written(entry: Mapping[str, Any], left: Mapping[str, Any]) -> Iterator[str]:
    """Find requirements that cannot be read or are there twice, and packages left out without a reason."""
    seen: set[str] = set()
    for text in packages.texts(entry.get("packages")):
        match = _ASKED.match(text.strip())
        if match is None or ";" in text or "@" in text:
            yield "asks for '%s', which is no name with versions such as 'pandas>=2,<3'" % text
            continue
        name = packages.canonical(match.group("name"))
        if name in seen:
            yield "asks for %s twice; keep one of the two" % name
        seen.add(name)
    for name, reason in left.items():
        if not isinstance(reason, str) or not reason.strip():
            yield "leaves %s out without a reason; say why" % name


def _left_out(entry: Mapping[str, Any]) -> dict[str, Any]:
    given = entry.get("left_out")
    return {packages.canonical(str(name)): reason for name, reason in given.items()} if isinstance(given, dict) else {}

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and plan the packages of a release file. Pure."""

from __future__ import annotations

import copy
import re
from typing import Any, Iterator, NamedTuple

from . import components, lock_lines

DEFAULTS: dict[str, Any] = {
    "source": False,
    "index": "",
    "requires": "",
    "build_requires": "",
    "environment": {},
    "unset": ["CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"],
    "config_settings": {},
    "build_isolation": False,
    "no_deps": True,
    "imports": [],
    "licence_needs_acceptance": False,
    "licence_accepted": False,
}
"""What an entry that does not say otherwise means; the release file's schema has the same."""

ORIGINS = {"lock": "", "repository": "commit", "archive": "sha256"}
"""Where a package can come from, and the key that pins it; a lock pins itself."""

LOCKS_OF_ONE = ("lock", "requires", "build_requires")
"""Keys of an entry whose texts pip reads as locks."""

BUILD_KEYS = ("config_settings", "build_isolation", "build_requires")
"""Keys that only mean something where a wheel is built."""

RESERVED = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONHOME")
"""Variables by which the role chooses what a build sees."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[^\]]*\])?\s*==\s*(?P<version>[^\s;,*]+)"
    r"\s*(?:;(?P<marker>(?:(?!--hash).)*))?(?P<hashes>(?:\s*--hash=\S+)*)\s*\Z")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\Z")


class Pin(NamedTuple):
    """One requirement of a lock."""

    name: str
    version: str


class Requirement(NamedTuple):
    """One requirement of a lock, with all that it says."""

    name: str
    version: str
    marker: str
    """the interpreters that it is meant for; empty for all"""
    hashes: tuple[str, ...]
    """sha256 of the files that it admits"""


def canonical(name: str) -> str:
    """Return a distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> list[Pin]:
    """Return the names and versions in a lock; see :func:`requirements`."""
    return [Pin(one.name, one.version) for one in requirements(lock)]


def requirements(lock: str) -> list[Requirement]:
    """Parse the requirements of a lock, in its order.

    Raises ValueError: something in it is not pinned with ``==`` or has no sha256; the message is the end of a sentence.
    """
    found = []
    for line in re.sub(r"\\\r?\n", " ", lock).splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text:
            continue
        match = _REQUIREMENT.match(text)
        if match is None:
            raise ValueError(lock_lines.foreign(text))
        hashes = match.group("hashes").split()
        if not hashes:
            raise ValueError("'%s' has no hash; give it its --hash=sha256" % match.group("name"))
        for word in hashes:
            if not _HASH.match(word):
                raise ValueError("'%s' has '%s', which is no sha256 of 64 hexadecimal digits" % (
                    match.group("name"), word[:80]))
        digests = tuple(word.rpartition(":")[2] for word in hashes)
        found.append(
            Requirement(match.group("name"), match.group("version"), (match.group("marker") or "").strip(), digests))
    return found


def package_problems(
    definition: object, source: str = "", places: lock_lines.Places | None = None
) -> list[str]:
    """Find entries of ``packages`` that contradict themselves, others or the rest of the release.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here. With ``places``, locks
    that pip would refuse are :func:`.locks.problems`' matter.
    """
    entries = definition.get("packages") if isinstance(definition, dict) else None
    if not isinstance(definition, dict) or not isinstance(entries, list):
        return []
    found: list[str] = []
    elsewhere = held(definition)
    earlier: dict[str, str] = {}
    claimed: dict[str, str] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        who = "Package '%s'%s" % (entry["name"], " in %s" % source if source else "")
        found += ["%s %s." % (who, problem) for problem in _entry_problems(entry, number, places)]
        key = canonical(entry["name"])
        if key in earlier:
            found.append("%s is there twice; keep one of the two entries." % who)
        for name in distributions(entry):
            if name in elsewhere:
                found.append("%s would replace %s, which %s installs; remove it from one of the two." % (
                    who, name, elsewhere[name]))
            elif claimed.get(name, key) != key:
                found.append("%s would install %s, and so does package '%s'; remove it from one of the two." % (
                    who, name, claimed[name]))
            claimed.setdefault(name, key)
        for need in texts(entry.get("needs")):
            if canonical(need) not in earlier:
                found.append("%s needs '%s', which is no entry before it; correct the name or the order." % (who, need))
        earlier[key] = entry["name"]
    return found


def planned_packages(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fill in the defaults of entries without problems, and what follows from them.

    Returns:
        Per entry its keys and ``key`` (canonical name), ``step`` (its build step), ``step_needs`` (the build steps of
        other entries that it needs: those it names, or else the one before), ``kind`` (``wheel``, ``archive`` for a
        source archive, ``tree`` for a git commit), ``owns`` (canonical names of the distributions that it installs,
        with their versions), ``reports`` (what importlib.metadata has to say) and ``config_flags`` (options for pip).
    """
    planned: list[dict[str, Any]] = []
    for entry in entries:
        full = {**copy.deepcopy(DEFAULTS), **entry}
        before = [planned[-1]["name"]] if planned else []
        full["key"] = canonical(full["name"])
        full["step"] = "package-%s" % full["key"]
        full["step_needs"] = ["package-%s" % canonical(need) for need in full.get("needs", before)]
        full["kind"] = "wheel" if _is_wheel(full) else "tree" if "repository" in full else "archive"
        full["reports"] = full.get("version_reports", full["version"])
        full["owns"] = {**distributions(full), full["key"]: full["reports"]}
        full["config_flags"] = [
            "--config-settings=%s=%s" % (name, value)
            for name, values in full["config_settings"].items()
            for value in (values if isinstance(values, list) else [values])]
        planned.append(full)
    return planned


def texts(value: object) -> list[str]:
    """Return the texts of a list; none of anything else."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _is_wheel(entry: dict[str, Any]) -> bool:
    """Tell whether the package comes as a wheel, so that nothing is built."""
    if "archive" in entry:
        return str(entry["archive"]).split("#", 1)[0].endswith(".whl")
    return "lock" in entry and not entry.get("source", False)


def pinned(lock: object) -> list[Pin]:
    """Return the pins of a lock; none of what cannot be read."""
    try:
        return pins(lock) if isinstance(lock, str) else []
    except ValueError:
        return []


def distributions(entry: dict[str, Any]) -> dict[str, str]:
    """Return canonical names of all that an entry installs, its own first, with versions."""
    own = {canonical(entry["name"]): str(entry.get("version", ""))}
    return {**own, **{canonical(pin.name): pin.version for pin in pinned(entry.get("requires"))}}


def held(definition: dict[str, Any]) -> dict[str, str]:
    """Return what the rest of the release installs: canonical name to the key that does."""
    found: dict[str, str] = {}
    for row in components.COMPONENTS:
        if row.distribution and row.key in definition:
            found[canonical(row.distribution)] = row.key
    pytorch = definition.get("pytorch")
    if isinstance(pytorch, dict) and "source" in pytorch:
        found["torch"] = "pytorch.source"
    for path in ("locks.base", "mpi.lock", "pytorch.lock", "pytorch.cuda_lock"):
        component, _dot, key = path.partition(".")
        section = definition.get(component)
        for pin in pinned(section.get(key) if isinstance(section, dict) else None):
            found[canonical(pin.name)] = path
    return found


def _entry_problems(entry: dict[str, Any], number: int, places: lock_lines.Places | None) -> Iterator[str]:
    """Find what is wrong with one entry, each as the end of a sentence that begins with its name."""
    yield from _origin_problems(entry)
    yield from _lock_problems(entry, "packages[%d]" % number, places)
    if _is_wheel(entry):
        for key in BUILD_KEYS:
            if entry.get(key):
                yield "is installed from a wheel, so that %s means nothing; remove it, or build from source" % key
    if entry.get("source") and "lock" not in entry:
        yield "has source, which only a lock can ask for; remove it"
    if entry.get("build_isolation") and entry.get("build_requires"):
        yield "has build_requires, which build_isolation leaves to pip; keep one of the two"
    if entry.get("index") and not any(entry.get(key) for key in LOCKS_OF_ONE):
        yield "has an index, and nothing that is taken from one; remove it"
    for name, value in _items(entry.get("environment")):
        if name in RESERVED:
            yield "sets %s, by which the role says what a build sees; remove it" % name
        elif isinstance(value, bool) or not isinstance(value, (str, int)):
            yield "has the value %r for %s in its environment, which is not text; put it in quotes" % (value, name)
    for name, value in _items(entry.get("config_settings")):
        values = value if isinstance(value, list) else [value]
        if "=" in str(name) or not values or not all(isinstance(item, str) for item in values):
            yield "has config_settings '%s' with something other than text or a list of texts; put it in quotes" % name
    if entry.get("licence_needs_acceptance") is True and entry.get("licence_accepted") is not True:
        yield "is under a licence that has to be accepted (%s); read it, and set licence_accepted: true" % (
            entry.get("licence", "not named"))


def _items(value: object) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _origin_problems(entry: dict[str, Any]) -> Iterator[str]:
    given = [origin for origin in ORIGINS if origin in entry]
    if not given:
        yield "has no origin; give it a lock, a repository with its commit, or an archive with its sha256"
    if len(given) > 1:
        yield "has more than one origin, %s; keep one" % " and ".join(given)
    for origin, pin in ORIGINS.items():
        if pin and origin in entry and pin not in entry:
            yield "has %s without %s, so that its content is not known; add %s" % (origin, pin, pin)
        if pin and pin in entry and origin not in entry:
            yield "has %s without %s; add %s or remove it" % (pin, origin, origin)


def _lock_problems(entry: dict[str, Any], path: str, places: lock_lines.Places | None) -> Iterator[str]:
    for key in LOCKS_OF_ONE:
        text = entry.get(key)
        if not isinstance(text, str):
            continue
        try:
            found = pins(text)
        except ValueError as error:
            if places is None:
                yield "has a %s in which %s" % (key, error)
            continue
        where = (places or lock_lines.NOWHERE).of("%s.%s" % (path, key), text, 1) if found else ""
        if key == "requires" and canonical(entry["name"]) in [canonical(pin.name) for pin in found]:
            yield "is in its own requires; leave it to the entry's origin"
        if key != "lock":
            continue
        if len(found) != 1:
            yield "has a lock of %d requirements%s; keep its own, and write others under requires" % (
                len(found), where)
        elif canonical(found[0].name) != canonical(entry["name"]):
            yield "has a lock for '%s'%s; correct one of the two" % (found[0].name, where)
        elif isinstance(entry.get("version"), str) and found[0].version != entry["version"]:
            yield "has version %s and a lock for %s%s; correct one of the two" % (
                entry["version"], found[0].version, where)

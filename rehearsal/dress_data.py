# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site's rehearsal asks its nodes to look like: ``rehearsal_dress`` of its inventory, read and judged."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from .checkout import CHECKOUT
from .trouble import TroubleError

DRESS = "rehearsal_dress"
"""The variable of a site's rehearsal (docs/tutorials/rehearse-a-site.md)."""

PLACE = CHECKOUT / "rehearsal" / "dress"
CATALOGUE = PLACE / "modules.yml"
SYNTAXES = ("lua", "tcl")
KEYS = frozenset(("releases", "syntax", "modules", "parts", "for_release"))
FOR_RELEASE_KEYS = frozenset(("modules", "parts"))
PART_KEYS = frozenset(("part", "version", "place", "sets"))
MODULE_KEYS = frozenset(("like", "part", "place", "family", "one_of", "load", "set", "prepend", "empty"))

OF_THE_NODES = frozenset((
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "shared",
    "sys", "tmp", "var",
))
"""Directories below the root that are the nodes' own."""

FREE_OF_USR = ("/usr/lib64/", "/usr/local/", "/usr/share/")
"""Of these the nodes have next to nothing, and sites much."""


class Part(NamedTuple):
    """What is laid: a program of ``rehearsal/dress/parts``."""

    name: str
    version: str
    place: str
    sets: tuple[str, ...] = ()
    """lines that the program is told besides"""


class Module(NamedTuple):
    """A module of the nodes; the values of variables are whole."""

    tree: str
    name: str
    """with its version"""
    family: str
    one_of: tuple[str, ...]
    """modules of which one has to be loaded before, by name"""
    load: tuple[str, ...]
    set: dict[str, str]
    prepend: dict[str, str]


class Dress(NamedTuple):
    """What the nodes wear."""

    releases: str
    """``torchstack_root``, whose modules all nodes find"""
    syntaxes: tuple[str, ...]
    """those of :data:`SYNTAXES` that its modulefiles are written in"""
    trees: tuple[str, ...]
    modules: tuple[Module, ...]
    parts: tuple[Part, ...]


def dress_of(hosts: Mapping[str, Mapping[str, Any]], release: str = "") -> Dress | None:
    """Read the dress that a site's rehearsal asks for among the variables of its hosts.

    Args:
        hosts: the variables of each host.
        release: the release that is rehearsed, which may ask for more; empty: the one that the site's data name.

    Raises:
        TroubleError: it asks for what there is not.
    """
    wanted = next((known[DRESS] for known in hosts.values() if known.get(DRESS)), None)
    if not wanted:
        return None
    known_keys(wanted, KEYS, DRESS)
    if not str(wanted.get("releases", "")).startswith("/shared/"):
        raise TroubleError("%s.releases has to be torchstack_root, a directory below /shared." % DRESS)
    syntax = wanted.get("syntax")
    if syntax not in (None, *SYNTAXES):
        raise TroubleError("%s.syntax is '%s'; it has to be one of: %s" % (DRESS, syntax, ", ".join(SYNTAXES)))
    catalogue = yaml.safe_load(CATALOGUE.read_text())
    trees = {tree: dict(_by_name(named)) for tree, named in wanted.get("modules", {}).items()}
    further = wanted.get("for_release", {}).get(release, {})
    known_keys(further, FOR_RELEASE_KEYS, "%s.for_release: '%s'" % (DRESS, release))
    for tree, named in further.get("modules", {}).items():
        trees.setdefault(tree, {}).update(_by_name(named))
    modules, parts = [], []
    for tree, by_name in trees.items():
        check_place(tree)
        for name, given in by_name.items():
            module, part = module_of(tree, name, given or {}, catalogue)
            modules.append(module)
            parts += [part] if part else []
    parts += [_part(given) for given in [*wanted.get("parts", []), *further.get("parts", [])]]
    for part in parts:
        check_place(part.place)
    return Dress(
        wanted["releases"], (syntax,) if syntax else SYNTAXES, tuple(trees), tuple(modules),
        tuple(dict.fromkeys(parts)))


def module_of(
    tree: str, name: str, given: Mapping[str, Any], catalogue: Mapping[str, Mapping[str, Any]]
) -> tuple[Module, Part | None]:
    """Make a module of what the catalogue and the site say of it.

    Args:
        tree: the directory of its tree.
        name: with its version.
        given: what the site's data say.
        catalogue: what modules are like, by name.

    Raises:
        TroubleError: the data name what there is not.
    """
    where = "%s.modules: '%s'" % (DRESS, name)
    known_keys(given, MODULE_KEYS, where)
    stem, _slash, version = name.rpartition("/")
    if not stem or not version:
        raise TroubleError("%s has to be name/version." % where)
    like = given.get("like", stem)
    if like not in catalogue and ("like" in given or not given):
        raise TroubleError(
            "%s is like none of %s%s Say what it sets, or {empty: true} for a module that does nothing."
            % (where, CATALOGUE.relative_to(CHECKOUT), nearest(like, catalogue)))
    usual = {} if given.get("empty") else catalogue.get(like, {})
    merged = {**usual, **given, **{key: {**usual.get(key, {}), **given.get(key, {})} for key in ("set", "prepend")}}
    kind, place = merged.get("part"), str(merged.get("place", "")).replace("{version}", version)
    if kind and not place:
        raise TroubleError("%s has a part and no place." % where)

    def whole(values: Mapping[str, Any]) -> dict[str, str]:
        return {
            key: str(value).replace("{version}", version).replace("{place}", place)
            for key, value in values.items() if value is not None}

    module = Module(
        tree, name, str(merged.get("family") or ""), tuple(merged.get("one_of", ())), tuple(merged.get("load", ())),
        whole(merged["set"]), whole(merged["prepend"]))
    return module, Part(known_part(kind, where), version, place) if kind else None


def known_part(name: str, where: str) -> str:
    """Take the name of a part that there is.

    Raises:
        TroubleError: there is no such part.
    """
    parts = sorted(file.stem for file in (PLACE / "parts").glob("*.sh"))
    if name not in parts:
        raise TroubleError("%s: there is no part '%s'%s" % (where, name, nearest(name, parts)))
    return name


def known_keys(given: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Refuse keys that nobody reads.

    Raises:
        TroubleError: there are some.
    """
    for key in given:
        if key not in keys:
            raise TroubleError("%s has the unknown key '%s'%s" % (where, key, nearest(str(key), keys)))


def check_place(path: str) -> None:
    """Refuse a place that is the nodes' own.

    Raises:
        TroubleError: the place is none that a dress may lay.
    """
    top = path.split("/")[1] if path.startswith("/") else ""
    free = path.startswith(FREE_OF_USR) if top == "usr" else top not in OF_THE_NODES
    if not top or not free or posixpath.normpath(path) != path or path in ("/opt", "/srv", "/mnt"):
        raise TroubleError(
            "%s names the place '%s': it has to be absolute, and outside of what is the nodes': /usr but for %s, %s."
            % (DRESS, path, ", ".join(FREE_OF_USR), ", ".join("/" + name for name in sorted(OF_THE_NODES))))


def nearest(word: str, known: Iterable[str]) -> str:
    """Name what a word may be meant for, to be appended; all, where none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1)
    return "; did you mean '%s'?" % near[0] if near else "; known are: %s." % ", ".join(names)


def _by_name(named: Mapping[str, Any] | Sequence[str]) -> Mapping[str, Any]:
    """Give modules by name, from names alone or from names with what is said of them."""
    return named if isinstance(named, Mapping) else dict.fromkeys(named)


def _part(given: Mapping[str, Any]) -> Part:
    known_keys(given, PART_KEYS, DRESS + ".parts")
    if "part" not in given or "place" not in given:
        raise TroubleError("%s.parts: each has to have a part and a place." % DRESS)
    version = str(given.get("version", "-"))
    return Part(
        known_part(given["part"], DRESS + ".parts"), version, str(given["place"]).replace("{version}", version),
        tuple(str(line) for line in given.get("sets", ())))

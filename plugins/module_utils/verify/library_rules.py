# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse what a release says about its libraries into rules that are ready to match.

Globs are those of :func:`globs.compile_globs`. A path glob is matched against a path as it is and with its links
resolved, and the fixed beginning of the glob is taken both ways, too: a release that lies behind a link is the same.
"""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple

from ..core.errors import StackError
from .rule_globs import rule_path_glob, soname_glob

PREFIX = "{prefix}"
"""Stands in a record for the directory that was verified, so that the record survives a move."""
LATE = ("already loaded", "preloaded")
"""Rules that say that a file was there before, and not how it was found."""


class Allowance(NamedTuple):
    """Describe a library that may be missing, for all objects or some."""

    name: str
    object: str
    reason: str
    sonames: re.Pattern[str]
    objects: re.Pattern[str]


class Provider(NamedTuple):
    """Describe where a library has to come from."""

    name: str
    path: str
    reason: str
    sonames: re.Pattern[str]
    paths: re.Pattern[str]


class Requirement(NamedTuple):
    """Describe objects that have to need a library, directly or through what they need."""

    object: str
    needs: str
    reason: str
    objects: re.Pattern[str]
    sonames: re.Pattern[str]


class Embedded(NamedTuple):
    """Describe bytes that only the provider of a library may hold."""

    pattern: str
    provider: str
    name: str
    expression: re.Pattern[bytes]
    literal: bytes
    providers: re.Pattern[str]


class OwnCopy(NamedTuple):
    """Describe objects that may hold a copy of what :class:`Embedded` names, for themselves alone."""

    name: str
    object: str
    reason: str
    objects: re.Pattern[str]


class Forbidden(NamedTuple):
    """Describe a directory, or file, that nothing may come from."""

    path: str
    reason: str
    paths: re.Pattern[str]


class Sealed(NamedTuple):
    """Describe a library that no LD_LIBRARY_PATH of a user may replace."""

    name: str
    reason: str
    sonames: re.Pattern[str]


class Dlopen(NamedTuple):
    """Describe a library that another one opens by name."""

    caller: str
    name: str


class Rules(NamedTuple):
    """Describe all rules of a verification."""

    library_path: str
    allow_missing: tuple[Allowance, ...]
    preloaded: tuple[bytes, ...]
    program: bytes | None
    providers: tuple[Provider, ...]
    require: tuple[Requirement, ...]
    embedded: tuple[Embedded, ...]
    allow_embedded: tuple[OwnCopy, ...]
    forbid: tuple[Forbidden, ...]
    plugins: tuple[Dlopen, ...]
    sealed: tuple[Sealed, ...]
    exclude: tuple[str, ...]
    unopened: tuple[str, ...]


UNOPENED = (
    ".py", ".pyc", ".pyi", ".pxd", ".pyx", ".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu", ".f90", ".js", ".ts",
    ".json", ".yaml", ".yml", ".txt", ".md", ".rst", ".html",
)
"""Endings of names that no loader is given: source code, byte code and text."""


KEYS: dict[str, tuple[str, ...]] = {
    "allow_missing": ("name", "object", "reason"),
    "providers": ("name", "path", "reason"),
    "require": ("object", "needs", "reason"),
    "embedded": ("pattern", "provider", "name"),
    "allow_embedded": ("name", "object", "reason"),
    "forbid": ("path", "reason"),
    "plugins": ("caller", "name"),
    "sealed": ("name", "reason"),
}
"""The keys of each kind of rule; all of them are texts."""

OPTIONAL = {("allow_missing", "object"), ("providers", "reason")}
_PLAIN = ("environment", "preloaded", "program", "exclude", "unopened")


def literal_beginning(pattern: str) -> bytes:
    """Return the bytes that every match of a pattern begins with; empty where that is not plain."""
    literal, position = "", 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\" and not pattern[position + 1:position + 2].isalnum():
            character = pattern[position + 1:position + 2]
            position += 1
        elif character in "\\.^$*+?{}[]|()":
            break
        literal += character
        position += 1
    if position < len(pattern) and pattern[position] in "*+?{":
        literal = literal[:-1]
    return b"" if "|" in pattern else literal.encode("utf-8")


def parse_rules(given: Mapping[str, Any]) -> Rules:
    """Check rules and make them ready, or refuse them; an option that is absent or None has its default."""
    for key in given:
        if key not in KEYS and key not in _PLAIN:
            raise _wrong("There is no rule %r." % key, "The rules are %s." % ", ".join(sorted([*KEYS, *_PLAIN])))
    entries = {kind: _entries(kind, given.get(kind) or []) for kind in KEYS}
    environment = given.get("environment") or {}
    if not isinstance(environment, Mapping):
        raise _wrong("environment is not a mapping of names to texts.", "Correct it.")
    program = given.get("program")
    for path in [*_texts(given, "preloaded"), *([program] if program else [])]:
        if not isinstance(path, str) or not path.startswith("/"):
            raise _wrong("%r under preloaded or program is not an absolute path." % (path,), "Write it absolute.")
    searched = {rule["name"] for rule in entries["embedded"]}
    for rule in entries["allow_embedded"]:
        if rule["name"] not in searched:
            raise _wrong(
                "allow_embedded has %r, which nothing under embedded is called." % rule["name"],
                "Take one of: %s." % (", ".join(sorted(searched)) or "none, as nothing is there"))
    return Rules(
        library_path=str(environment.get("LD_LIBRARY_PATH") or ""),
        allow_missing=tuple(
            Allowance(
                **rule, sonames=soname_glob(rule["name"]),
                objects=rule_path_glob("allow_missing", rule["object"] or "**"),
            )
            for rule in entries["allow_missing"]
        ),
        preloaded=tuple(os.fsencode(path) for path in _texts(given, "preloaded")),
        program=os.fsencode(program) if program else None,
        providers=tuple(
            Provider(**rule, sonames=soname_glob(rule["name"]), paths=rule_path_glob("providers", rule["path"]))
            for rule in entries["providers"]
        ),
        require=tuple(
            Requirement(**rule, objects=rule_path_glob("require", rule["object"]), sonames=soname_glob(rule["needs"]))
            for rule in entries["require"]
        ),
        embedded=tuple(_embedded(rule) for rule in entries["embedded"]),
        allow_embedded=tuple(
            OwnCopy(**rule, objects=rule_path_glob("allow_embedded", rule["object"]))
            for rule in entries["allow_embedded"]
        ),
        forbid=tuple(
            Forbidden(**rule, paths=rule_path_glob("forbid", rule["path"], below=True)) for rule in entries["forbid"]
        ),
        plugins=tuple(Dlopen(**rule) for rule in entries["plugins"]),
        sealed=tuple(Sealed(**rule, sonames=soname_glob(rule["name"])) for rule in entries["sealed"]),
        exclude=tuple(_texts(given, "exclude")),
        unopened=tuple(_endings(given)),
    )


def as_record(rules: Rules) -> dict[str, Any]:
    """Return the rules as :func:`parse_rules` takes them; what is empty is left out."""
    record: dict[str, Any] = {
        kind: [{key: getattr(rule, key) for key in keys if getattr(rule, key)} for rule in getattr(rules, kind)]
        for kind, keys in KEYS.items()
    }
    record["environment"] = {"LD_LIBRARY_PATH": rules.library_path} if rules.library_path else {}
    record["preloaded"] = [os.fsdecode(path) for path in rules.preloaded]
    record["program"] = os.fsdecode(rules.program) if rules.program else ""
    record["exclude"] = list(rules.exclude)
    record = {key: value for key, value in record.items() if value}
    if rules.unopened != UNOPENED:
        record["unopened"] = list(rules.unopened)
    return record


def relocate(value: Any, old: str, new: str) -> Any:
    """Rename a directory in data: alone, at the beginning of a path or in a list of paths."""
    if isinstance(value, str):
        return re.sub(r"(?<![^:])%s(?=[/:]|$)" % re.escape(old), lambda match: new, value)
    if isinstance(value, Mapping):
        return {key: relocate(inner, old, new) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [relocate(inner, old, new) for inner in value]
    return value


def _entries(kind: str, given: Any) -> list[dict[str, str]]:
    """Parse the rules of one kind, each with all its keys."""
    if not isinstance(given, (list, tuple)):
        raise _wrong("%s is not a list." % kind, "Write a list of entries with %s." % ", ".join(KEYS[kind]))
    entries = []
    for rule in given:
        if not isinstance(rule, Mapping) or not set(rule) <= set(KEYS[kind]):
            raise _wrong("An entry of %s is not right: %r." % (kind, rule), "Its keys are %s." % ", ".join(KEYS[kind]))
        entry = {key: rule.get(key) or "" for key in KEYS[kind]}
        for key, value in entry.items():
            if not isinstance(value, str) or not (value or (kind, key) in OPTIONAL):
                raise _wrong("An entry of %s has no %s, or not a text: %r." % (kind, key, rule), "Add it.")
        entries.append(entry)
    return entries


def _texts(given: Mapping[str, Any], key: str) -> list[str]:
    texts = given.get(key) or []
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise _wrong("%s is not a list of texts." % key, "Correct it.")
    return list(texts)


def _endings(given: Mapping[str, Any]) -> list[str]:
    """Parse the endings of names whose files are not opened; an empty list is one, too."""
    if given.get("unopened") is None:
        return list(UNOPENED)
    endings = _texts(given, "unopened")
    for ending in endings:
        if not re.fullmatch(r"[.][^/]+", ending):
            raise _wrong("%r under unopened is not the ending of a name." % ending, "Write it as '.py'.")
    return endings


def _embedded(rule: dict[str, str]) -> Embedded:
    try:
        expression = re.compile(rule["pattern"].encode("utf-8"))
    except re.error as error:
        message = "The pattern %r under embedded is not a regular expression: %s." % (rule["pattern"], error)
        raise _wrong(message, "Correct it.") from error
    if expression.search(b""):
        raise _wrong("The pattern %r under embedded matches nothing at all." % rule["pattern"], "Make it longer.")
    return Embedded(
        **rule, expression=expression, literal=literal_beginning(rule["pattern"]),
        providers=rule_path_glob("embedded", rule["provider"]),
    )


def _wrong(message: str, remedy: str) -> StackError:
    return StackError(message, "rules", remedy)

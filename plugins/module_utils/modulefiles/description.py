# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what a modulefile does, as plain data: notation and environment. Pure.

A value is literal text, with one exception: ``${NAME}`` stands for what the environment variable NAME holds when the
module is loaded. ``$${`` stands for a literal ``${``. Nothing else is special; a ``$`` on its own is a ``$``.
A reason is literal text throughout.
"""

from __future__ import annotations

import re
from typing import Mapping

from . import conda_command

Part = tuple
"""``("text", literal)`` or ``("variable", name)``."""

TEXT_KEYS = ("name", "version", "prefix", "help", "category", "family", "load_message")
LIST_KEYS = ("external", "keywords", "conflicts", "depends_on", "unsetenv")
DICT_KEYS = ("whatis", "setenv", "reasons", "aliases", "functions")
PATH_KEYS = ("prepend", "append")
WORDS = ("help", "whatis", "extensions")
"""What a module tells people, and does to nothing."""


_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


def parse_value(text: str) -> list[Part]:
    """Split a value into parts, ``("text", literal)``, no two in a row, or ``("variable", name)``.

    Raises ValueError: a ``${`` that is neither ``${NAME}`` nor ``$${``.
    """
    parts: list[Part] = []
    literal = ""
    position = 0
    for match in _REFERENCE.finditer(text):
        literal += text[position:match.start()]
        position = match.end()
        if match.group() == "$${":
            literal += "${"
        elif match.group(1):
            if literal:
                parts.append(("text", literal))
                literal = ""
            parts.append(("variable", match.group(1)))
        else:
            raise ValueError("only ${NAME} may follow a ${ (write $${ for a literal one)")
    literal += text[position:]
    if literal or not parts:
        parts.append(("text", literal))
    return parts


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Tell what a value is for a user with this environment; KeyError for a variable that is not set."""
    return "".join(content if kind == "text" else environment[content] for kind, content in parse_value(text))


def normalise(raw: Mapping) -> dict:
    """Return the description with every key present and every scalar as text; ``None`` means empty.

    Without ``reasons``, ``first_file``, ``also_named`` and ``extensions`` where there are none, as in descriptions that
    were recorded before there were any; ``conda_command`` is expanded. A boolean, a list or a mapping where a text
    belongs stays what it is, for :func:`find_faults` to name.
    """
    if conda_command.is_wanted(raw):
        raw = conda_command.expanded(raw)
    description: dict = {key: _text(raw.get(key)) for key in TEXT_KEYS}
    for key in LIST_KEYS:
        description[key] = [_text(item) for item in raw.get(key) or []]
    for key in DICT_KEYS:
        description[key] = {str(name): _text(value) for name, value in (raw.get(key) or {}).items()}
    description["functions"] = {
        str(name): {
            shell: _text(body.get(shell)) if isinstance(body, Mapping) else "" for shell in ("sh", "csh", "fish")
            if shell != "fish" or (isinstance(body, Mapping) and body.get("fish"))}
        for name, body in (raw.get("functions") or {}).items()}
    for key in PATH_KEYS:
        description[key] = [
            {"name": _text(entry.get("name")), "values": [_text(value) for value in entry.get("values") or []]}
            for entry in raw.get(key) or []]
    description["first_file"] = [
        {
            "variables": [_text(name) for name in entry.get("variables") or []],
            "candidates": [_text(path) for path in entry.get("candidates") or []],
            "missing": _text(entry.get("missing")),
        }
        for entry in raw.get("first_file") or []]
    description["also_named"] = [_text(name) for name in raw.get("also_named") or []]
    description["extensions"] = [_text(entry) for entry in raw.get("extensions") or []]
    for key in ("reasons", "first_file", "also_named", "extensions"):
        if not description[key]:
            del description[key]
    return description


def _text(value: object) -> object:
    if value is None:
        return ""
    return value if isinstance(value, (bool, list, dict)) else str(value)


def with_words_of(before: Mapping, description: Mapping) -> dict:
    """Return a description that tells people what another one does; see :data:`WORDS`."""
    kept = {key: before[key] for key in WORDS if key in before}
    return {**{key: value for key, value in description.items() if key != "extensions"}, **kept}


def under_each_name(description: Mapping) -> dict[str, dict]:
    """Return the description of each module that it stands for, by its name: its own first, then the further ones."""
    names = [description["name"], *description.get("also_named", [])]
    return {name: {**{key: value for key, value in description.items() if key != "also_named"}, "name": name}
            for name in names}


def comment_lines(description: Mapping, name: str) -> list[str]:
    """Return why the module changes a variable, as comment lines without their mark; none for no reason.

    A line never ends in a backslash, which would make the next line a part of the comment in Tcl.
    """
    lines = str(description.get("reasons", {}).get(name, "")).strip().split("\n")
    return [line + " ." if line.endswith("\\") else line for line in map(str.strip, lines) if line]


def first_files(description: Mapping) -> list[dict]:
    """Return the variables that name the first of some files that is there when the module is loaded.

    Each with ``variables``, ``candidates`` (literal paths in the order of choice) and ``missing``, the sentence with
    which a load fails where none of them is a regular file, or a link to one.
    """
    return list(description.get("first_file", []))


def search_paths(description: Mapping) -> dict:
    """Return the directories before and after the user's own, sorted: ``{variable: (before, after)}``."""
    found: dict = {}
    for index, key in enumerate(PATH_KEYS):
        for entry in description[key]:
            found.setdefault(entry["name"], ([], []))[index].extend(entry["values"])
    return {name: found[name] for name in sorted(found)}

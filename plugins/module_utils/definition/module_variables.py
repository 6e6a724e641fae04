# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Replace ``${NAME}`` in a release file by what the site's modules set. Pure.

A release file names the places of a vendor's software by the variables of its modules, as ``${CRAY_MPICH_DIR}``, and
its record holds what they stood for. ``$${`` is a literal ``${``, as in a modulefile's description.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, NamedTuple, Tuple, Union

from ..core.schema import copy_plain
from ..modulefiles.description import parse_value
from ..modulefiles.description_checks import IDENTITY
from . import components

Path = Tuple[Union[str, int], ...]
"""Keys and positions that lead to a text of a release file."""


def places() -> tuple[Path, ...]:
    """List the texts that are places of the machine, where an unknown name is a problem; ``*`` is any key."""
    return (
        ("mpi", "prefix"),
        ("cuda", "prefix"),
        ("cuda", "libraries", "*"),
        *(path for row in components.COMPONENTS for path in row.places),
        ("module", "external", "*"),
        ("module", "prepend", "*", "values", "*"),
        ("module", "append", "*", "values", "*"))


def build_variables() -> tuple[Path, ...]:
    """List the texts that are build variables; without modules they are literal, whatever they hold."""
    return (
        ("toolchain", "environment", "*"),
        ("toolchain", "steps", "*", "environment", "*"),
        *(path for row in components.COMPONENTS for path in row.environments),
        ("packages", "*", "environment", "*"))


class Expanded(NamedTuple):
    """A release file without references."""

    definition: dict[str, Any]
    written: dict[str, str]
    """Dotted path of each text that was replaced, with what the file says there."""
    problems: list[str]


def expand(definition: Mapping[str, Any], variables: Mapping[str, str], source: str = "") -> Expanded:
    """Replace every reference to a variable of the modules. ``variables``: what the modules of its toolchain set."""
    result = copy_plain(definition)
    written: dict[str, str] = {}
    found: list[str] = []
    modules = (definition.get("toolchain") or {}).get("modules") or []
    for pattern in places() + (build_variables() if modules else ()):
        for path, text in _texts(result, pattern):
            if "${" not in text:
                continue
            dotted = ".".join(map(str, path))
            kept = IDENTITY if pattern[0] == "module" else frozenset()
            try:
                meaning, unknown = _meaning(text, variables, kept)
            except ValueError as error:
                found.append("'%s'%s is not understood: %s." % (dotted, _in(source), error))
                continue
            found += [_unknown(name, dotted, source, modules) for name in unknown]
            if meaning != text:
                written[dotted] = text
                _place(result, path, meaning)
    return Expanded(result, written, found)


def restore(definition: Mapping[str, Any], written: Mapping[str, str]) -> dict[str, Any]:
    """Put back what a recorded release file had as it was written, to compare it with another one."""
    result = copy_plain(definition)
    for pattern in places() + build_variables():
        for path, _text in _texts(result, pattern):
            dotted = ".".join(map(str, path))
            if dotted in written:
                _place(result, path, written[dotted])
    return result


def _meaning(text: str, variables: Mapping[str, str], kept: frozenset[str]) -> tuple[str, list[str]]:
    """Resolve a text; return it with the names that nobody knows. Raises ValueError: a ``${`` that is no reference."""
    literal: Callable[[str], str] = (lambda part: part.replace("${", "$${")) if kept else str
    words, unknown = [], []
    for kind, content in parse_value(text):
        if kind == "text":
            words.append(literal(content))
        elif content in kept:
            words.append("${%s}" % content)
        elif content in variables:
            words.append(literal(variables[content]))
        else:
            unknown.append(content)
    return "".join(words), unknown


def _unknown(name: str, dotted: str, source: str, modules: list[str]) -> str:
    if not modules:
        return "'%s'%s has ${%s}, and toolchain.modules names no module that would set it; write the path itself." % (
            dotted, _in(source), name)
    return "'%s'%s has ${%s}, which none of the modules of toolchain sets (%s); correct the name, or write it out." % (
        dotted, _in(source), name, " ".join(modules))


def _in(source: str) -> str:
    return " in %s" % source if source else ""


def _texts(data: Any, pattern: Path, done: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield every text that a pattern leads to, with the way to it."""
    if not pattern:
        if isinstance(data, str):
            yield done, data
        return
    first, rest = pattern[0], pattern[1:]
    if isinstance(data, Mapping):
        keys: list[Any] = list(data) if first == "*" else [first] if first in data else []
    else:
        keys = list(range(len(data))) if first == "*" and isinstance(data, list) else []
    for key in keys:
        yield from _texts(data[key], rest, (*done, key))


def _place(data: Any, path: Path, text: str) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = text

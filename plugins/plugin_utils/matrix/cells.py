# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the releases of a matrix from its file. Pure."""

from __future__ import annotations

import itertools
import re
from typing import Any, Iterator, Mapping, NamedTuple

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest

AXES = ("extends", "release", "title", "change", "axes", "leave_out")
"""Keys of a matrix whose releases are made of axes."""

LIST = ("releases",)
"""Keys of one that names releases that there are."""

REASON = "reason"
HEADER = "# Made by bin/matrix of %s: correct that file, and have this one written again.\n"
_WORD = re.compile(r"\{(\w*)\}")


class MatrixError(Exception):
    """What is wrong with a matrix, in one sentence."""


class Cell(NamedTuple):
    """One release of a matrix."""

    release: str
    values: tuple[str, ...]
    """one of each axis"""
    content: dict[str, Any] | None
    """of its release file; None where that is written by hand"""

    def text(self, matrix: str) -> str:
        """Return its release file; ``matrix`` is the name of the matrix file."""
        dumped = yaml.safe_dump(self.content, sort_keys=False, width=120, allow_unicode=True)
        return "---\n" + HEADER % matrix + dumped


class Matrix(NamedTuple):
    """What a matrix file asks for."""

    axes: tuple[str, ...]
    cells: tuple[Cell, ...]
    left_out: tuple[tuple[str, str], ...]
    """releases that are not made, with the reason"""


def matrix(content: Mapping[str, Any]) -> Matrix:
    """Make the releases of a matrix file's data, in the order of its axes. Raises MatrixError: it cannot be used."""
    if "releases" in content:
        _known(content, LIST, "a matrix with releases")
        names = content["releases"]
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise MatrixError("'releases' is no list of names; write those of release files, each in quotes")
        _once(names)
        return Matrix((), tuple(Cell(name, (), None) for name in names), ())
    _known(content, AXES, "a matrix")
    axes = _axes(content)
    pattern = content.get("release")
    if not isinstance(content.get("extends"), str) or not isinstance(pattern, str):
        raise MatrixError("'extends' and 'release' are texts that a matrix has to have: the release that all differ "
                          "from, and the name of each, with axes in braces")
    for text in (pattern, str(content.get("title", ""))):
        for word in _WORD.findall(text):
            if word not in axes:
                raise MatrixError("'{%s}' names no axis%s" % (word, _near(word, axes)))
    lacks = [axis for axis in axes if "{%s}" % axis not in pattern]
    if lacks:
        raise MatrixError("'release' is %s, without {%s}, so that several releases would have one name" % (
            pattern, lacks[0]))
    dropped = list(_leave_out(content, axes))
    cells, left_out = [], []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values))
        name = _filled(pattern, chosen)
        reasons = [reason for picked, reason in dropped if picked.items() <= chosen.items()]
        if reasons:
            left_out.append((name, reasons[0]))
            continue
        made: dict[str, Any] = {"extends": content["extends"], "release": name}
        if "title" in content:
            made["title"] = _filled(str(content["title"]), chosen)
        made = lay_over(made, _mapping(content.get("change") or {}, "change"))
        for axis, value in chosen.items():
            made = lay_over(made, axes[axis][value])
        cells.append(Cell(name, values, made))
    _once([cell.release for cell in cells])
    if not cells:
        raise MatrixError("'leave_out' leaves no release")
    return Matrix(tuple(axes), tuple(cells), tuple(left_out))


def lay_over(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key; null of either stays, as it removes what the extended release has."""
    found = dict(first)
    for key, value in second.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = lay_over(found[key], value) if both else value
    return found


def _axes(content: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    axes = _mapping(content.get("axes"), "axes")
    if not axes:
        raise MatrixError("'axes' is empty; name at least one, with its values and what each changes")
    for axis, values in axes.items():
        if not re.fullmatch(r"[a-z_]+", str(axis)):
            raise MatrixError("'axes.%s' is no name of lower-case letters and underscores" % axis)
        for value, change in _mapping(values, "axes.%s" % axis).items():
            if not isinstance(value, str):
                raise MatrixError("'axes.%s' has the value %s, which YAML takes for a number; put it in quotes" % (
                    axis, value))
            for key in ("extends", "release", "title"):
                if key in _mapping(change, "axes.%s.%s" % (axis, value)):
                    raise MatrixError("'axes.%s.%s' has '%s', which is one for the whole matrix" % (axis, value, key))
    return {str(axis): {value: dict(change) for value, change in values.items()} for axis, values in axes.items()}


def _leave_out(
    content: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[dict[str, str], str]]:
    rules = content.get("leave_out") or []
    for rule in rules if isinstance(rules, list) else [rules]:
        picked = dict(_mapping(rule, "leave_out"))
        reason = picked.pop(REASON, None)
        if not isinstance(reason, str) or not picked:
            raise MatrixError("an entry of 'leave_out' has values of axes and a 'reason'; one of them is missing")
        for axis, value in picked.items():
            if axis not in axes:
                raise MatrixError("'leave_out' names the axis '%s'%s" % (axis, _near(axis, axes)))
            if value not in axes[axis]:
                raise MatrixError("'leave_out' names %s '%s'%s" % (axis, value, _near(str(value), axes[axis])))
        yield picked, reason


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MatrixError("'%s' is no mapping of keys to values" % path)
    return value


def _known(content: Mapping[str, Any], keys: tuple[str, ...], what: str) -> None:
    for key in content:
        if key not in keys:
            raise MatrixError("'%s' is no key of %s%s" % (key, what, _near(str(key), keys)))


def _near(word: object, names: Any) -> str:
    near = nearest(str(word), names)
    return "; did you mean '%s'?" % near if near else "; there are %s" % ", ".join(names)


def _once(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise MatrixError("release %s is there twice" % name)


def _filled(text: str, chosen: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: chosen[match.group(1)], text)

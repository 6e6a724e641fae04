# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Move the locks of a release file into files beside it; its comments, and all else in it, stay as they are. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks

NAMES = {
    "locks.tools": "tools.txt", "locks.base": "base.txt", "locks.conda": "conda.txt", "pytorch.lock": "pytorch.txt",
    "pytorch.cuda_lock": "pytorch-cuda.txt", "mpi.lock": "mpi.txt", "base.venv.lock": "venv.txt",
}
"""Files of locks that each release has at most one of."""

OF_CONDA = (("version: 6", "pixi.lock"), ("metadata:", "conda-lock.yml"), ("", "conda-packages.txt"))
"""Files of the lock of a conda base, by what is in it."""

OF_A_PACKAGE = {"lock": "", "requires": "-requires", "build_requires": "-build"}
_PACKAGE = re.compile(r"packages\[(\d+)\]\.(\w+)")
_BUNDLE = re.compile(r"bundles\[(\d+)\]\.lock")
_BLOCK = re.compile(r"[|>][-+0-9]*")


class Split(NamedTuple):
    """A release file without its locks."""

    text: str
    files: dict[str, str]
    """the locks by their file names"""


def split(text: str, content: Mapping[str, Any], directory: str) -> Split:
    """Move every lock that stands in the text of a release file to a file.

    Args:
        text: of the release file.
        content: its data, as written.
        directory: the name of the files' directory, beside the release file.

    Raises ValueError: a lock is written in a way that cannot be taken out.
    """
    nodes = _nodes(yaml.compose(text, Loader=yaml.SafeLoader), "")
    lines = text.splitlines(keepends=True)
    files, changes = {}, []
    for lock in locks.texts(content):
        if not lock.value or locks.is_file_name(lock.value):
            continue
        name = "%s/%s" % (directory, _file_name(lock.path, lock.value, content))
        files[name] = lock.value
        changes.append((nodes[lock.path], name, lock.path))
    for node, name, path in sorted(changes, key=lambda change: change[0].start_mark.index, reverse=True):
        first, last, column = node.start_mark.line, node.end_mark.line, node.start_mark.column
        head, tail = lines[first][:column], lines[first][column:]
        if node.style in ("|", ">") and _BLOCK.match(tail):
            lines[first:last] = [head + _BLOCK.sub(name, tail, count=1)]
        elif first == last:
            lines[first] = head + name + lines[first][node.end_mark.column:]
        else:
            raise ValueError("'%s' goes over several lines and is no block that begins with '|'; make it one." % path)
    return Split("".join(lines), files)


def _nodes(node: yaml.Node | None, path: str) -> dict[str, yaml.ScalarNode]:
    """Find the texts below a node of YAML, by their dotted paths."""
    found = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            found.update(_nodes(value, "%s.%s" % (path, key.value) if path else str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            found.update(_nodes(value, "%s[%d]" % (path, number)))
    elif isinstance(node, yaml.ScalarNode):
        found[path] = node
    return found


def _file_name(path: str, value: str, content: Mapping[str, Any]) -> str:
    if path == ".".join(locks.OF_CONDA):
        return next(name for begins, name in OF_CONDA if begins in value)
    of_package = _PACKAGE.fullmatch(path)
    if of_package:
        name = content["packages"][int(of_package.group(1))]["name"]
        return "packages/%s%s.txt" % (name, OF_A_PACKAGE[of_package.group(2)])
    of_bundle = _BUNDLE.fullmatch(path)
    if of_bundle:
        return "bundles/%s.txt" % content["bundles"][int(of_bundle.group(1))]["name"]
    return NAMES[path]

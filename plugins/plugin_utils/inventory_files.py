# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find where an inventory's variables are written, and keys that are there twice; on the control node."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lint_places import Places, Problem
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

ENDINGS = ("", ".yml", ".yaml", ".json")
"""Of files of variables, as Ansible knows them."""


class File(NamedTuple):
    """One file of the inventory."""

    name: str
    node: Any
    """of YAML; None where there is nothing in it, or nothing that can be read here"""
    problems: list[Problem]
    unreadable: bool = False


def shown(path: str | pathlib.Path) -> str:
    """Name a file as a terminal takes it: relative where it lies below the current directory."""
    absolute = os.path.abspath(path)
    relative = os.path.relpath(absolute)
    return absolute if relative.startswith("..") else relative


def directories(sources: Iterable[str], playbooks: str = "") -> list[pathlib.Path]:
    """List the directories in which ``group_vars`` and ``host_vars`` of these inventories may be."""
    paths = [pathlib.Path(source) for source in sources if "," not in source]
    found = [path if path.is_dir() else path.parent for path in paths]
    return list(dict.fromkeys([*([pathlib.Path(playbooks)] if playbooks else []), *found]))


def variable_files(place: pathlib.Path, kind: str, names: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yield the files of variables of some groups or hosts, in the order in which the later one wins.

    Args:
        place: the directory.
        kind: ``group_vars`` or ``host_vars``.
        names: of groups or hosts; empty for all.
    """
    below = place / kind
    every = sorted({path.name if path.is_dir() else path.stem for path in below.iterdir()}) if below.is_dir() else []
    for name in names or every:
        for ending in ENDINGS:
            path = below / (name + ending)
            if path.is_dir():
                yield from sorted(one for one in path.rglob("*") if one.is_file() and one.suffix in ENDINGS)
            elif path.is_file():
                yield path


def read(path: pathlib.Path) -> File:
    """Read one file; nothing is filled in or decrypted."""
    name = shown(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return File(name, None, [Problem(name, 0, "", "The file cannot be read: %s." % error)], True)
    if text.startswith("$ANSIBLE_VAULT;"):
        return File(name, None, [])
    try:
        node = yaml.compose(text, Loader=release_file.FAST)
    except yaml.MarkedYAMLError:
        return _broken(name, text)
    except yaml.YAMLError as error:
        return File(name, None, [Problem(name, 0, "", "That is no YAML: %s." % error)], True)
    return File(name, node, list(_repeated(node, name)))


def _broken(name: str, text: str) -> File:
    """Say what is wrong in the words of PyYAML's own parser, which libyaml shortens."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mistake = release_file.mistake_of(error, text)
        written = (text.splitlines() + [""] * mistake.line)[mistake.line - 1].strip()
        # What PyYAML says of a line that is moved to the side.
        what = "the indentation of this line fits none above it" if "expected <block end>" in str(mistake) else mistake
        said = "A mistake in YAML: %s.%s" % (what, " The line is: %s" % written if written else "")
        return File(name, None, [Problem(name, mistake.line, "", said)], True)
    return File(name, None, [])


def _repeated(node: Any, name: str) -> Iterator[Problem]:
    for key in release_file.repeated_keys(node, ""):
        yield Problem(name, key.line, key.path, "The key '%s' is there twice, first in line %d, and only the last one "
                                                "counts; keep one." % (key.path, key.first))


def all_files(sources: Sequence[str], playbooks: str) -> list[File]:
    """Read every file of the inventories, of whatever hosts."""
    paths = [pathlib.Path(source) for source in sources]
    found = [path for path in paths if path.is_file() and path.suffix in ENDINGS[1:]]
    for place in directories(sources, playbooks):
        for kind in ("group_vars", "host_vars"):
            found += variable_files(place, kind, [])
    return [read(path) for path in dict.fromkeys(found)]


def places_of(sources: Sequence[str], playbooks: str, groups: Sequence[str], host: str) -> tuple[Places, list[Problem]]:
    """Find where the variables of a host are written, and what is wrong with these files.

    Args:
        sources: the inventories.
        playbooks: the directory of the playbook.
        groups: of the host, those that contain others first.
        host: its name.
    """
    lines: dict[str, int] = {}
    files: dict[str, str] = {}
    problems: list[Problem] = []

    def take(node: Any, name: str) -> None:
        own = dict(release_file.lines_of(node, ""))
        for root in (path for path in own if "." not in path and "[" not in path):
            files[root] = name
            for old in [path for path in lines if path == root or path.startswith((root + ".", root + "["))]:
                del lines[old]
        lines.update(own)

    for path in (pathlib.Path(source) for source in sources):
        if path.is_file() and path.suffix in ENDINGS[1:]:
            file = read(path)
            problems += file.problems
            for node in _inline(file.node, groups, host):
                take(node, file.name)
    for place in directories(sources, playbooks):
        for kind, names in (("group_vars", groups), ("host_vars", [host])):
            for path in variable_files(place, kind, names):
                file = read(path)
                problems += file.problems
                take(file.node, file.name)
    main = files.get("torchstack_site", "") or next(iter(files.values()), "")
    return Places(lines, files, main, {}), problems


def _inline(node: Any, groups: Sequence[str], host: str) -> Iterator[Any]:
    """Yield the mappings of variables inside of a file of hosts: of these groups, then of the host."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, group in node.value:
        if not isinstance(group, yaml.MappingNode):
            continue
        parts = {part.value: inner for part, inner in group.value if isinstance(part, yaml.ScalarNode)}
        if key.value in groups and "vars" in parts:
            yield parts["vars"]
        yield from _inline(parts.get("children"), groups, host)
        hosts = parts.get("hosts")
        for name, inner in hosts.value if isinstance(hosts, yaml.MappingNode) else ():
            if name.value == host:
                yield inner

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what of a release file only an index or a repository knows, and write it there. Pure."""

from __future__ import annotations

from typing import Any, Collection, Iterator, Mapping, NamedTuple, Sequence, Union

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import components
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

COMMIT, SOURCE, ARCHIVE, WHEELS, IMAGE = "commit", "source", "archive", "wheels", "image"
Value = Union[str, "dict[str, list[str]]"]
"""A commit or a checksum; of wheels the checksums by interpreter tag."""


class Wanted(NamedTuple):
    """A value that is looked up."""

    path: str
    after: str
    """the key that it follows from, and stands behind"""
    kind: str
    asked: tuple[str, ...]
    """repository and tag; project and version; an address; index and version; or the name of an image"""
    now: Any
    """what the release file has; None for nothing"""


def wanted(content: Mapping[str, Any]) -> Iterator[Wanted]:
    """Yield what is looked up for a release file's data; what has the wrong type is passed over."""
    yield from _commits(content, "")
    for row in components.COMPONENTS:
        section = content.get(row.key)
        if row.distribution and "%s.sha256" % row.key in row.patterns and isinstance(section, Mapping):
            asked = (row.distribution, str(section.get("version")))
            yield Wanted(row.key + ".sha256", row.key + ".version", SOURCE, asked, section.get("sha256"))
    packages = content.get("packages")
    for number, entry in enumerate(packages if isinstance(packages, list) else ()):
        # One that is there is right or refused when it is fetched; to look it up again is to fetch it.
        if isinstance(entry, Mapping) and isinstance(entry.get("archive"), str) and "sha256" not in entry:
            path = "packages[%d]." % number
            yield Wanted(path + "sha256", path + "archive", ARCHIVE, (entry["archive"],), None)
    image = components.value_at(content, ("base", "image"))
    if isinstance(image, Mapping) and isinstance(image.get("file"), str) and not image.get("sha256"):
        yield Wanted("base.image.sha256", "base.image.file", IMAGE, (image["file"],), None)
    cpu = components.value_at(content, ("pytorch", "cpu"))
    if isinstance(cpu, Mapping) and isinstance(cpu.get("index"), str):
        asked = (cpu["index"], str(components.value_at(content, ("pytorch", "version"))))
        yield Wanted("pytorch.cpu.hashes", "pytorch.version", WHEELS, asked, cpu.get("hashes"))


def _commits(content: Any, path: str) -> Iterator[Wanted]:
    if isinstance(content, list):
        for number, value in enumerate(content):
            yield from _commits(value, "%s[%d]" % (path, number))
    if not isinstance(content, Mapping):
        return
    here = path + "." if path else ""
    if isinstance(content.get("repository"), str) and isinstance(content.get("tag"), str):
        asked = (content["repository"], content["tag"])
        yield Wanted(here + "commit", here + "tag", COMMIT, asked, content.get("commit"))
    for key, value in content.items():
        yield from _commits(value, here + str(key))


def own(asked: Wanted, paths: Collection[str]) -> bool:
    """Tell whether a release file itself says a value, or what it follows from; ``paths`` are those of its keys."""
    return asked.path in paths or asked.after in paths


def same(now: Any, found: Value) -> bool:
    """Tell whether a release file has a value already; the order of checksums is no matter."""
    if not isinstance(found, dict):
        return bool(now == found)
    listed = {str(tag): sorted([one] if isinstance(one, str) else one) for tag, one in (now or {}).items()}
    return listed == {tag: sorted(digests) for tag, digests in found.items()}


def told(asked: Wanted, found: Value) -> str:
    """Describe a change on one line."""
    if isinstance(found, dict):
        return "%s: those of %s %s, for %s" % (asked.path, asked.asked[0], asked.asked[1], ", ".join(found))
    return "%s %s -> %s (%s)" % (asked.path, str(asked.now or "(none)")[:12], found[:12], " ".join(asked.asked))


def written(text: str, changes: Sequence[tuple[Wanted, Value]]) -> str:
    """Write values into the text of a release file, in which all else stays.

    Raises ValueError: it is written in a way that they cannot be put into; the message is a sentence.
    """
    for asked, found in changes:
        lines, composed = text.splitlines(keepends=True), yaml.compose(text, Loader=yaml.SafeLoader)
        nodes = {path: (key, value) for path, key, value in release_file.nodes_of(composed, "")}
        key, value = nodes.get(asked.path, (None, None))
        if value is not None and isinstance(found, str) and value.start_mark.line == value.end_mark.line:
            at = lines[value.start_mark.line]
            lines[value.start_mark.line] = at[:value.start_mark.column] + found + at[value.end_mark.column:]
        elif value is not None and isinstance(found, dict) and not value.flow_style:
            last = max(node.end_mark.line for _path, (_key, node) in nodes.items()
                       if _path.startswith(asked.path) and isinstance(node, yaml.ScalarNode))
            lines[key.start_mark.line + 1:last + 1] = _block(found, key.start_mark.column + 2)
        else:
            behind = nodes.get(asked.after, (None, None))[0]
            beside = behind is not None and asked.after.rpartition(".")[0] == asked.path.rpartition(".")[0]
            if not beside or isinstance(found, dict) or _in_braces(nodes, asked.after):
                raise ValueError("'%s' cannot be written where it belongs; write it below its own key, on a line of "
                                 "its own: %s" % (asked.path, found))
            lines.insert(behind.start_mark.line + 1, "%s%s: %s\n" % (
                " " * behind.start_mark.column, asked.path.rpartition(".")[2], found))
        text = "".join(lines)
    return text


def _block(found: Mapping[str, list[str]], indent: int) -> list[str]:
    made = []
    for tag, digests in found.items():
        made.append("%s%s:\n" % (" " * indent, tag))
        made += ["%s  - %s\n" % (" " * indent, digest) for digest in digests]
    return made


def _in_braces(nodes: Mapping[str, tuple[Any, Any]], path: str) -> bool:
    holder = nodes.get(path.rpartition(".")[0], (None, None))[1]
    return bool(holder is not None and getattr(holder, "flow_style", False))

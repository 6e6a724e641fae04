# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read release files on the control node: plain data, never templates; a mistake in one is one sentence.

The schema that they are checked against is read here too. PyYAML comes with Ansible, and is not on every target.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Iterator, Mapping, NamedTuple

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import components
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lock_lines import Places
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import (
    derived_release,
    lock_files,
    release_parts,
    site_files,
)

ROLES = pathlib.Path(__file__).parents[2] / "roles"
OWN = "release"
"""The role whose argument specification has the keys of release files and of sites."""

TEMPLATES = ("{{", "{%")
MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key ``<<``, which may be there twice."""

FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class MistakeError(Exception):
    """A mistake in a text, with its place; lines and columns count from 1."""

    def __init__(self, what: str, line: int, column: int = 0) -> None:
        super().__init__(what)
        self.line, self.column = line, column


class FileError(ValueError):
    """A mistake in one of the files of a release, as a sentence with file, line and column."""

    def __init__(self, sentence: str, path: pathlib.Path) -> None:
        super().__init__(sentence)
        self.path = path


class Repeated(NamedTuple):
    """A key that is in its mapping already; lines and columns count from 1."""

    path: str
    line: int
    column: int
    first: int
    """line of the first one"""


class Read(NamedTuple):
    """A release file as it was read, with its parts."""

    content: dict[str, Any]
    """its data, over those of the release that it extends; each lock stands there as a text, also where it is a file,
    and of each of the site's files its content"""
    places: Places
    """of its keys, and the names of the files of its locks and parts; of what it has from another release, the line
    is that of ``extends``, or of the key over the other's where that is in a part"""
    inherited: frozenset[str]
    """the paths of what the file has from another one"""
    extends: str = ""
    """the name of that one; empty for none"""
    sources: Mapping[str, str] = {}
    """the names of the site's files that were read, by the dotted paths of their entries"""


def read(path: pathlib.Path, new_locks: bool = False) -> Read:
    """Read a release file, see :func:`parse`, with its parts, and the lock files that they name.

    With ``new_locks`` some locks may be missing. Raises ValueError: it cannot be read, or has a mistake; the message is
    one sentence with file, line and column, see :class:`FileError`.
    """
    content, lines, parts = release_parts.read(path, _parsed)
    name, inherited = content.pop(derived_release.KEY, None), frozenset[str]()
    if name is not None:
        line = lines[derived_release.KEY]
        parent = _parent(path, name, line)
        for vain in derived_release.removed_in_vain(parent, content):
            raise ValueError("The release file %s removes '%s' in line %d%s, which %s does not have." % (
                path, vain, lines.get(vain, line), _of_part(vain, parts), name))
        content = derived_release.merge(parent, content)
        inherited = frozenset(derived_release.paths(content)) - set(lines)
        lines.update((one, lines[root] if root in parts else line) for one in inherited for root in [Places.root(one)])
    places = Places(lock_files.fill_in(content, path, lines, new_locks), lines, parts)
    return Read(content, places, inherited, str(name or ""), site_files.fill_in(content, path, lines))


def _of_part(path: str, parts: dict[str, str]) -> str:
    name = parts.get(Places.root(path))
    return " of %s" % name if name else ""


def _parent(path: pathlib.Path, name: object, line: int) -> dict[str, Any]:
    """Read the release file that another one extends. Raises ValueError: it cannot be, or is extended already."""
    where = "The release file %s extends %s in line %d" % (path, name, line)
    parent = path.parent / ("%s.yml" % name)
    if not isinstance(name, str) or "/" in name or not parent.is_file():
        raise ValueError("%s, and beside it are only: %s." % (where, ", ".join(names_beside(parent)) or "none"))
    if parent == path:
        raise ValueError("%s, which is itself." % where)
    content = release_parts.read(parent, _parsed).content
    if derived_release.KEY in content:
        raise ValueError("%s, which extends %s itself: name that one, or write out what differs." % (
            where, content[derived_release.KEY]))
    return content


def _parsed(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Read one file, see :func:`read`."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return parse(text)
    except OSError as error:
        raise FileError("The release file %s cannot be read: %s." % (path, error.strerror), path) from error
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        raise FileError("The release file %s is not UTF-8 in line %d." % (path, line), path) from error
    except MistakeError as mistake:
        written = text.splitlines()[mistake.line - 1].strip() if mistake.line <= len(text.splitlines()) else ""
        raise FileError("The release file %s has a mistake in line %d%s: %s.%s" % (
            path, mistake.line, ", column %d" % mistake.column if mistake.column else "", mistake,
            " The line is: %s" % written if written else ""), path) from mistake


def absence(path: pathlib.Path, site: str) -> str:
    """Say that a release file is not there, and which are."""
    return "There is no release file %s. Site %s has %s." % (path, site, ", ".join(names_beside(path)) or "none")


def names_beside(path: pathlib.Path) -> list[str]:
    """List the names of the release files in the directory of one that is not there."""
    return sorted(other.stem for other in path.parent.glob("*.yml"))


def parse_record(text: str | None) -> dict[str, Any]:
    """Parse a resolved release file; empty where there is none. Raises ValueError: it is no YAML."""
    try:
        found = yaml.load(text or "{}", Loader=FAST)
    except yaml.YAMLError as error:
        raise ValueError("The recorded release file is no YAML: %s." % error) from error
    return found if isinstance(found, dict) else {}


@functools.lru_cache(maxsize=None)
def specified() -> dict[str, Any]:
    """Return the entry points of the role release: what may stand in a release file, and in a site's data.

    Keys of a release file may also stand in a component's own role, under ``release_file``. What a site expects of
    nodes stands in the role node_health, whose variables are under ``node_health``.
    """
    found = entry_points(ROLES / OWN)
    found["node_health"] = entry_points(ROLES / "node_health")["main"]
    for row in components.COMPONENTS:
        further = entry_points(ROLES / row.role).get("release_file") or {}
        found["release_file"]["options"].update(further.get("options") or {})
    return found


def entry_points(role: pathlib.Path) -> dict[str, Any]:
    """Read the entry points of a role from its argument specification."""
    text = (role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    return dict(yaml.load(text, Loader=FAST)["argument_specs"])


def parse(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Parse a release file: its data, and the line of each key and element by its path (``packages[0].name``).

    Raises MistakeError: it is no YAML, or no mapping, or has a key twice, or a template.
    """
    for number, line in enumerate(text.splitlines(), 1):
        for template in TEMPLATES:
            if template in (" " + line).partition(" #")[0]:
                raise MistakeError(
                    "it is plain data, in which no template is filled in", number, line.index(template) + 1)
    try:
        loader, node = _composed(text)
        if not isinstance(node, yaml.MappingNode):
            raise MistakeError("there are no keys with values at its top", 1)
        repeated = list(repeated_keys(node, ""))
        if repeated:
            said = ["'%s' is there twice, first in line %d" % (key.path, key.first) for key in repeated]
            further = ["; in line %d, %s" % (key.line, words) for key, words in zip(repeated[1:], said[1:])]
            raise MistakeError("the key " + said[0] + "".join(further), repeated[0].line, repeated[0].column)
        # Of nothing that is made of the nodes: merged keys are copies.
        lines = dict(lines_of(node, ""))
        data = _constructed(loader, node)
    except yaml.MarkedYAMLError as error:
        raise mistake_of(error, text) from error
    except yaml.reader.ReaderError as error:
        before = text[:error.position]
        raise MistakeError(
            "a character is not allowed there (%s)" % error.reason, before.count("\n") + 1,
            len(before) - before.rfind("\n")) from error
    return data, lines


def _constructed(loader: Any, node: yaml.MappingNode) -> Any:
    """Make data of a document. Raises MistakeError: a value looks like a date or number to YAML, and is none."""
    try:
        return loader.construct_document(node)
    except ValueError as error:
        for path, _key, value in nodes_of(node, ""):
            if not isinstance(value, yaml.ScalarNode):
                continue
            try:
                yaml.SafeLoader("").construct_object(value, deep=True)
            except ValueError:
                kind = "a date" if value.tag.endswith(":timestamp") else "a number"
                said = "'%s' is %s, which YAML takes for %s, and there is no such one (%s); put it in quotes" % (
                    path, value.value, kind, error)
                raise MistakeError(said, value.start_mark.line + 1, value.start_mark.column + 1) from error
        raise


def _composed(text: str) -> tuple[Any, Any]:
    """Read the nodes of a text, and return them with their loader. Raises yaml.YAMLError: it is no YAML."""
    try:
        loader = FAST(text)
        return loader, loader.get_single_node()
    except yaml.YAMLError:
        # In the words of PyYAML's own parser, which libyaml shortens.
        loader = yaml.SafeLoader(text)
        return loader, loader.get_single_node()


def lines_of(node: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield the path of each key and element below a node of YAML, with its line."""
    for here, key, _value in nodes_of(node, path):
        yield here, key.start_mark.line + 1


def nodes_of(node: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each key and element below a node of YAML, with the nodes of key and value.

    Of an element both are the same.
    """
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                here = "%s.%s" % (path, key.value) if path else key.value
                yield here, key, value
                yield from nodes_of(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            here = "%s[%d]" % (path, number)
            yield here, value, value
            yield from nodes_of(value, here)


def repeated_keys(node: Any, path: str) -> Iterator[Repeated]:
    """Yield each key below a node of YAML that its mapping has already."""
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            here, mark = "%s.%s" % (path, key.value) if path else key.value, key.start_mark
            if key.value in first and key.tag != MERGE:
                yield Repeated(here, mark.line + 1, mark.column + 1, first[key.value])
            first.setdefault(key.value, mark.line + 1)
            yield from repeated_keys(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from repeated_keys(value, "%s[%d]" % (path, number))


def mistake_of(error: yaml.MarkedYAMLError, text: str) -> MistakeError:
    """Describe a mistake as the reader of YAML tells it; or the quote that was not closed, where that is the cause."""
    what = ", ".join(word for word in (error.context, error.problem) if word)
    begins, mark = error.context_mark, error.problem_mark or error.context_mark
    if mark is None:
        return MistakeError(what, 1)
    if "quoted scalar" in str(error.context) and begins is not None:
        return MistakeError("a quote begins there and does not end", begins.line + 1, begins.column + 1)
    opened = None
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if token.start_mark.index >= mark.index:
                break
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                opened = token
    except yaml.YAMLError:
        pass
    if opened is not None and opened.start_mark.line < opened.end_mark.line == mark.line:
        return MistakeError(
            "a quote begins there and ends only in line %d" % (mark.line + 1), opened.start_mark.line + 1,
            opened.start_mark.column + 1)
    return MistakeError(what, mark.line + 1, mark.column + 1)

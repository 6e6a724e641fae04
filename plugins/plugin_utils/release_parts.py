# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put a release file together with the files that have some of its keys."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest

from . import derived_release

KEY = "parts"
"""Lists the files that have keys of the release file, each in a directory beside it."""

OF_THE_RELEASE_FILE = (KEY, derived_release.KEY, "release")
"""Keys that stand in the release file itself: what it is, and where the rest of it is."""

Parse = Callable[[pathlib.Path], "tuple[dict[str, Any], dict[str, int]]"]


class Whole(NamedTuple):
    """A release file with its parts."""

    content: dict[str, Any]
    lines: dict[str, int]
    """of each key and element, by its dotted path, in the file that it is in"""
    parts: dict[str, str]
    """the names of the parts, by the keys at the top that they have"""


def read(path: pathlib.Path, parse: Parse) -> Whole:
    """Read a release file and its parts.

    Args:
        path: the release file.
        parse: reads one file: its data, and the lines of its keys.

    Raises ValueError: a file cannot be read, lies elsewhere, or has a key that another one has; one sentence.
    """
    content, lines = parse(path)
    listed = content.pop(KEY, [])
    own = lines.pop(KEY, 0)
    if not isinstance(listed, list):
        raise ValueError("The release file %s has no list under '%s' in line %d; write one, such as "
                         "[parts/rules.yml]." % (path, KEY, own))
    places = [lines.pop("%s[%d]" % (KEY, number)) for number in range(len(listed))]
    whole = Whole(content, lines, {})
    for number, (name, line) in enumerate(zip(listed, places)):
        named = "The release file %s names the part %s in line %d" % (path, name, line)
        if name in listed[:number]:
            raise ValueError("%s, and named it in line %d; keep one of the two." % (named, places[listed.index(name)]))
        _add(whole, path, parse(_place(path, name, named)), name)
    return whole


def _place(path: pathlib.Path, name: object, named: str) -> pathlib.Path:
    """Return where a part is. Raises ValueError: nowhere, or where it may not be."""
    check_name(name, named)
    part = path.parent / str(name)
    if not part.is_file():
        near = nearest(part.name, [other.name for other in part.parent.glob("*.yml")])
        raise ValueError("%s, and there is no file %s%s." % (
            named, part, "; did you mean %s" % near if near else ""))
    return part


def check_name(name: object, named: str) -> None:
    """Refuse a part that is where a release file would be, or elsewhere. Raises ValueError, begun by ``named``."""
    words = name.split("/") if isinstance(name, str) else []
    if len(words) < 2 or not words[0] or ".." in words or not words[-1].endswith(".yml"):
        raise ValueError("%s, which has to be a file NAME.yml in a directory beside it." % named)


def _add(whole: Whole, path: pathlib.Path, read_part: tuple[dict[str, Any], dict[str, int]], name: str) -> None:
    content, lines = read_part
    for key in content:
        here = "'%s' is in %s, line %d" % (key, name, lines[key])
        if key in OF_THE_RELEASE_FILE:
            raise ValueError("%s, a part of %s; it stands in the release file itself." % (here, path))
        if key in whole.content:
            raise ValueError("%s, and in %s, line %d, both of the release %s; keep one of the two." % (
                here, whole.parts.get(key, path.name), whole.lines[key], path))
        whole.parts[key] = name
    whole.content.update(content)
    whole.lines.update(lines)

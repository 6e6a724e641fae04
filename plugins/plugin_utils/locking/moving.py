# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Move locks, or whole keys, of a release file into files of their own; what it asks for stays the same."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any, Mapping, NamedTuple, Sequence

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file, release_parts

from . import split

SAME, CHANGED = 0, 1
SCHEMA = "# yaml-language-server: $schema="
OF_A_FILE, OF_A_PART = "release-file.schema.json", "release-file-part.schema.json"
WIDTH = 120


class LockError(Exception):
    """Why nothing was done, in one sentence."""


class Moved(NamedTuple):
    """A release file, and a part of it."""

    text: str
    part: str


def replace(path: pathlib.Path, text: str) -> None:
    """Write a file as a whole, with the directories that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(str(path), text.encode("utf-8"))


def split_up(path: pathlib.Path, check: bool) -> int:
    """Move the locks of a release file, and of its parts, into files beside it.

    Raises LockError, ValueError: nothing was changed.
    """
    parts = release_file.read(_there(path), new_locks=True).places.parts
    files = [path.parent / name for name in dict.fromkeys((path.name, *parts.values()))]
    found = {file: one for file in files for one in [_split_file(file, path)] if one.files}
    if not found:
        print("%s has no lock in itself." % path)
        return SAME
    for file, one in found.items():
        print("%s: %d lines instead of %d, and files in %s/: %d." % (
            file.name, one.text.count("\n"), file.read_text(encoding="utf-8").count("\n"), path.stem, len(one.files)))
    if check:
        return CHANGED
    for file, one in found.items():
        for name, lock_text in one.files.items():
            replace(path.parent / name, lock_text)
        replace(file, one.text)
    return SAME


def _split_file(file: pathlib.Path, path: pathlib.Path) -> split.Split:
    """Cut the locks out of one file of a release. Raises LockError: they cannot be."""
    text = file.read_text(encoding="utf-8")
    content, _lines = release_file.parse(text)
    found = split.split(text, content, path.stem)
    there = [name for name in found.files if (path.parent / name).exists()]
    if there:
        raise LockError("%s is there already; remove it, or name it in the release file." % (path.parent / there[0]))
    again, _lines = release_file.parse(found.text)
    for lock in locks.texts(again):
        lock.put(found.files.get(lock.value, lock.value))
    if digest_of(again) != digest_of(content):
        raise LockError("%s would not say the same any more; move its locks by hand." % file)
    return found


def move_keys(path: pathlib.Path, keys: Sequence[str], to: str | None, check: bool) -> int:
    """Move keys at the top of a release file into files of their own, or all into one, which may be there.

    Raises LockError, ValueError: nothing was changed.
    """
    parts = {*release_file.read(_there(path), new_locks=True).places.parts.values()}
    before = text = path.read_text(encoding="utf-8")
    written: dict[str, str] = {}
    for key in dict.fromkeys(keys):
        name = to or "%s/%s.yml" % (path.stem, key)
        file = path.parent / name
        release_parts.check_name(name, "The part %s" % name)
        there = written.get(name, "")
        if not there and file.exists():
            if name not in parts:
                raise LockError("%s is there already, and is no part of %s; name another one by --to." % (file, path))
            there = file.read_text(encoding="utf-8")
        text, written[name] = moved(text, key, name, there)
    kept = [(path.parent / name).read_text(encoding="utf-8") for name in parts - {*written}]
    old = [(path.parent / name).read_text(encoding="utf-8") for name in parts & {*written}]
    if _digest(text, *kept, *written.values()) != _digest(before, *kept, *old):
        raise LockError("%s would not say the same any more; move %s by hand." % (path, ", ".join(keys)))
    print("%s: %d lines instead of %d, and %s." % (
        path.name, text.count("\n"), before.count("\n"), ", ".join(written)))
    return _write(path, text, written, check)


def own_keys(path: pathlib.Path, keys: Sequence[str], check: bool) -> int:
    """Give a release keys of the one that it extends, each as a part with copies of its locks, which it may change.

    Raises LockError, ValueError: nothing was changed.
    """
    own = release_file.read(_there(path), new_locks=True)
    text, other = path.read_text(encoding="utf-8"), path.with_name(own.extends + ".yml")
    if not own.extends:
        raise LockError("%s extends no other release, so that all of its keys are its own." % path)
    places = release_file.read(other).places
    written: dict[str, str] = {}
    for key in dict.fromkeys(keys):
        if key in own.places.parts or key in release_file.parse(text)[0]:
            raise LockError("'%s' is %s's own already." % (key, path))
        name = "%s/%s.yml" % (path.stem, key)
        whole = (other.parent / places.parts.get(key, other.name)).read_text(encoding="utf-8")
        part = _head(text, name) + _text_of(whole, key)
        for lock in sorted({file for at, file in places.files.items() if places.root(at) == key}, reverse=True):
            new = "%s/%s" % (path.stem, lock.partition("/")[2] or lock)
            part = re.sub(r"(?<![\w/.-])%s(?![\w/.-])" % re.escape(lock), new, part)
            written[new] = (other.parent / lock).read_text(encoding="utf-8")
        written[name] = part
        text = _with_names(text, [*release_file.parse(text)[0].get(release_parts.KEY, []), name])
    there = [name for name in written if (path.parent / name).exists()]
    if there:
        raise LockError("%s is there already; remove it, or give %s that key by hand." % (path.parent / there[0], path))
    print("%s: %s of its own, in %s." % (path.name, ", ".join(keys), ", ".join(sorted(written))))
    return _write(path, text, written, check)


def _write(path: pathlib.Path, text: str, written: Mapping[str, str], check: bool) -> int:
    """Write what stands beside a release file, by names relative to its directory, and then it; or only say so."""
    if check:
        return CHANGED
    for name, beside in written.items():
        replace(path.parent / name, beside)
    replace(path, text)
    return SAME


def _text_of(text: str, key: str) -> str:
    """Return the text of a key at the top, with the comments above it. Raises LockError: there is none."""
    free = [one for one in release_file.parse(text)[0] if one not in release_parts.OF_THE_RELEASE_FILE]
    if key not in free:
        near = nearest(key, free)
        raise LockError("'%s' is none of the keys that can be moved%s; there are %s." % (
            key, ", did you mean '%s'" % near if near else "", ", ".join(free)))
    lines = text.splitlines(keepends=True)
    return "".join(lines[slice(*_extent(text, lines, key))])


def _digest(*texts: str) -> str:
    """Digest what the files of a release say together."""
    whole: dict[str, Any] = {}
    for text in texts:
        whole.update(release_file.parse(text)[0])
    whole.pop(release_parts.KEY, None)
    return digest_of(whole)


def _there(path: pathlib.Path) -> pathlib.Path:
    if not path.is_file():
        raise LockError(release_file.absence(path, path.parent.parent.name))
    return path


def moved(text: str, key: str, name: str, part: str = "") -> Moved:
    """Move the text of a key at the top, with the comments above it, from a release file to the end of a part.

    Args:
        text: of the release file.
        key: what is moved.
        name: of the part, which the release file names afterwards.
        part: its text; empty for a new one.

    Raises LockError: the release file itself does not have the key, or shares an anchor with it.
    """
    content, own = release_file.parse(text)[0], _text_of(text, key)
    lines = text.splitlines(keepends=True)
    first, last = _extent(text, lines, key)
    names = [*content.get(release_parts.KEY, []), *([name] if name not in content.get(release_parts.KEY, []) else [])]
    part = (part or _head(text, name)) + own
    try:
        release_file.parse(part)
        return Moved(_with_names("".join(lines[:first] + lines[last:]), names), part)
    except release_file.MistakeError as error:
        raise LockError("'%s' cannot stand in a file of its own (%s); write out what it shares with another key." % (
            key, error)) from error


def _extent(text: str, lines: Sequence[str], key: str) -> tuple[int, int]:
    """Return the first line of a key at the top, with the comments right above it, and that behind its last one."""
    whole: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    begins = {node.value: node.start_mark.line for node, _value in whole.value}
    own = begins[key]
    behind = min((line for line in begins.values() if line > own), default=len(lines))
    return _above(lines, own), _above(lines, behind) if behind < len(lines) else len(lines)


def _above(lines: Sequence[str], line: int) -> int:
    """Go up from a key to the first of the comments that stand right above it, but for those at the head of a file."""
    up = line
    while up > 0 and lines[up - 1].startswith("#"):
        up -= 1
    return line if up <= 1 and lines[0].startswith("---") else up


def _with_names(text: str, names: Sequence[str]) -> str:
    """Have a release file name its parts, below what says which release it is."""
    lines, found = text.splitlines(keepends=True), release_file.parse(text)[0]
    if release_parts.KEY in found:
        first, last = _extent(text, lines, release_parts.KEY)
        del lines[first:last]
        text = "".join(lines)
        found = release_file.parse(text)[0]
    row = "%s: [%s]\n" % (release_parts.KEY, ", ".join(names))
    if len(row) > WIDTH:
        row = "%s:\n%s" % (release_parts.KEY, "".join("  - %s\n" % name for name in names))
    heads = [key for key in found if key in (*release_parts.OF_THE_RELEASE_FILE, "title")]
    at = max(_extent(text, lines, key)[1] for key in heads) if heads else 1
    return "".join([*lines[:at], row, *lines[at:]])


def _head(text: str, name: str) -> str:
    """Return how a new part begins: with the schema for editors, where the release file names one of a directory."""
    named = re.search(r"(?m)^%s(\S+)$" % re.escape(SCHEMA), text)
    if not named:
        return "---\n"
    place = named.group(1).replace(OF_A_FILE, OF_A_PART)
    up = "" if "://" in place or os.path.isabs(place) else "../" * name.count("/")
    return "---\n%s%s%s\n" % (SCHEMA, up, place)

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and plan the site's own files of a release, ``files`` of a release file. Pure.

What is in each of them is a part of the release file's data, in base64: a file may have any bytes, and a release's own
stored file is whole.
"""

from __future__ import annotations

import base64
import posixpath
import re
from typing import Any, Iterator, Mapping

from ..core import redaction
from . import components, left_over, verification_rules

KEY = "files"

LIMIT = 100 * 1024
"""Bytes that one file may have: the data of a release file go through every task."""

PACKAGES = "site-packages"
"""The place below a base that stands for its directory of Python packages, wherever that is."""

PLACES = ("bin", "etc", "share", PACKAGES)
"""Where files may lie below a base; everything else there belongs to the base, or to steps of a rollout."""

TAKEN: dict[str, str] = {
    r"bin/extend-venv-activate": "the release's own command",
    r"etc/conda/(activate\.d|deactivate\.d)/zz-torchstack\.sh|etc/conda/torchstack(/.*)?": "conda's activation",
    r"site-packages/(.*/)?[^/]+\.(dist|egg)-info(/.*)?": "what pip records of packages",
    r"(.*/)?__pycache__(/.*)?": "Python",
}
"""Places that something writes later, as a regular expression for the path, or that stand for more than a file."""


def entries(definition: object) -> list[dict[str, Any]]:
    """Return the files with their paths; none of what has the wrong type."""
    found = definition.get(KEY) if isinstance(definition, Mapping) else None
    return [one for one in (found if isinstance(found, list) else [])
            if isinstance(one, dict) and isinstance(one.get("path"), str)]


def problems(definition: object, source: str = "") -> list[str]:
    """Find files that contradict themselves, each other or what a release has anyway, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here.
    """
    found: list[str] = []
    listed = definition.get(KEY) if isinstance(definition, Mapping) else None
    seen: dict[str, int] = {}
    for number, entry in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(entry, dict) and isinstance(definition, Mapping):
            where = " in %s" % source if source else ""
            found += ["'%s[%d]%s'%s %s." % (KEY, number, "." + key if key else "", where, trouble) for key, trouble in (
                *_place_troubles(entry, number, seen), *_content_troubles(entry), *_word_troubles(entry, definition))]
    return found


def _place_troubles(entry: Mapping[str, Any], number: int, seen: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Find what is wrong with the place of one file: the key, and what is the matter; ``seen`` has those before it."""
    path = entry.get("path")
    if not isinstance(path, str):
        return
    for other, before in seen.items():
        if path == other:
            yield "path", "is %s, and so is '%s[%d].path'; keep one of the two" % (path, KEY, before)
        elif path.startswith(other + "/") or other.startswith(path + "/"):
            yield "path", "is %s, and '%s[%d].path' is %s: one of them would be a directory and a file" % (
                path, KEY, before, other)
    seen.setdefault(path, number)
    for pattern, whose in TAKEN.items():
        if re.fullmatch(pattern, path):
            yield "path", "is %s, which belongs to %s; give it another path" % (path, whose)


def _content_troubles(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find what is wrong with what is in one file, likewise."""
    if "source" in entry and "content" in entry:
        yield "", "has both source and content; keep source, a file in a directory beside the release file"
    elif "source" not in entry and "content" not in entry:
        yield "", "has no source; name a file in a directory beside the release file"
    if not isinstance(entry.get("content"), str):
        return
    data = _decoded(entry)
    if data is None:
        yield "content", "is not base64; name a file as source, and leave content out"
    elif len(data) > LIMIT:
        yield "", "is larger than %d KiB; bring it as a wheel, under packages" % (LIMIT // 1024)
    elif _is_text(data):
        for _path, what in redaction.credentials_in(data.decode("utf-8")):
            yield "", "has %s in it, which everybody may read in the release; keep it in a file of the account" % what


def _word_troubles(entry: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find what is wrong with the words that are filled in into one file, likewise."""
    data, fill = _decoded(entry), entry.get("fill")
    words = [word for word in fill if isinstance(word, str)] if isinstance(fill, list) else []
    if words and data is not None and not _is_text(data):
        yield "fill", "is of a file that is no text in UTF-8; take it out"
        return
    for word in words:
        trouble = _word_trouble(word, definition)
        if trouble:
            yield "fill", "has {%s}, and %s" % (word, trouble)
        elif data is not None and b"{%s}" % word.encode("utf-8") not in data:
            yield "fill", "has {%s}, which the file does not have; take it out there, or write it into the file" % word


def _word_trouble(word: str, definition: Mapping[str, Any]) -> str:
    """Say what is wrong with a word, as the end of a sentence; empty for one that stands for a text."""
    keys = verification_rules.PARTS.get(word, tuple(word.split(".")))
    if keys[0] in left_over.parts() and keys[0] not in definition:
        return "the release has no '%s'; take it out, or add that" % keys[0]
    value = components.value_at(definition, keys)
    if word in left_over.ALWAYS or (word in verification_rules.PARTS and value is not None) or _is_scalar(value):
        return ""
    known = {*left_over.ALWAYS, *verification_rules.PARTS}
    return "nobody knows what it stands for. %s" % verification_rules.advice(word, known).rstrip(".")


def _decoded(entry: Mapping[str, Any]) -> bytes | None:
    """Return what is in a file; None where that is not known."""
    try:
        return base64.b64decode(entry["content"], validate=True)
    except (KeyError, TypeError, ValueError):  # binascii.Error is a ValueError
        return None


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def place_of(path: str, base: Mapping[str, Any]) -> str:
    """Return where a file lies, relative to the base, of which ``prefix`` and ``site_packages`` are taken."""
    place, _slash, below = path.partition("/")
    if place == PACKAGES:
        place = posixpath.relpath(str(base["site_packages"]), str(base["prefix"]))
    return "%s/%s" % (place, below)


def planned_files(
    given: object, base: Mapping[str, Any], words: Mapping[str, Any], definition: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Plan files without problems.

    Args:
        given: the entries.
        base: the description of the base, of which ``prefix`` and ``site_packages`` are taken.
        words: what stands for what.
        definition: the resolved release file.

    Returns:
        Per file ``name`` (its path as written), ``path`` (below the base), ``mode`` (as chmod takes it), ``content``
        (base64) and ``words`` (what stands there in braces, and what it is replaced by).

    Raises ValueError: nobody knows a word.
    """
    found = []
    for entry in entries({KEY: given}):
        asked = {word: "{%s}" % word for word in entry.get("fill") or []}
        found.append({
            "name": entry["path"],
            "path": place_of(entry["path"], base),
            "mode": "0755" if entry.get("executable") else "0644",
            "content": entry["content"],
            "words": verification_rules.filled(asked, words, definition),
        })
    return found

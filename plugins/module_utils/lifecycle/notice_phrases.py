# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""One difference between two releases as one phrase of an announcement. Pure.

A phrase is a list of pieces, each ``text`` or ``code`` with what it says, so that one wording serves Markdown and plain
text, and nothing of what a record says is taken for markup.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence

from ..core.lenient_json import mapping
from ..core.versions import CHANGED
from .notice_diff import ADDED, REBUILT, REMOVED

Phrase = list

_KINDS = {"git": "source", "archive": "source", "wheel": "a wheel", "site": "the system", "image": "the image"}


def code(text: str) -> dict[str, str]:
    """A piece of a phrase that is to be read letter by letter."""
    return {"code": text}


def phrase(*pieces: Any) -> Phrase:
    """A phrase of texts and of :func:`code`."""
    return [piece if isinstance(piece, dict) else {"text": piece} for piece in pieces if piece]


def marked(sentence: str) -> Phrase:
    """A sentence in which backquotes are around code."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:
        return phrase(sentence)
    return phrase(*(code(part) if index % 2 else part for index, part in enumerate(parts)))


def ended(sentence: str) -> str:
    """A sentence with its full stop."""
    return sentence if not sentence or sentence[-1] in ".!?" else sentence + "."


def package(row: Mapping[str, str]) -> str:
    """A package and its version, or both of them."""
    if row["change"] in (ADDED, REMOVED):
        return "%s %s" % (row["name"], row["after"] or row["before"])
    return "%s %s → %s" % (row["name"], row["before"], row["after"])


def flags(rows: Sequence[Mapping[str, str]]) -> Phrase:
    """The build options of one part."""
    now: list[Any] = []
    gone: list[Any] = []
    for row in rows:
        if row["change"] == REMOVED:
            gone += [", ", code("%s=%s" % (row["name"], row["before"]))]
        else:
            was = [" (was ", code(row["before"]) if row["before"] else "empty", ")"]
            now += [", ", code("%s=%s" % (row["name"], row["after"])), *(was if row["change"] == CHANGED else [])]
    parts = [*(["now ", *now[1:]] if now else []), "; " if now and gone else "",
             *(["no longer ", *gone[1:]] if gone else [])]
    return phrase(rows[0]["component"], ": ", *parts)


def setting(row: Mapping[str, str]) -> Phrase:
    """What loading the module does otherwise."""
    kind, change, name = row["kind"], row["change"], code(row["name"])
    gone = change == REMOVED
    if kind == "variable":
        return _variable(row)
    if kind == "order":
        return phrase("The directories in ", name, " come in another order.")
    if kind == "directory":
        return phrase(code(row["before"] or row["after"]), " is no longer in " if gone else " is now in ", name, ".")
    if change == CHANGED:
        return phrase("The %s " % kind.replace("function", "shell function"), name, " has changed.")
    new, old, end = {
        "unset": ("It now unsets ", "It no longer unsets ", "."),
        "module": ("It now loads ", "It no longer loads ", " along."),
        "conflict": ("It cannot be loaded together with ", "It can now be loaded together with ", "."),
        "alias": ("It now has the alias ", "It no longer has the alias ", "."),
        "function": ("It now has the shell function ", "It no longer has the shell function ", "."),
    }[kind]
    return phrase(old if gone else new, name, end)


def _variable(row: Mapping[str, str]) -> Phrase:
    name, was, now = code(row["name"]), *(code(row[key]) if row[key] else "empty" for key in ("before", "after"))
    if row["change"] == REMOVED:
        return phrase(name, " is no longer set; it was ", was, ".")
    reason = phrase(" ") + marked(ended(row["reason"])) if row["reason"] else []
    if row["change"] == ADDED:
        return phrase(name, " is now set to ", now, ".") + reason
    return phrase(name, " is now ", now, ", no longer ", was, ".") + reason


def problem(entry: Mapping[str, str]) -> Phrase:
    """A known problem with what to do about it."""
    sentences = [ended(entry[key]) for key in ("problem", "workaround") if entry.get(key)]
    return marked(" ".join(sentences + (["See %s" % entry["url"]] if entry.get("url") else [])))


def remarks(row: Mapping[str, Any]) -> list[Phrase]:
    """What differs of a part besides its version."""
    found = []
    name = row["name"]
    if row["change"] == CHANGED and row.get("commits"):
        was, now = (code(commit[:12]) for commit in row["commits"])
        found.append(phrase(name, " is of commit ", now, " now, no longer of ", was, "."))
    if row["change"] == REBUILT:
        found.append(phrase(name, " is of another file of the same version."))
    kinds = [_KINDS.get(kind, kind) for kind in row.get("kinds", [])]
    if kinds and kinds[0] != kinds[1]:
        found.append(phrase(name, " comes from %s now, no longer from %s." % (kinds[1], kinds[0])))
    if row.get("places"):
        was, now = map(code, row["places"])
        found.append(phrase(name, " is in ", now, " now, no longer in ", was, "."))
    patches = mapping(row.get("patches"))
    added, removed = (set(patches.get(key, [])) for key in (ADDED, REMOVED))
    for words, names in (
        ("is now patched with ", added - removed), ("is no longer patched with ", removed - added),
        ("has another version of its patch ", added & removed),
    ):
        if names:
            found.append(phrase(name, " ", words, *_listed(sorted(names)), "."))
    return found


def _listed(names: Iterable[str]) -> list[Any]:
    pieces: list[Any] = []
    for name in names:
        pieces += [", ", code(name)] if pieces else [code(name)]
    return pieces

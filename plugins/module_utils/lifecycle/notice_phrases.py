# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write one difference between two releases as one phrase of an announcement. Pure.

A phrase is a list of pieces, each ``text`` or ``code`` with what it says, so that one wording serves Markdown and plain
text, and nothing of what a record says is taken for markup.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any, Iterable, Mapping, Sequence

from ..core.lenient_json import mapping
from ..core.versions import CHANGED
from ..definition.known_problems import with_full_stop
from .notice_diff import ADDED, REBUILT, REMOVED

Phrase = list

_KINDS = {"git": "source", "archive": "source", "wheel": "a wheel", "site": "the system", "image": "the image"}


def code(text: str) -> dict[str, str]:
    """Return a piece of a phrase that is to be read letter by letter."""
    return {"code": text}


def phrase(*pieces: Any) -> Phrase:
    """Return a phrase of texts and of :func:`code`."""
    return [piece if isinstance(piece, dict) else {"text": piece} for piece in pieces if piece]


def parse_backquotes(sentence: str) -> Phrase:
    """Return a sentence in which backquotes are around code."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:
        return phrase(sentence)
    return phrase(*(code(part) if index % 2 else part for index, part in enumerate(parts)))


def package_phrase(row: Mapping[str, str]) -> str:
    """Return a package and its version, or both of them."""
    if row["change"] in (ADDED, REMOVED):
        return "%s %s" % (row["name"], row["after"] or row["before"])
    return "%s %s → %s" % (row["name"], row["before"], row["after"])


def file_phrase(row: Mapping[str, str]) -> Phrase:
    """Tell what became of a file of the site's own."""
    words = {ADDED: " is new.", REMOVED: " is no longer there."}
    return phrase(code(row["name"]), words.get(row["change"], " has changed."))


def flags_phrase(rows: Sequence[Mapping[str, str]]) -> Phrase:
    """Return the build options of one part."""
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


def setting_phrase(row: Mapping[str, str]) -> Phrase:
    """Tell what loading the module does otherwise."""
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
    reason = phrase(" ") + parse_backquotes(with_full_stop(row["reason"])) if row["reason"] else []
    if row["change"] == ADDED:
        return phrase(name, " is now set to ", now, ".") + reason
    return phrase(name, " is now ", now, ", no longer ", was, ".") + reason


def problem_phrase(entry: Mapping[str, str]) -> Phrase:
    """Return a known problem with what to do about it."""
    sentences = [with_full_stop(entry[key]) for key in ("problem", "workaround") if entry.get(key)]
    return parse_backquotes(" ".join(sentences + (["See %s" % entry["url"]] if entry.get("url") else [])))


def part_remarks(row: Mapping[str, Any]) -> list[Phrase]:
    """Tell what differs of a part besides its version."""
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


WIDTH = 72
"""Columns of plain text, as mail has them."""

_SPECIAL = re.compile(r"([\\`*\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_AT_BEGIN = re.compile(r"^(\s*)(\d{1,9}(?=[.)])|[-+=>#]*(?=[-+=>#]))(.)(?=\s|$)")
_ADDRESS = re.compile(r"https?://[^\s<>\\`|]+[^\s<>\\`|.,;:)]")
_KEPT = "\u00a0"
_ASCII = {0x2013: "-", 0x2192: "->"}


def markdown(phrase: Sequence[Mapping[str, str]] | str) -> str:
    """Return a phrase as Markdown with no markup but code and addresses (CommonMark and tables)."""
    pieces = [{"text": phrase}] if isinstance(phrase, str) else phrase
    return _AT_BEGIN.sub(r"\1\2\\\3", "".join(
        _fenced(one_line(piece["code"])) if "code" in piece else _escaped(one_line(piece["text"])) for piece in pieces))


def _escaped(text: str) -> str:
    """Return a text as Markdown; addresses stay as they are, which readers make links of."""
    parts, begin = [], 0
    for match in _ADDRESS.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[begin:match.start()]), "<%s>" % match.group()]
        begin = match.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\1", text[begin:])])


def _fenced(text: str) -> str:
    """Put a text between more backquotes than it has in a row; a bar would end the cell of a table."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return "%s%s%s%s%s" % (fence, room, text.replace("|", "\\|"), room, fence)


def plain(phrase: Sequence[Mapping[str, str]] | str, begin: str = "", width: int = WIDTH) -> str:
    """Return a phrase as lines of plain text, indented as far as ``begin``; a word that is longer stays whole."""
    pieces = [{"text": phrase}] if isinstance(phrase, str) else phrase
    said = "".join(
        _quoted(one_line(piece["code"]), width) if "code" in piece else one_line(piece["text"]) for piece in pieces)
    lines = textwrap.wrap(
        said.translate(_ASCII), width, initial_indent=begin, subsequent_indent=" " * len(begin), break_long_words=False,
        break_on_hyphens=False)
    return "\n".join(lines).replace(_KEPT, " ")


def _quoted(code: str, width: int) -> str:
    """Put code of several words in quotation marks; a short one stays on one line, as it is to be typed."""
    if " " not in code:
        return code
    return '"%s"' % (code.replace(" ", _KEPT) if len(code) < width - 10 else code)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int = WIDTH) -> str:
    """Return a table as lines of plain text, two blanks between its columns."""
    cells = [list(head), *([plain(cell, width=10000) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * size for size in widths), *lines[1:]])


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters; blanks at its ends stay."""
    return re.sub(r"\s", " ", "".join(sign if sign.isprintable() or sign.isspace() else " " for sign in text))

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A phrase of an announcement as Markdown and as plain text. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import Any, Mapping, Sequence

WIDTH = 72
"""Columns of plain text, as mail has them."""

_SPECIAL = re.compile(r"([\\`*\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_AT_BEGIN = re.compile(r"^(\s*)(\d{1,9}(?=[.)])|[-+=>#]*(?=[-+=>#]))(.)(?=\s|$)")
_ADDRESS = re.compile(r"https?://[^\s<>\\`|]+[^\s<>\\`|.,;:)]")
_KEPT = "\u00a0"
_ASCII = {0x2013: "-", 0x2192: "->"}


def markdown(phrase: Sequence[Mapping[str, str]] | str) -> str:
    """A phrase as Markdown, which finds no markup in it but that of code and of addresses (CommonMark and tables)."""
    pieces = [{"text": phrase}] if isinstance(phrase, str) else phrase
    return _AT_BEGIN.sub(r"\1\2\\\3", "".join(
        _fenced(one_line(piece["code"])) if "code" in piece else _escaped(one_line(piece["text"])) for piece in pieces))


def _escaped(text: str) -> str:
    """A text as Markdown; addresses stay as they are, which readers make links of."""
    parts, begin = [], 0
    for match in _ADDRESS.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[begin:match.start()]), "<%s>" % match.group()]
        begin = match.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\1", text[begin:])])


def _fenced(text: str) -> str:
    """A text as code: between more backquotes than it has in a row; a bar would end the cell of a table."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return "%s%s%s%s%s" % (fence, room, text.replace("|", "\\|"), room, fence)


def plain(phrase: Sequence[Mapping[str, str]] | str, begin: str = "", width: int = WIDTH) -> str:
    """A phrase as lines of plain text.

    Args:
        phrase: the phrase, or a text.
        begin: what the first line begins with; the others are indented as far.
        width: columns; a word that is longer stays whole.
    """
    pieces = [{"text": phrase}] if isinstance(phrase, str) else phrase
    said = "".join(
        _quoted(one_line(piece["code"]), width) if "code" in piece else one_line(piece["text"]) for piece in pieces)
    lines = textwrap.wrap(
        said.translate(_ASCII), width, initial_indent=begin, subsequent_indent=" " * len(begin), break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_KEPT, " ")


def _quoted(code: str, width: int) -> str:
    """Code of several words in quotation marks; a short one is not broken over two lines, as it is to be typed."""
    if " " not in code:
        return code
    return '"%s"' % (code.replace(" ", _KEPT) if len(code) < width - 10 else code)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int = WIDTH) -> str:
    """A table as lines of plain text, two blanks between its columns."""
    cells = [list(head), *([plain(cell, width=10000) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * size for size in widths), *lines[1:]])


def one_line(text: str) -> str:
    """A text without line breaks and control characters; blanks at its ends stay."""
    return re.sub(r"\s", " ", "".join(sign if sign.isprintable() or sign.isspace() else " " for sign in text))

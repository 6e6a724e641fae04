# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the lines of a log, however large it is, as a terminal would have left them."""

from __future__ import annotations

from typing import BinaryIO, Iterator, NamedTuple

from ..core.text import printable

MAX_LINE_BYTES = 1 << 16
"""Bytes of a line that are examined; of a longer one, what follows its last carriage return."""

MAX_WIDTH = 4000
"""Characters of a line that are kept: mangled names are long, and patterns have to stay cheap."""

_BLOCK = 1 << 20


class Line(NamedTuple):
    """A line and its number, from 1."""

    number: int
    text: str


def raw_lines(stream: BinaryIO, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Go through number and bytes of a log's lines, in bounded memory; those before ``offset`` are only counted."""
    number = 1
    while offset > 0:
        block = stream.read(min(_BLOCK, offset))
        if not block:
            return
        number += block.count(b"\n")
        offset -= len(block)
    while True:
        line = piece = stream.readline(MAX_LINE_BYTES)
        if not line:
            return
        while not piece.endswith(b"\n"):
            piece = stream.readline(MAX_LINE_BYTES)
            if not piece:
                break
            # A program that shows how far it is never ends its line; what counts is what it wrote last.
            kept = piece.rstrip(b"\r\n")
            line = kept[kept.rfind(b"\r"):] if b"\r" in kept else line
        yield number, line
        number += 1


def plain_text(line: bytes) -> str:
    """Return a line without control characters, and without what a carriage return overwrote."""
    text = line.rstrip(b"\r\n")
    text = text[text.rfind(b"\r") + 1:][: 4 * MAX_WIDTH]
    return printable(text.decode("utf-8", "replace")).rstrip()[:MAX_WIDTH]

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Show text of programs and files so that every output can hold it, and no terminal obeys it. Pure."""

from __future__ import annotations

import os
import re

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]")
"""Control sequences, strings for the terminal, and other escapes (ECMA-48, 5.3 to 5.6)."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and those that turn the direction of writing."""


def printable(text: str) -> str:
    """Return a text without what a terminal obeys; tabs and line feeds stay."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def readable(name: str) -> str:
    """Return a file name as text for any output: bytes that are not UTF-8 become ``\\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def in_words(name: str) -> str:
    """Show a file name within a sentence: on one line, and harmless to a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in readable(name)
    )


def shortly(names: list[str]) -> str:
    """List the first few names within a sentence."""
    return ", ".join(in_words(name) for name in names[:5])

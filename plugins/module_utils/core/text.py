# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Show file names as text that every output can hold. Pure."""

from __future__ import annotations

import os


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

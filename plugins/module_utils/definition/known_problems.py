# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what is known to be wrong with a release: ``known_problems`` of its file. Pure.

Most of it is found when the release has been frozen for a while. So the list is no part of what was asked for: it is
neither in the digest of a release nor in its resolved release file, and may change at any time.
"""

from __future__ import annotations

from typing import Any, Mapping

KEY = "known_problems"
"""The key of a release file that the release does not depend on."""

_KEYS = ("problem", "workaround", "url")


def remove(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Leave the known problems out of a release file."""
    return {key: value for key, value in definition.items() if key != KEY}


def read(definition: Mapping[str, Any]) -> list[dict[str, str]]:
    """Read the known problems of a release file, each with all keys, in their order."""
    return [
        {key: _line(entry.get(key) or "") for key in _KEYS}
        for entry in definition.get(KEY) or [] if entry.get("problem")]


def format_sentences(problems: list[dict[str, str]]) -> list[str]:
    """Write each problem as one line of text, for the help of a modulefile."""
    parts = (
        (with_full_stop(entry["problem"]), with_full_stop(entry["workaround"]), _reference(entry["url"]))
        for entry in problems)
    return [" ".join(part for part in entry if part) for entry in parts]


def _line(text: str) -> str:
    """Write a text on one line, without control characters: it goes to terminals."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def with_full_stop(text: str) -> str:
    """Return a sentence with its full stop; empty for an empty one."""
    return text if not text or text[-1] in ".!?" else text + "."


def _reference(url: str) -> str:
    return "See %s" % url if url else ""

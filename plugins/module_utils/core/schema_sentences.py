# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put what is wrong with data into sentences: types, places and values. Pure."""

from __future__ import annotations

import re
from typing import Any

TYPES = {
    "str": "text", "path": "a path, as text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "list": "a list", "dict": "a mapping of keys to values", "raw": "anything",
}


def join_words(items: list[str], last: str) -> str:
    """Join words by commas, the last two by ``last``."""
    return items[0] if len(items) == 1 else "%s %s %s" % (", ".join(items[:-1]), last, items[-1])


def describe_place(level: str) -> str:
    """Say where a level is, in the words of a sentence."""
    if not level:
        return "at the top level"
    return "in an entry of '%s'" % level[:-2] if level.endswith("[]") else "under '%s'" % level


def describe_value(value: object) -> str:
    """Put a value into the words of a sentence."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (int, float)):
        return "the number %s" % value
    if isinstance(value, str):
        return "the text '%s'" % (value if len(value) <= 60 else value[:57] + "...")
    return "the date %s" % value if hasattr(value, "isoformat") else "a %s" % type(value).__name__


def advise(value: object, kind: str) -> str:
    """Say what to change in the file so that ``value`` becomes a ``kind``."""
    if value is None:
        return "give it a value or remove the key"
    if kind in ("str", "path") and not isinstance(value, (dict, list)):
        return "put it in quotes, as YAML has turned what was written into something else"
    if kind in ("int", "float", "bool") and isinstance(value, str):
        return "write it without quotes"
    if kind == "list" and not isinstance(value, dict):
        return "write it as a list, even of one"
    return ""


def describe_wanted(option: dict[str, Any]) -> str:
    """Say what a missing key must be, from its choices or its description."""
    if option.get("choices"):
        return ", one of %s" % ", ".join(str(choice) for choice in option["choices"])
    description = option.get("description")
    first = description[0] if isinstance(description, list) and description else description
    if isinstance(first, str) and first.strip():
        # The letters and brackets of Ansible's markup would only be noise in a sentence on a terminal.
        return " (%s)" % re.sub(r"\b[A-Z]\(([^)]*)\)", r"\1", first.strip()).rstrip(".")
    return " (%s)" % TYPES[option.get("type", "str")]

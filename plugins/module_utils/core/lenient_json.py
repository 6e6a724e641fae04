# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read records that nobody vouches for: what has another type than it should is left out. Pure."""

from __future__ import annotations

import math
from typing import Any, Mapping

from .clock import seconds_of


def mapping(value: object) -> dict[str, Any]:
    """Return the value where it is a mapping, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    """Return the value where it is a list, else an empty one."""
    return list(value) if isinstance(value, (list, tuple)) else []


def mappings(value: object) -> list[dict[str, Any]]:
    """Return the mappings of a list."""
    return [dict(entry) for entry in sequence(value) if isinstance(entry, Mapping)]


def text(value: object) -> str:
    """Return the value as text; empty for what has none, such as null and collections."""
    if isinstance(value, bool) or value is None or isinstance(value, (dict, list, tuple)):
        return ""
    return str(value)


def texts(value: object) -> list[str]:
    """Return the texts of a list, or the one text that stands for a list."""
    found = [text(entry) for entry in (sequence(value) if isinstance(value, (list, tuple)) else [value])]
    return [entry for entry in found if entry]


def shown(value: object) -> str:
    """Put a value of any plain type into words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(entry) for entry in value)
    if isinstance(value, Mapping):
        return ", ".join("%s %s" % (key, shown(entry)) for key, entry in value.items())
    return text(value)


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def whole(value: object) -> int | None:
    """Return a whole number, or None."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def moment(value: object) -> float | None:
    """Return the seconds since 1970 of a time as the records spell it, or None."""
    try:
        return seconds_of(text(value))
    except ValueError:
        return None


def kept(record: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return these keys of a record, those that it has and that are not null."""
    return {key: record[key] for key in keys if record.get(key) is not None}

# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write plain data as JSON that people read. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, Mapping


def rendered(facts: Mapping[str, Any]) -> bytes:
    """Render facts as indented JSON, with each list of plain values, of which a sweep has many, on one line."""
    return (_lines(facts, "") + "\n").encode("utf-8")


def storable(value: Any) -> Any:
    """Return data as JSON can hold them: numbers that are none become null, halves of characters question marks."""
    if isinstance(value, Mapping):
        return {storable(key): storable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(value: Any, margin: str) -> str:
    if isinstance(value, Mapping) and value:
        entries = (
            "%s  %s: %s" % (margin, json.dumps(str(key)), _lines(value[key], margin + "  ")) for key in sorted(value)
        )
        return "{\n%s\n%s}" % (",\n".join(entries), margin)
    if isinstance(value, (list, tuple)) and any(isinstance(entry, (Mapping, list, tuple)) for entry in value):
        entries = (margin + "  " + _lines(entry, margin + "  ") for entry in value)
        return "[\n%s\n%s]" % (",\n".join(entries), margin)
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
